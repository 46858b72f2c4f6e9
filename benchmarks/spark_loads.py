"""What `spark_kafka` has Spark do with a topic, and what each came to.

Every load looks whether all rows came: by their number, or by a checksum of their payloads that
was taken of the rows before they were written anywhere.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import AnabranchError
from benchmarks.report import Figure, Measure
from benchmarks.spark_sides import MESSAGE_BYTES, PARTITIONS, Side

RATE_PER_S: Final = 1_000
WARM_UP_S: Final = 10
"""Of the latencies, what is dropped: the tools' and the query's first seconds."""
LATENCY_S: Final = 30
_ARRIVAL_S_MAX: Final = 120.0
_MADE_ROWS: Final = 50_000
_CHECKSUM: Final = ("count(*)", "bit_xor(xxhash64(value))")
FILLED: Final = "filled"
"""The topic that is read."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class RowsDiffer(AnabranchError):
    """A load got other rows than were written."""


class Numbers:
    """Numbers for names that are used once."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """One that was not given before."""
        self._last += 1
        return self._last


@dataclass(slots=True)
class Stage:
    """Where loads run."""

    spark: SparkSession
    folder: Path
    messages: int
    digest: tuple[int, ...] = ()
    """Of the rows that both servers hold."""
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def rows(self) -> DataFrame:
        """The rows, outside of any topic."""
        return self.spark.read.parquet(str(self.folder / "rows"))


def make_rows(folder: Path, messages: int) -> None:
    """Write random payloads as Parquet, a file for each partition."""
    (folder / "rows").mkdir()
    draw = np.random.default_rng(1)
    for part in range(PARTITIONS):
        left = messages // PARTITIONS
        schema = pa.schema([("value", pa.binary())])
        path = folder / "rows" / f"{part}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            while left:
                count = min(left, _MADE_ROWS)
                offsets = np.arange(count + 1, dtype=np.int32) * MESSAGE_BYTES
                content = pa.py_buffer(draw.bytes(count * MESSAGE_BYTES))
                buffers = [None, pa.py_buffer(offsets), content]
                values = pa.Array.from_buffers(pa.binary(), count, buffers)
                writer.write_batch(pa.record_batch([values], schema=schema))
                left -= count


def digest_of(table: DataFrame) -> tuple[int, ...]:
    """How many rows, and a checksum of their payloads."""
    row = table.selectExpr(*_CHECKSUM).first()
    assert row is not None, "an aggregate over everything has one row"
    return tuple(int(each) for each in row)


def fill(stage: Stage, side: Side) -> None:
    """Have a server hold the rows, written by its own sink."""
    side.create(FILLED)
    side.write(stage.rows, FILLED, "at_least_once")
    _checked(stage.digest, digest_of(side.table(stage.spark, FILLED, ["value"])))


def _checked(wanted: object, found: object) -> None:
    if wanted != found:
        raise RowsDiffer(f"{wanted} is what was written, and {found} what was read")


def _count(stage: Stage, side: Side) -> None:
    _checked(stage.messages, side.table(stage.spark, FILLED, ["partition"]).count())


def _count_all_columns(stage: Stage, side: Side) -> None:
    _checked(stage.messages, side.table(stage.spark, FILLED, []).count())


def _checksum(stage: Stage, side: Side) -> None:
    _checked(stage.digest, digest_of(side.table(stage.spark, FILLED, ["value"])))


def _parquet(stage: Stage, side: Side) -> None:
    table = side.table(stage.spark, FILLED, ["value", "published"])
    table.write.mode("overwrite").parquet(str(stage.folder / "copied"))


def _available_now(stage: Stage, side: Side) -> None:
    stream = side.stream(stage.spark, FILLED, ["value", "published"])
    checkpoint = stage.folder / f"checkpoint-{stage.numbers.next()}"
    to_nowhere = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = to_nowhere.trigger(availableNow=True).start()
    query.awaitTermination()
    rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    _checked(stage.messages, rows)


class Cost(NamedTuple):
    """What some work took."""

    taken_s: float
    cpu_s: float
    """Of this process and of all that it started: Spark, its workers, servers."""

    @classmethod
    def of(cls, work: Callable[[], None]) -> "Cost":
        """Do it, and look at the clocks."""
        before = cpu_ticks()
        begun = time.perf_counter()
        work()
        taken_s = time.perf_counter() - begun
        # Of what has ended meanwhile nothing is known; workers outlive the queries they work for.
        ticks = sum(ticks - before.get(pid, 0) for pid, ticks in cpu_ticks().items())
        return cls(taken_s, ticks / _TICKS_PER_S)


def _write(stage: Stage, side: Side, guarantee: str) -> Cost:
    """Write everything to a new topic."""
    topic = f"written-{stage.numbers.next()}"
    side.create(topic)
    cost = Cost.of(lambda: side.write(stage.rows, topic, guarantee))
    _checked(stage.messages, side.table(stage.spark, topic, ["partition"]).count())
    side.delete(topic)
    return cost


def _costs(work: Callable[[Stage, Side], None]) -> Callable[[Stage, Side], Cost]:
    return lambda stage, side: Cost.of(lambda: work(stage, side))


def _writes(guarantee: str) -> Callable[[Stage, Side], Cost]:
    return lambda stage, side: _write(stage, side, guarantee)


def _parquet_and_back(stage: Stage, side: Side) -> Cost:
    cost = _costs(_parquet)(stage, side)
    copied = stage.folder / "copied"
    _checked(stage.digest, digest_of(stage.spark.read.parquet(str(copied))))
    shutil.rmtree(copied)
    return cost


BULK: Final[dict[str, tuple[str, Callable[[Stage, Side], Cost]]]] = {
    "count": ("read to count", _costs(_count)),
    "count_all": ("read to count, all columns", _costs(_count_all_columns)),
    "checksum": ("read to checksum", _costs(_checksum)),
    "parquet": ("read to Parquet", _parquet_and_back),
    "available_now": ("stream, availableNow", _costs(_available_now)),
    "write": ("write, at least once", _writes("at_least_once")),
    "write_once": ("write, ours each row once", _writes("once")),
}
"""Loads that move all rows: what each is called, and what it costs."""
LATENCY: Final = "latency"
LOADS: Final = (*BULK, LATENCY)


def measures_of(load: str) -> tuple[Measure, ...]:
    """What a load measures."""
    if load == LATENCY:
        words = f"publish to foreachBatch at {RATE_PER_S:,}/s"
        return (
            Measure("p50", f"{words}, p50", "ms", False),
            Measure("p99", f"{words}, p99", "ms", False),
        )
    words, _ = BULK[load]
    return (
        Measure(load, words, "rows/s", True),
        Measure(f"{load}_cpu", "the same, all processes", "CPU s per million", False),
    )


def measure(load: str, stage: Stage, side: Side) -> dict[str, Figure]:
    """Run a load once."""
    if load == LATENCY:
        return _latencies(stage, side)
    os.sync()  # no load pays for what the one before it has left to be written
    _, work = BULK[load]
    cost = work(stage, side)
    return {
        load: Figure(stage.messages / cost.taken_s),
        f"{load}_cpu": Figure(cost.cpu_s / stage.messages * 1e6),
    }


def _latencies(stage: Stage, side: Side) -> dict[str, Figure]:
    """Publish at a steady rate, and see when a query has each message in its hands."""
    topic = f"steady-{stage.numbers.next()}"
    side.create(topic)
    seen: list[tuple[int, float]] = []
    came = threading.Semaphore(0)

    def take(batch: DataFrame, _number: int) -> None:
        times = [row[0] for row in batch.selectExpr("unix_micros(published)", "value").collect()]
        now_us = time.time() * 1e6
        seen.extend((published_us, (now_us - published_us) / 1e3) for published_us in times)
        came.release()

    stream = side.stream(stage.spark, topic, ["value", "published"])
    checkpoint = stage.folder / f"checkpoint-{stage.numbers.next()}"
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.start()
    try:
        side.publish(topic, RATE_PER_S * (WARM_UP_S + LATENCY_S), RATE_PER_S)
        # The tools send a few more than they were asked for; the topic knows.
        everything = side.table(stage.spark, topic, ["partition"]).count()
        while len(seen) < everything and came.acquire(timeout=_ARRIVAL_S_MAX):
            pass
    finally:
        query.stop()
    _checked(everything, len(seen))
    side.delete(topic)
    begun_us = min(published_us for published_us, _ in seen) + WARM_UP_S * 1_000_000
    warm = [taken_ms for published_us, taken_ms in seen if published_us >= begun_us]
    hundredths = quantiles(warm, n=100)
    return {"p50": Figure(hundredths[49]), "p99": Figure(hundredths[98])}


def cpu_ticks() -> dict[int, int]:
    """What this process and each of those that it started, and they in turn, has used so far."""
    known: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = stat.read_text().rpartition(")")[2].split()
            known[int(stat.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in known.items() if parent in family} - family:
        family |= more
    return {pid: known[pid][1] for pid in family}
