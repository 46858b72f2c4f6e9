"""Runs a task for each part of some work, some parts at a time; what is done is kept."""

import asyncio
import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark.sql import SparkSession

from pyspark_anabranch.jobs.bulk_tasks import Failure
from pyspark_anabranch.jobs.job_state import JobState
from pyspark_anabranch.limits import PARTS_AT_ONCE_PER_CORE

P = TypeVar("P", bound=Hashable)
R = TypeVar("R")
OnParts = Callable[[int, int], None]
"""Told how many parts of some work are done, and of how many, as far as is known."""


def no_parts(done: int, total: int) -> None:
    """For callers that do not want to know."""


class PartCount:
    """How many parts of some work are done, over all its steps."""

    def __init__(self, on_parts: OnParts = no_parts) -> None:
        self._on_parts = on_parts
        self._done = self._total = 0

    def expect(self, parts: int) -> None:
        """So many more are to be done."""
        self._total += parts

    def one_more(self, _result: object = None) -> None:
        """One more is done."""
        self._done += 1
        self._on_parts(self._done, self._total)


@dataclass(frozen=True, slots=True)
class Kept(Generic[R]):
    """Where the results of a step are kept, and how."""

    state: JobState
    step: str
    as_json: Callable[[R], Any]
    of_json: Callable[[Any], R]


def share_of(rate: float | None, spark: SparkSession, parts: int) -> float | None:
    """What each of the tasks that run at once may do of what all may do."""
    at_once = min(spark.sparkContext.defaultParallelism, max(1, parts))
    return None if rate is None else rate / at_once


async def each_part(
    spark: SparkSession,
    task: Callable[[P], R | Failure],
    parts: Sequence[P],
    note: Callable[[R], None],
    kept: Kept[R] | None = None,
) -> list[R]:
    """Do something for all parts, those that are kept left out; return what came of each.

    The first error ends it when the tasks that run beside it are through.

    Raises:
        AnabranchError: as a task met it.
    """
    done = {} if kept is None else kept.state.done(kept.step)
    keys = [key_of(part) for part in parts]
    results: dict[str, R] = {}
    for key in keys:
        if kept is not None and key in done:
            results[key] = kept.of_json(done[key])
            note(results[key])
    todo = [(key, part) for key, part in zip(keys, parts, strict=True) if key not in results]
    at_once = PARTS_AT_ONCE_PER_CORE * spark.sparkContext.defaultParallelism
    for first in range(0, len(todo), at_once):
        some = todo[first : first + at_once]
        work = spark.sparkContext.parallelize([part for _, part in some], len(some)).map(task)
        # The event loop goes on meanwhile: somebody may have a lease to renew.
        found = await asyncio.get_running_loop().run_in_executor(None, work.collect)
        good = {
            key: result
            for (key, _), result in zip(some, found, strict=True)
            if not isinstance(result, Failure)
        }
        if kept is not None:
            kept.state.keep(kept.step, {key: kept.as_json(each) for key, each in good.items()})
        for result in found:
            if isinstance(result, Failure):
                raise result.error()
            note(result)
        results |= good
    return [results[key] for key in keys]


def key_of(part: Hashable) -> str:
    """A name for a part that is the same in every run."""
    return hashlib.sha256(repr(part).encode()).hexdigest()[:32]
