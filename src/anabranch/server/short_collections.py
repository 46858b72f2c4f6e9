"""Keeps collections of garbage short, however many topics there are.

A full collection looks at every object, and everybody waits: with 10,000 topics for most of a
second. What has survived one is therefore put aside (`gc.freeze`) and looked at no more, so that
the next one looks only at what came since. What is aside and not used any more is still freed,
except for cycles; and whatever is closed leaves some. When as much was closed as may be a quarter
of all, or a quarter has come to what is aside and that is much, everything is looked at once more:
as rarely as Python by itself would do it.
"""

import asyncio
import gc
from collections.abc import Callable, Iterable
from typing import Any, Final

from anabranch.telemetry.metrics import Metric, gauge

LOOK_INTERVAL_S: Final = 60.0
OBJECTS_PER_ENDING: Final = 150
"""About what a topic and a connection leave to the collector."""
THRESHOLDS: Final = (700, 10, 2)
"""Python's own, but for full collections: the more often they are, the less each has to look at."""
_GROWN: Final = 1.25
GROWN_OBJECTS_MIN: Final = 500_000
"""Fewer take some 50 MB at most, were they all garbage; to find out takes a fifth of a second."""
_OLDEST: Final = 2


class ShortCollections:
    """The collector's habits in this process."""

    def __init__(self, ended: Callable[[], int]) -> None:
        """With how many topics and connections were closed so far."""
        self._ended = ended
        self._ended_before = 0
        self._aside_before = 0
        """What was aside after everything was looked at."""
        self._timer: asyncio.TimerHandle | None = None
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Put aside what was loaded by now, and from now on what survives."""
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        self._aside_before = gc.get_freeze_count()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._look_later()

    def stop(self) -> None:
        """Leave everything to Python again."""
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            gc.freeze()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_INTERVAL_S, self._look_and_go_on)

    def _look_and_go_on(self) -> None:
        self.look()
        self._look_later()

    def look(self) -> None:
        """Look at everything once more if much of what is aside may be garbage."""
        ended, aside = self._ended(), gc.get_freeze_count()
        left = (ended - self._ended_before) * OBJECTS_PER_ENDING
        much = max(self._aside_before * _GROWN, self._aside_before + GROWN_OBJECTS_MIN)
        if left * 4 >= aside or aside >= much:
            self._ended_before = ended
            gc.unfreeze()
            gc.collect()
            self._aside_before = gc.get_freeze_count()

    def metrics(self) -> Iterable[Metric]:
        """Offer the figures; see `MetricSource`."""
        yield gauge(
            "anabranch_gc_objects_aside",
            "Objects that collections of garbage do not look at.",
            gc.get_freeze_count(),
        )
