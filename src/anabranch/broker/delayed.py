"""Entries to be delivered later: which, when, and how the bound is kept.

`DelayedEntries` is pure. It remembers the entries that are due next, up to a bound. Beyond it the
latest are forgotten again, but not from where on: when half of the others are gone, the log is
read again from there. Nothing is stored: after a restart the log is read from the mark anyway.
"""

import asyncio
from bisect import insort
from collections.abc import Callable

from anabranch.broker.consumer import Delivery
from anabranch.broker.dispatch import Dispatcher
from anabranch.broker.limits import DELAYED_ENTRIES_MAX, DELAYED_LOOK_S_MAX, DELAYED_TICK_MS
from anabranch.broker.policies.delivery_rules import DeliveryRules
from anabranch.ids import Position
from anabranch.runtime.clock import Clock


class DelayedEntries:
    """Positions by the tick in which they are due."""

    def __init__(self, entries_max: int = DELAYED_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._known: set[Position] = set()
        self._by_tick: dict[int, list[Position]] = {}
        self._ticks: list[int] = []
        self._forgotten: Position | None = None
        """The lowest position that did not fit."""
        self._forgotten_tick: int | None = None
        """The first tick in which something is due that did not fit."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, position: Position) -> bool:
        return position in self._known

    @property
    def next_due_ms(self) -> int | None:
        """When to ask for what is due; None if nothing is known to be."""
        return self._ticks[0] * DELAYED_TICK_MS if self._ticks else None

    def add(self, position: Position, deliver_at_ms: int) -> None:
        """Remember an entry; no harm if it is remembered."""
        if position in self._known:
            return
        tick = -(-deliver_at_ms // DELAYED_TICK_MS)  # never early
        if self._forgotten_tick is not None and tick >= self._forgotten_tick:
            # Remembered, it would take the place of what is due before it.
            self._forget(position, tick)
            return
        entries = self._by_tick.get(tick)
        if entries is None:
            entries = self._by_tick[tick] = []
            insort(self._ticks, tick)
        entries.append(position)
        self._known.add(position)
        if len(self._known) > self._entries_max:
            self._forget_latest()

    def _forget_latest(self) -> None:
        tick = self._ticks[-1]
        position = self._by_tick[tick].pop()
        self._known.discard(position)
        if not self._by_tick[tick]:
            del self._by_tick[self._ticks.pop()]
        self._forget(position, tick)

    def _forget(self, position: Position, tick: int) -> None:
        if self._forgotten is None or position < self._forgotten:
            self._forgotten = position
        if self._forgotten_tick is None or tick < self._forgotten_tick:
            self._forgotten_tick = tick

    def due(self, now_ms: int) -> list[Position]:
        """Take out what is due by now, ascending."""
        found: list[Position] = []
        while self._ticks and self._ticks[0] * DELAYED_TICK_MS <= now_ms:
            found += self._by_tick.pop(self._ticks.pop(0))
        self._known.difference_update(found)
        return sorted(found)

    def to_read_again(self) -> Position | None:
        """From where the log must be read again, once there is room for what is found there."""
        if self._forgotten is None or 2 * len(self._known) > self._entries_max:
            return None
        position, self._forgotten = self._forgotten, None
        self._forgotten_tick = None
        return position

    def clear(self) -> None:
        """Forget all."""
        self._known = set()
        self._by_tick = {}
        self._ticks = []
        self._forgotten = None
        self._forgotten_tick = None


class Delaying:
    """Tells when entries of one subscription are due."""

    def __init__(
        self, clock: Clock, on_due: Callable[[list[Position]], None], rules: DeliveryRules
    ) -> None:
        self._rules = rules
        self.entries = DelayedEntries()
        self._clock = clock
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self.is_reading_again = False
        """Whether `passes` has to be asked."""
        self._known_below: Position | None = None
        """What is before it is read for the second time; some of it was dealt with."""

    def went_back(self, passed: Position) -> None:
        """Reading goes back to before a position; what is kept there was dealt with."""
        if self.entries:
            self._read_again_below(passed)

    def _read_again_below(self, position: Position) -> None:
        self._known_below = max(position, self._known_below or position)
        self.is_reading_again = True

    def read_on_from(self, position: Position) -> Position:
        """Where to read on: there, or where something was forgotten for which there is room now."""
        start = self.entries.to_read_again()
        if start is None or start >= position:
            return position
        self._read_again_below(position)
        return start

    def passes(self, position: Position, dispatcher: Dispatcher) -> bool:
        """Whether an entry that is read for the second time was dealt with at the first."""
        assert self._known_below is not None
        if position >= self._known_below:
            self._stop_reading_again()
            return False
        return dispatcher.knows(position) or position in self.entries

    def keeps(self, delivery: Delivery) -> bool:
        """Whether it is not yet time for an entry; it is reported when it is."""
        deliver_at_ms = delivery.metadata.deliver_at_time if delivery.metadata else None
        if deliver_at_ms is None or deliver_at_ms <= self._clock.wall_ms():
            return False
        if not self._rules.delays:
            return False
        tick_ms = self._rules.tick_ms
        self.entries.add(delivery.position, -(-deliver_at_ms // tick_ms) * tick_ms)
        self._set_timer()
        return True

    def clear(self) -> None:
        """Report nothing any more."""
        self.entries.clear()
        self._stop_reading_again()
        self._set_timer()

    def _stop_reading_again(self) -> None:
        self._known_below = None
        self.is_reading_again = False

    def _set_timer(self) -> None:
        due_ms = self.entries.next_due_ms
        if due_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = due_ms
        if due_ms is not None:
            wait_s = min(max(0.0, (due_ms - self._clock.wall_ms()) / 1000), DELAYED_LOOK_S_MAX)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = self._timer_ms = None
        due = self.entries.due(self._clock.wall_ms())
        self._set_timer()
        if due:
            self._on_due(due)
