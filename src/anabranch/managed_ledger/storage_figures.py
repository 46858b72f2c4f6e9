"""How much a managed ledger wrote and read lately, how large entries were, how long storing took.

The data path only adds to counters. What is shown is of the last whole interval, counted bucket by
bucket, as Pulsar's figures of the same names are. A log that was idle for an interval holds none.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from anabranch.runtime import Clock

SIZE_BOUNDS_BYTES: Final = (128, 512, 1024, 2048, 4096, 16_384, 102_400, 1_048_576)
LATENCY_BOUNDS_S: Final = (0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 1.0)


class StorageInterval(NamedTuple):
    """What happened in an interval."""

    writes_per_s: float
    """Entries; so are the reads."""
    reads_per_s: float
    sizes: tuple[int, ...]
    """Entries up to each bound and above the one before, and above the last."""
    size_sum_bytes: int
    latencies: tuple[int, ...]
    latency_sum_s: float


NOTHING: Final = StorageInterval(
    0.0, 0.0, (0,) * (len(SIZE_BOUNDS_BYTES) + 1), 0, (0,) * (len(LATENCY_BOUNDS_S) + 1), 0.0
)


class StorageFigures:
    """Counts for one managed ledger."""

    __slots__ = ("_latencies", "_latency_sum_s", "_size_sum", "_sizes", "now_s", "reads", "shown")

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.monotonic_s
        self.shown = NOTHING
        """Of the last whole interval."""
        self.reads = 0
        """Entries that were not in the cache, in the present interval."""
        self._sizes: list[int] | None = None
        self._latencies: list[int] = []
        self._size_sum = 0
        self._latency_sum_s = 0.0

    def wrote(self, size: int, began_s: float) -> None:
        """An entry became durable that was handed over at `began_s`."""
        if self._sizes is None:
            self._sizes, self._latencies = list(NOTHING.sizes), list(NOTHING.latencies)
        taken_s = self.now_s() - began_s
        self._sizes[bisect_left(SIZE_BOUNDS_BYTES, size)] += 1
        self._latencies[bisect_left(LATENCY_BOUNDS_S, taken_s)] += 1
        self._size_sum += size
        self._latency_sum_s += taken_s

    def measure(self, elapsed_s: float) -> None:
        """An interval is over."""
        reads, self.reads = self.reads, 0
        if self._sizes is None:
            self.shown = NOTHING._replace(reads_per_s=reads / elapsed_s) if reads else NOTHING
            return
        self.shown = StorageInterval(
            sum(self._sizes) / elapsed_s,
            reads / elapsed_s,
            tuple(self._sizes),
            self._size_sum,
            tuple(self._latencies),
            self._latency_sum_s,
        )
        self._sizes, self._latencies = None, []
        self._size_sum, self._latency_sum_s = 0, 0.0
