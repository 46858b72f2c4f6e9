"""A client's watch: first what only the server remembers, then the stream that comes in anyway."""

from collections import deque
from collections.abc import Awaitable, Callable

from anabranch.errors import AlreadyClosed, Unreachable
from anabranch.metadata.store import Event, EventKind, Revision
from anabranch.metadata.watching import EventHistory, Readership, Watch

EventsAfter = Callable[[Revision, str], Awaitable[tuple[list[Event], Revision, bool]]]


def follow(history: EventHistory, events: list[Event]) -> None:
    """Take events of the server's stream into the history; each counts once."""
    fresh: list[Event] = []
    for event in events:
        if event.kind is EventKind.GAP:
            history.publish(fresh)
            fresh = []
            history.forget(event.revision)
        elif event.revision > history.newest:
            fresh.append(event)
    history.publish(fresh)


class ServedWatch:
    """An endless iterator over the changes below one path. One reader at a time."""

    def __init__(
        self,
        history: EventHistory,
        readership: Readership,
        events_after: EventsAfter,
        prefix: str,
        since: Revision,
    ) -> None:
        self._history = history
        self._readership = readership
        self._events_after = events_after
        self._prefix = prefix
        self._since = since
        self._fetched: deque[Event] = deque()
        self._stream: Watch | None = None
        if history.reaches(since):
            self._stream = history.watch(prefix, since, readership)

    def __aiter__(self) -> "ServedWatch":
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._fetched:
                return self._fetched.popleft()
            if self._stream is not None:
                return await anext(self._stream)
            if self._history.reaches(self._since):
                self._stream = self._history.watch(self._prefix, self._since, self._readership)
                continue
            try:
                events, self._since, _ = await self._events_after(self._since, self._prefix)
            except AlreadyClosed:
                raise StopAsyncIteration from None
            except Unreachable:
                continue  # the server is away; changes are told when it is back
            self._fetched.extend(events)
