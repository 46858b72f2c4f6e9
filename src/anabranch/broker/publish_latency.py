"""How long it takes until a message is stored, by one sample at a time.

While a sample is under way no other one begins: a broker that publishes much pays next to nothing,
and one that publishes little is measured message by message.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from anabranch.broker.limits import LATENCY_SAMPLE_S_MAX
from anabranch.ids import Position
from anabranch.runtime import Clock

BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
Done = Callable[[Position | None, Exception | None], None]


class PublishLatency:
    """A histogram of samples."""

    __slots__ = ("_began_s", "_begun", "_clock", "counts", "is_idle", "sum_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = 0
        """Samples so far."""
        self._began_s = 0.0
        """When the last one did."""
        self.is_idle = True
        """Whether the next message is to be a sample."""
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Samples up to each bound, and above the last."""
        self.sum_s = 0.0

    def give_up_overdue(self) -> None:
        """Let the next sample begin if nothing was heard of the present one for too long."""
        if not self.is_idle and self._clock.monotonic_s() - self._began_s > LATENCY_SAMPLE_S_MAX:
            self.is_idle = True

    def give_up(self) -> None:
        """End the sample that was begun just now without a result."""
        self.is_idle = True

    def timed(self, done: Done) -> Done:
        """Begin a sample; it ends when the callable that is returned is called."""
        self.is_idle = False
        self._begun = number = self._begun + 1
        self._began_s = began_s = self._clock.monotonic_s()

        def stored(position: Position | None, error: Exception | None) -> None:
            if number == self._begun:
                self.is_idle = True
            if position is not None:
                taken_s = self._clock.monotonic_s() - began_s
                self.counts[bisect_left(BOUNDS_S, taken_s)] += 1
                self.sum_s += taken_s
            done(position, error)

        return stored
