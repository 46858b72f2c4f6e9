"""The recent changes of a store, and the watches that read along.

Watches share one bounded history and hold only a place in it: a watch costs nothing while nobody
reads it, and one that falls behind the history finds a gap instead of a queue that grew.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence

from anabranch import limits
from anabranch.metadata.paths import ROOT, is_within
from anabranch.metadata.store import Event, EventKind, Revision


class Readership:
    """Those who read on behalf of one handle, and stop when it is closed."""

    def __init__(self) -> None:
        self.end_number: int | None = None
        """The first change they are not told any more; None while the handle is open."""


class EventHistory:
    """The changes after some revision, in order."""

    def __init__(
        self, newest: Revision, *, events_max: int = limits.METADATA_EVENT_HISTORY_MAX
    ) -> None:
        self.newest = newest
        self._events: list[Event] = []
        self._first_number = 0  # of events[0], counted from when the store was opened
        self._forgotten_to = newest
        self._events_max = events_max
        self._parked: list[Watch] = []
        self._listeners: dict[Callable[[], None], None] = {}
        self.watched = False
        """Whether anybody ever read along."""
        self.blind = False
        """Whether changes are not told at present."""
        self._on_reader: Callable[[], None] | None = None

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
        for listener in self._listeners:
            listener()
        if self._parked:
            parked, self._parked = self._parked, []
            for watch in parked:
                if any(is_within(watch.prefix, event.path) for event in events):
                    watch.wake()
                else:
                    watch.number = self.end_number
                    self._parked.append(watch)

    def watch(
        self, prefix: str, since: Revision | None, readership: Readership | None = None
    ) -> "Watch":
        """Read along from the next change on, or from the one after `since`."""
        self.read_along()
        number = self.end_number if since is None else self.number_after(since)
        return Watch(self, prefix, number, readership or Readership())

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, which must not change this, after every change."""
        self.read_along()
        self._listeners[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        self._listeners.pop(listener, None)

    def reaches(self, since: Revision) -> bool:
        """Whether every change after that revision is known."""
        return not self.blind and self._forgotten_to <= since <= self.newest

    def read_along(self) -> None:
        """Somebody wants to hear of changes from now on."""
        self.watched = True
        if self._on_reader is not None:
            on_reader, self._on_reader = self._on_reader, None
            on_reader()

    def open_eyes(self) -> None:
        """Undo `close_eyes`; this is blind until changes are told again, see `forget`."""
        self._on_reader = None

    def close_eyes(self, on_reader: Callable[[], None]) -> None:
        """Changes are not told from now on; whoever reads along after all calls this function.

        It must see to it that `forget` is called when changes are told again.
        """
        self.blind = True
        self._on_reader = on_reader

    def begin(self, revision: Revision) -> None:
        """Every change after that revision is known, or was published before this call."""
        self._forgotten_to = max(self._forgotten_to, revision)
        self.newest = max(self.newest, revision)

    def forget(self, newest: Revision) -> None:
        """Changes were missed: whoever reads along finds a gap that ends at `newest`."""
        self._first_number = self.end_number + 1
        self._events.clear()
        self._forgotten_to = self.newest = newest
        # Else nobody has asked to be told again.
        self.blind = self._on_reader is not None
        parked, self._parked = self._parked, []
        for watch in parked:
            watch.wake()

    def events_from(self, number: int, count_max: int) -> tuple[list[Event], int]:
        """Some changes from a number on, and the number behind them; a gap if forgotten."""
        place = number - self._first_number
        if place < 0:
            return [Event(EventKind.GAP, ROOT, self.newest)], self.end_number
        found = self._events[place : place + count_max]
        return found, number + len(found)

    def number_after(self, since: Revision) -> int:
        """Of the first change after a revision; -1 if that is not known."""
        if not self.reaches(since):
            return -1
        after = bisect_right(self._events, since, key=lambda event: event.revision)
        return self._first_number + after

    async def changed_since(self, since: Revision, prefix: str) -> AsyncIterator[Event]:
        """The newest change of each path after `since`; a gap alone if that is not known."""
        number, end_number = self.number_after(since), self.end_number
        newest: dict[str, Event] = {}
        while number < end_number:
            event = self.event_at(number)
            if event is None:
                yield Event(EventKind.GAP, ROOT, self.newest)
                return
            number += 1
            if is_within(prefix, event.path):
                newest.pop(event.path, None)
                newest[event.path] = event
            if number % limits.METADATA_WATCH_EVENTS_PER_TURN_MAX == 0:
                await asyncio.sleep(0)
        for event in newest.values():
            yield event

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

    def end(self, readership: Readership) -> None:
        """End the watches of a handle once they have read what there is."""
        if readership.end_number is None:
            readership.end_number = self.end_number
            for watch in self._parked:
                if watch.readership is readership:
                    watch.wake()


class Watch:
    """An endless iterator over the changes below one path. One reader at a time."""

    def __init__(
        self, history: EventHistory, prefix: str, number: int, readership: Readership
    ) -> None:
        self.prefix = prefix
        self.readership = readership
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
                continue
            end_number = self.readership.end_number
            if end_number is not None and self.number >= end_number:
                raise StopAsyncIteration
            if self.number < self._history.end_number:
                self._events_this_turn += 1
                if (event := self._next()) is not None:
                    return event
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
