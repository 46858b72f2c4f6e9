"""Reads what pulsar-perf prints. Pure: text in, figures out.

pulsar-perf prints one line about every 10 s and two lines of totals at its end. Its total rate
divides by more time than the load lasted, so no rate is taken from the totals, only counts and
latencies.
"""

import re
from dataclasses import dataclass
from typing import Final

BYTES_PER_MBIT: Final = 2**20 / 8
"""pulsar-perf's Mbit is 2**20 bits."""

_NUMBER: Final = r"\s*([0-9.]+)"
_INTERVAL: Final = re.compile(
    rf"Throughput (?:produced|received):{_NUMBER} msg ---{_NUMBER}\s+msg/s ---{_NUMBER} Mbit/s"
    rf"(?:\s+--- failure{_NUMBER} msg/s)?"
)
_TOTAL: Final = re.compile(rf"Aggregated throughput stats ---{_NUMBER} records (?:sent|received)")
_LATENCY: Final = re.compile(
    rf"Aggregated latency stats --- Latency: mean:{_NUMBER} ms - med:{_NUMBER}"
    rf" - 95pct:{_NUMBER} - 99pct:{_NUMBER} - 99\.9pct:{_NUMBER}.* Max:{_NUMBER}"
)


@dataclass(frozen=True, slots=True)
class Interval:
    """One line about some 10 s."""

    messages_so_far: int
    messages_per_s: float
    megabytes_per_s: float
    failures_per_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies over the whole run, in milliseconds."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class PerfResult:
    """What one run of pulsar-perf reported."""

    intervals: tuple[Interval, ...]
    messages: int
    latency: Latency | None

    @property
    def warm(self) -> tuple[Interval, ...]:
        """The intervals after the first, which holds start and warm-up; all if there is one."""
        return self.intervals[1:] or self.intervals


def parse_perf_output(text: str) -> PerfResult:
    """Read intervals, the count of messages and the latencies out of a run's output.

    Raises:
        ValueError: if the line of totals is missing: the run did not end by itself.
    """
    total = _TOTAL.search(text)
    if total is None:
        raise ValueError("pulsar-perf printed no totals")
    intervals = tuple(
        Interval(
            messages_so_far=int(count),
            messages_per_s=float(rate),
            megabytes_per_s=float(mbit) * BYTES_PER_MBIT / 1e6,
            failures_per_s=float(failures or 0),
        )
        for count, rate, mbit, failures in _INTERVAL.findall(text)
    )
    latency = _LATENCY.search(text)
    return PerfResult(
        intervals,
        int(total.group(1)),
        Latency(*map(float, latency.groups())) if latency else None,
    )
