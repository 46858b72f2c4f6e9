"""Runs one action of Spark and tells meanwhile how many of its tasks are done."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark import SparkContext, inheritable_thread_target
from pyspark.sql import SparkSession

from pyspark_anabranch.jobs.contract import StepWatch
from pyspark_anabranch.limits import PROGRESS_INTERVAL_S

T = TypeVar("T")


def watched(spark: SparkSession, watch: StepWatch, action: Callable[[], T]) -> T:
    """Do an action in a thread of its own, and tell how far it is."""
    context = spark.sparkContext
    group = f"anabranch-{id(action):x}"

    def grouped() -> T:
        context.setJobGroup(group, "anabranch")
        return action()

    with ThreadPoolExecutor(1) as threads:
        future: Future[T] = threads.submit(inheritable_thread_target(spark)(grouped))
        while not wait([future], PROGRESS_INTERVAL_S).done:
            done, total = _tasks(context, group)
            if total:
                watch.tell(done, total, "tasks")
        return future.result()


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is not None:
                total += stage_info.numTasks
                done += stage_info.numCompletedTasks
    return done, total
