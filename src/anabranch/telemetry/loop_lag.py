"""How long the event loop and the garbage collector keep everybody waiting.

Both are properties of a real process, so only the process wires them in; a simulated loop has no
lag.
"""

import asyncio
import gc
from collections.abc import Iterable
from typing import Any

from anabranch import limits
from anabranch.runtime import Clock
from anabranch.telemetry.metrics import Metric, Sample, counter, gauge


class WindowedMaximum:
    """The largest of recent values: of the current window and the one before it.

    Two windows, so that a peak is seen by every scraper for at least one whole window, however
    many scrapers there are.
    """

    def __init__(self, window_s: float = limits.PAUSE_WINDOW_S) -> None:
        self._window_s = window_s
        self._began_s = float("-inf")
        self._current = 0.0
        self._previous = 0.0

    def add(self, now_s: float, value: float) -> None:
        """Take a value in."""
        self._turn(now_s)
        self._current = max(self._current, value)

    def read(self, now_s: float) -> float:
        """Return the largest recent value."""
        self._turn(now_s)
        return max(self._current, self._previous)

    def _turn(self, now_s: float) -> None:
        age_s = now_s - self._began_s
        if age_s < self._window_s:
            return
        self._previous = self._current if age_s < 2 * self._window_s else 0.0
        self._current = 0.0
        self._began_s = now_s


class LoopLag:
    """Measures how late timers fire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent = WindowedMaximum()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Begin to measure on the running loop."""
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = self._clock.monotonic_s() + limits.LOOP_LAG_INTERVAL_S
        self._timer = loop.call_later(limits.LOOP_LAG_INTERVAL_S, self._fired, loop)

    def _fired(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = self._clock.monotonic_s()
        self._recent.add(now_s, max(0.0, now_s - self._due_s))
        self._schedule(loop)

    def metrics(self) -> Iterable[Metric]:
        """Offer the figures; see `MetricSource`."""
        yield gauge(
            "anabranch_loop_lag_seconds_max",
            "Longest a timer of the event loop fired late within the last minute.",
            self._recent.read(self._clock.monotonic_s()),
        )


class CollectorPauses:
    """Measures how long garbage collections take; the whole process stands still meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent = WindowedMaximum()
        self._began_s = 0.0
        self._count = [0] * len(gc.get_count())
        self._total_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Measure no more."""
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        now_s = self._clock.monotonic_s()
        if phase == "start":
            self._began_s = now_s
            return
        pause_s = now_s - self._began_s
        self._count[info["generation"]] += 1
        self._total_s += pause_s
        self._recent.add(now_s, pause_s)

    def metrics(self) -> Iterable[Metric]:
        """Offer the figures; see `MetricSource`."""
        yield Metric(
            "anabranch_gc_pauses_total",
            "counter",
            "Garbage collections by generation.",
            tuple(
                Sample(count, {"generation": str(generation)})
                for generation, count in enumerate(self._count)
            ),
        )
        yield counter(
            "anabranch_gc_pause_seconds_total",
            "Time spent in garbage collections.",
            self._total_s,
        )
        yield gauge(
            "anabranch_gc_pause_seconds_max",
            "Longest garbage collection within the last minute.",
            self._recent.read(self._clock.monotonic_s()),
        )
