"""The drill of bulk work on metadata in small, and a copy that is killed and gone on with."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
from test_spark_bulk_engine import served  # noqa: F401 - a fixture

from anabranch.migrations.engine.bulk import Mismatch, StorePlace
from anabranch.testing.contracts.bulk_engine import fill, store_at
from anabranch.testing.made_trees import made_tree
from anabranch.testing.spark_metadata_drill import Work, planned_differences, verdict_of
from pyspark_anabranch.jobs.contract import run_job
from pyspark_anabranch.jobs.job_state import JobState
from pyspark_anabranch.jobs.metadata_jobs import MetadataCopy
from pyspark_anabranch.jobs.spark_bulk import SparkBulk

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
NODES = 2000
PATIENCE_S = 300.0
MILLION, TEN_MILLION = "million nodes", "ten million nodes"
"""The drills `spark-metadata` and `spark-digests` have so many, on real servers."""


@pytest.mark.goal("spark.B1", part=MILLION, broken_by="spark_cuts_off_the_last_part")
@pytest.mark.goal("spark.B2", part=MILLION, broken_by="spark_forgets_the_last_difference")
@pytest.mark.goal("spark.B3", part=TEN_MILLION, broken_by="spark_believes_digests")
@pytest.mark.goal("spark.B3", part=TEN_MILLION, broken_by="spark_reads_every_part_again")
async def test_a_tree_is_copied_once_and_exactly_what_differs_is_found(spark, served):  # noqa: F811
    work = Work(SparkBulk(spark), StorePlace(served()), StorePlace(served()), NODES)
    await work.run(40)
    assert work.violations == []
    assert 1 <= work.figures["buckets_read_again"] <= 3
    assert work.figures["buckets"] > 30
    assert verdict_of(work, 1e9, 1e9)["violations"] == []
    assert len(verdict_of(work, 0.0, 0.0)["violations"]) == 3, "what is too slow is said"


def test_ten_differences_of_all_kinds_are_planned_in_any_tree():
    for nodes in (200, 2000, 4003, 100_000):
        planned = planned_differences(nodes)
        assert len(set(planned)) == 10
        assert {kind for _, kind in planned[:3]} == set(Mismatch) - {Mismatch.CHANGED}
        there = {record.path for record in made_tree(nodes)}
        for path, kind in planned:
            assert (path in there) == (kind is not Mismatch.EXTRA)
            assert path.rpartition("/")[0] in there


@pytest.mark.goal("spark.B1", part="spark", broken_by="job_state_is_never_read")
async def test_a_copy_that_was_killed_goes_on_behind_what_is_done(spark, served, tmp_path):  # noqa: F811
    left, right, state = served(), served(), tmp_path / "state"
    await fill(left, list(made_tree(NODES + 1, 40))[1:])
    _killed_copy(left, right, state)
    kept = JobState(state).done("copy")
    done_before = sum(part["copied"] for part in kept.values())
    store = await store_at(right)
    there = len([record async for record in store.export("/") if record.path != "/"])
    await store.close()
    assert 0 < done_before <= there < NODES, "it was killed on its way"
    job = MetadataCopy(StorePlace(left), StorePlace(right), keep=state)
    # A job has an event loop of its own.
    verdict = await asyncio.to_thread(run_job, job, spark)
    assert verdict.exit_code == 0
    assert verdict.result["copied"] == done_before + NODES - there, "only what was missing"
    assert not any(verdict.result["verified"]["counts"].values())
    assert not state.exists()


def _killed_copy(left, right, state):
    """Copy slowly in a process of its own, and end it with SIGKILL when some of it is done."""
    child = subprocess.Popen(
        [
            sys.executable, "-m", "anabranch", "spark", "copy-metadata", left, right,
            "--state", str(state), "--rate", "300", "--master", "local[2,2]",
        ],
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not JobState(state).done("copy"):
            assert child.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # Java and the workers, too
        child.wait()
