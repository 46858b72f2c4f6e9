"""A watch that goes on from where another process stopped.

First it tells what only the server remembers, then the history that this process follows anyway.
"""

import asyncio
from collections import deque
from contextlib import aclosing

from anabranch import limits
from anabranch.errors import AlreadyClosed, StoreFailed, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.notifications import events_of
from anabranch.metadata.oxia.positions import Position
from anabranch.metadata.paths import ROOT, is_within
from anabranch.metadata.store import Event, EventKind
from anabranch.metadata.watching import Readership, Watch
from anabranch.runtime.channels import CallFailed


async def events_between(feed: Feed, since: Position) -> list[Event] | None:
    """The changes after a position up to where this process began to follow; None for a gap.

    Shard after shard: between shards there is no order, but each point on the way is a position
    from which one can go on.

    Raises:
        CallFailed: if a server is away before it has told all of them.
    """
    end = feed.begin_position
    if any(there > here for there, here in zip(since.offsets, end.offsets, strict=True)):
        return None
    events: list[Event] = []
    position = since
    for place in [since.place, *(p for p in range(len(end.offsets)) if p != since.place)]:
        if position.offsets[place] == end.offsets[place]:
            continue
        found = await _shard_events(feed, place, position, end.offsets[place])
        if found is None:
            return None
        events += found
        offsets = list(position.offsets)
        offsets[place] = end.offsets[place]
        position = Position(tuple(offsets))
    return events


async def _shard_events(
    feed: Feed, place: int, position: Position, last_offset: int
) -> list[Event] | None:
    link = feed.links[place]
    offset = position.offsets[place]
    # The server keeps a batch per log entry; if that of our own place is gone, so may be others.
    if offset >= 0 and not await link.keys_in(keys.notifications_at(offset), internal=True):
        return None
    later = await link.keys_in(keys.notifications_after(offset), internal=True)
    last_offset = min(last_offset, keys.offset_of_notifications(later[-1])) if later else offset
    request = pb.NotificationsRequest(shard=link.number, start_offset_exclusive=offset)
    events: list[Event] = []
    skip = position.seen if position.place == place else 0
    stream = link.stream("GetNotifications", request, pb.NotificationBatch)
    async with aclosing(stream) as batches:  # type: ignore[type-var]
        while offset < last_offset:
            batch = await anext(batches, None)
            if batch is None:
                raise CallFailed("UNAVAILABLE", "the server tells of no more changes")
            if batch.offset > last_offset:
                break
            offsets = list(position.offsets)
            offsets[place] = offset
            found = events_of(feed.epoch, tuple(offsets), place, batch)
            if found is None:
                return None
            events += found[skip:]
            skip = 0
            offset = batch.offset
    return events


class ResumedWatch:
    """An endless iterator over the changes below one path. One reader at a time."""

    def __init__(
        self, feed: Feed, readership: Readership, prefix: str, position: Position | None
    ) -> None:
        self._feed = feed
        self._readership = readership
        self._prefix = prefix
        self._position = position
        self._begin = feed.begin
        self._older: deque[Event] = deque()
        self._stream: Watch | None = None

    def __aiter__(self) -> "ResumedWatch":
        return self

    async def __anext__(self) -> Event:
        while self._stream is None:
            try:
                known = self._position
                events = None if known is None else await events_between(self._feed, known)
            except (CallFailed, Unreachable):
                # The server is away; changes are told when it is back.
                await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MAX)
                continue
            except AlreadyClosed:
                raise StopAsyncIteration from None
            except StoreFailed:
                events = None  # the shards of that position are gone
            self._follow(events)
        while self._older:
            event = self._older.popleft()
            if event.kind is EventKind.GAP or is_within(self._prefix, event.path):
                return event
        return await anext(self._stream)

    def _follow(self, events: list[Event] | None) -> None:
        history = self._feed.history
        if events is None or not history.reaches(self._begin):
            events = [Event(EventKind.GAP, ROOT, history.newest)]
            self._begin = history.newest
        self._older.extend(events)
        self._stream = history.watch(self._prefix, self._begin, self._readership)
