"""The recent changes of a store, and the watches that read along.

Watches share one bounded history and hold only a place in it: a watch costs nothing while nobody
reads it, and one that falls behind the history finds a gap instead of a queue that grew.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence

from anabranch import limits
from anabranch.metadata.paths import ROOT, is_within
from anabranch.metadata.store import Event, EventKind, Revision


class EventHistory:
    """The changes after some revision, in order."""

    def __init__(
        self, newest: Revision, *, events_max: int = limits.METADATA_EVENT_HISTORY_MAX
    ) -> None:
        self.newest = newest
        self.closed = False
        self._events: list[Event] = []
        self._first_number = 0  # of events[0], counted from when the store was opened
        self._forgotten_to = newest
        self._events_max = events_max
        self._parked: list[Watch] = []

    @property
    def end_number(self) -> int:
        """The number the next change will have."""
        return self._first_number + len(self._events)

    def publish(self, events: Sequence[Event]) -> None:
        """Add committed changes and wake the watches that asked for them."""
        if not events:
            return
        self._events += events
        self.newest = events[-1].revision
        # Cut by halves, so that forgetting costs little per event.
        if len(self._events) > 2 * self._events_max:
            excess = len(self._events) - self._events_max
            self._forgotten_to = self._events[excess - 1].revision
            self._first_number += excess
            del self._events[:excess]
        if self._parked:
            parked, self._parked = self._parked, []
            for watch in parked:
                if any(is_within(watch.prefix, event.path) for event in events):
                    watch.wake()
                else:
                    watch.number = self.end_number
                    self._parked.append(watch)

    def watch(self, prefix: str, since: Revision | None) -> "Watch":
        """Read along from the next change on, or from the one after `since`."""
        watch = Watch(self, prefix, self.end_number)
        if since is not None:
            if self._forgotten_to <= since <= self.newest:
                after = bisect_right(self._events, since, key=lambda event: event.revision)
                watch.number = self._first_number + after
            else:
                watch.number = -1
        return watch

    def event_at(self, number: int) -> Event | None:
        """The change of that number; None if it has been forgotten."""
        place = number - self._first_number
        return self._events[place] if place >= 0 else None

    def park(self, watch: "Watch") -> None:
        """Wake a watch that has read everything when there is more for it."""
        self._parked.append(watch)

    def unpark(self, watch: "Watch") -> None:
        """Forget a watch whose reader gave up waiting."""
        if watch in self._parked:
            self._parked.remove(watch)

    def close(self) -> None:
        """End every watch once it has read what there is."""
        self.closed = True
        for watch in self._parked:
            watch.wake()
        self._parked.clear()


class Watch:
    """An endless iterator over the changes below one path. One reader at a time."""

    def __init__(self, history: EventHistory, prefix: str, number: int) -> None:
        self.prefix = prefix
        self.number = number
        """Of the change to look at next."""
        self._history = history
        self._woken: asyncio.Future[None] | None = None
        self._events_this_turn = 0

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> Event:
        assert self._woken is None, "a watch has one reader"
        while True:
            if self._events_this_turn >= limits.METADATA_WATCH_EVENTS_PER_TURN_MAX:
                self._events_this_turn = 0
                await asyncio.sleep(0)
            elif self.number < self._history.end_number:
                self._events_this_turn += 1
                if (event := self._next()) is not None:
                    return event
            elif self._history.closed:
                raise StopAsyncIteration
            else:
                await self._wait()

    def _next(self) -> Event | None:
        event = self._history.event_at(self.number)
        if event is None:
            self.number = self._history.end_number
            return Event(EventKind.GAP, ROOT, self._history.newest)
        self.number += 1
        return event if is_within(self.prefix, event.path) else None

    async def _wait(self) -> None:
        self._events_this_turn = 0
        self._woken = asyncio.get_running_loop().create_future()
        self._history.park(self)
        try:
            await self._woken
        finally:
            self._woken = None
            self._history.unpark(self)

    def wake(self) -> None:
        """Let the reader look again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
