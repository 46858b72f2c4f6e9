"""Follows the notifications of all shards and makes one history of them.

Each shard is followed from an offset, again from the same after every break, so nothing is missed
as long as the server keeps it; if it did not, the history has a gap.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    ProtocolError,
    StoreFailed,
    Unreachable,
)
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.notifications import PUTS, events_at, in_order, is_pulse
from anabranch.metadata.oxia.placing import Places
from anabranch.metadata.oxia.positions import (
    Position,
    epoch_of,
    position_of,
    revision_of,
)
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.store import EventKind, Revision
from anabranch.metadata.watching import EventHistory
from anabranch.runtime.channels import CallFailed
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("oxia-feed")
_BULK_CHANGES_MIN = 64
"""Changes in one log entry, from which on they count as many."""


def _abandon(future: asyncio.Future[None], _: object = None) -> None:
    if not future.done():
        future.set_exception(AlreadyClosed("the metadata store was closed"))
        future.exception()


class Feed:
    """The history of changes as this client sees it."""

    def __init__(
        self, links: Sequence[ShardLink], tasks: Tasks, history: EventHistory | None = None
    ) -> None:
        """With a history, that of other shards goes on, after a gap."""
        self.links = links
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self.epoch = epoch_of([link.number for link in links])
        self._offsets: list[int | None] = [None] * len(links)
        self._changed = [-1] * len(links)
        self._missed = [False] * len(links)
        self._broke: dict[int, str] = {}
        self._early: list[tuple[int, pb.NotificationBatch]] = []
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.history = history or EventHistory(Revision(self.epoch, 0))
        self.begin = Revision(self.epoch, 0)
        """Where the history begins; what was written before it has no place of its own."""
        self.begin_position = Position((-1,) * len(links))
        self.lasting: dict[str, None] = {}
        """Nodes without an owner that were seen lately, and not told to be deleted since."""
        self.deletions = 0
        """How many were told: what was read before one may be out of date."""
        self.bulk_writers = 0
        """How many write whole trees, each change of which only those need to know who watch."""
        self._settled = [-1] * len(links)
        self.places = Places(self._loop)
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._catching_up: dict[int, asyncio.Future[None]] = {}

    async def open(self) -> None:
        """Find out where every shard is, and follow from there.

        Raises:
            Unreachable: if one of them does not say in time.
        """
        for place in range(len(self.links)):
            self._tasks.spawn(f"oxia-feed-{place}", self._follow(place))
        try:
            async with asyncio.timeout(limits.OXIA_OPEN_S_MAX):
                await asyncio.shield(self._opened)
        except TimeoutError:
            place = self._offsets.index(None)
            reason = self._broke.get(place, "no answer")
            raise Unreachable(
                f"Oxia's shard {self.links[place].number} tells nothing of its changes: {reason}"
            ) from None
        answers = await asyncio.gather(
            *(
                link.get(pb.GetRequest(key=keys.LAST_VERSION, include_value=True))
                for link in self.links
            )
        )
        for place, answer in enumerate(answers):
            if answer.status == pb.OK and answer.value.isdigit():
                self._settled[place] = int(answer.value)

    def close(self, error: AnabranchError | None = None) -> None:
        """Let nobody wait any longer."""
        error = error or AlreadyClosed("the metadata store was closed")
        waiting: list[asyncio.Future[Any]] = [item[2] for item in self._awaited]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()
        self.places.close()

    # --- following ----------------------------------------------------------------------------

    async def _follow(self, place: int) -> None:
        link = self.links[place]
        while link.over is None:
            offset = None if self._missed[place] else self._offsets[place]
            request = pb.NotificationsRequest(shard=link.number, start_offset_exclusive=offset)
            stream = link.stream("GetNotifications", request, pb.NotificationBatch)
            try:
                async for batch in stream:
                    self._take(place, batch)
            except CallFailed as error:
                self._broke[place] = str(error)
                _log.info("oxia_feed_broke", shard=link.number, reason=str(error))
            except ProtocolError as error:
                self._broke[place] = str(error)
                _log.warning("oxia_feed_unreadable", shard=link.number, reason=str(error))
            await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MIN)
            await self._check_gap(place)

    async def _check_gap(self, place: int) -> None:
        """After a break: if the server forgot where we are, it may have forgotten more.

        Until it says so nothing can be followed: it would go on behind what it forgot.
        """
        link, offset = self.links[place], self._offsets[place]
        if offset is None or self._missed[place]:
            return
        while link.over is None:
            try:
                here = await link.keys_in(keys.notifications_at(offset), internal=True)
            except (AlreadyClosed, StoreFailed):
                return
            except (Unreachable, ProtocolError) as error:
                _log.warning("oxia_feed_unchecked", shard=link.number, reason=str(error))
                await asyncio.sleep(limits.METADATA_RECONNECT_DELAY_S_MIN)
            else:
                self._missed[place] = not here  # the next marker says where to go on
                return

    def _take(self, place: int, batch: pb.NotificationBatch) -> None:
        if not self._opened.done():
            self._take_early(place, batch)
        elif self._missed[place]:
            self._missed[place] = False
            self._offsets[place] = batch.offset
            self._forget()
        elif batch.offset > self._offset(place):
            self._publish(place, batch)
        self._reached(place)

    def _take_early(self, place: int, batch: pb.NotificationBatch) -> None:
        if self._offsets[place] is None:
            self._offsets[place] = batch.offset
        else:
            self._early.append((place, batch))
        if None in self._offsets:
            return
        self._opened.set_result(None)
        self._begin_here()
        for early_place, early in self._early:
            self._publish(early_place, early)
        self._early.clear()

    @property
    def _position(self) -> Position:
        return Position(tuple(map(self._offset, range(len(self.links)))))

    def _offset(self, place: int) -> int:
        offset = self._offsets[place]
        return -1 if offset is None else offset

    @property
    def moment(self) -> Revision:
        """How far every shard was when anything but the pulse of a session was last written."""
        return revision_of(self.epoch, Position(tuple(self._changed)))

    def _begin_here(self) -> None:
        self.begin_position = self._position
        self._changed = list(self.begin_position.offsets)
        self.begin = revision_of(self.epoch, self.begin_position)
        self.history.forget(self.begin)

    def _publish(self, place: int, batch: pb.NotificationBatch) -> None:
        many = len(batch.notifications) >= _BULK_CHANGES_MIN
        if many and self.bulk_writers and not self.history.watched:
            self._pass_over(place, batch)
            return
        if not is_pulse(batch):
            self._changed[place] = batch.offset
        entries = in_order(batch)
        events = events_at(self.epoch, self._position.offsets, place, batch.offset, entries)
        self._offsets[place] = batch.offset
        if events is None:
            self._forget()
            return
        for entry, event in zip(entries, events, strict=True):
            if event.kind is EventKind.DELETED:
                self.deleted(event.path)
            else:
                self.places.learn((event.path, entry.version), event.revision)
        self.history.publish(events)

    def _pass_over(self, place: int, batch: pb.NotificationBatch) -> None:
        """Note what was written, and let those who ask later what happened find a gap."""
        self._offsets[place] = batch.offset
        self._begin_here()
        for entry in batch.notifications:
            kind = entry.value.type
            if kind in PUTS:
                self.places.learn((entry.key, entry.value.version_id), self.begin)
            elif kind == pb.KEY_DELETED:
                self.deleted(entry.key)
            else:
                self._forget()

    def deleted(self, path: str) -> None:
        """This client deleted a node; the notification may take its time."""
        self.deletions += 1
        self.lasting.pop(path, None)

    def _forget(self) -> None:
        self.deletions += 1
        self.lasting.clear()
        self._begin_here()
        self.places.settle(self.begin)

    # --- being up to date ---------------------------------------------------------------------

    def _reached(self, place: int) -> None:
        offset = self._offset(place)
        if not self._awaited:
            return
        still: list[tuple[int, int, asyncio.Future[None]]] = []
        for item in self._awaited:
            if item[0] == place and item[1] <= offset:
                if not item[2].done():
                    item[2].set_result(None)
            else:
                still.append(item)
        self._awaited = still

    def catch_up(self, place: int) -> asyncio.Future[None]:
        """Wait until the history has whatever a shard had committed when this was called.

        Those who call in the same turn of the loop share the question.
        """
        future = self._catching_up.get(place)
        if future is None:
            future = self._catching_up[place] = self._loop.create_future()
            self._loop.call_soon(self._start_catching_up, place, future)
        return asyncio.shield(future)

    def _start_catching_up(self, place: int, future: asyncio.Future[None]) -> None:
        del self._catching_up[place]
        if self._tasks.closed:
            _abandon(future)
        else:
            catching_up = self._tasks.spawn("oxia-catch-up", self._catch_up(place, future))
            catching_up.add_done_callback(partial(_abandon, future))

    async def _catch_up(self, place: int, future: asyncio.Future[None]) -> None:
        try:
            later = await self.links[place].keys_in(
                keys.notifications_after(self._offset(place)), internal=True
            )
            if later:
                reached: asyncio.Future[None] = self._loop.create_future()
                self._awaited.append((place, keys.offset_of_notifications(later[-1]), reached))
                self._reached(place)
                await reached
        except AnabranchError as error:
            if not future.done():
                future.set_exception(error)
                future.exception()
        else:
            if not future.done():
                future.set_result(None)

    async def catch_up_all(self) -> None:
        """`catch_up` with every shard."""
        await asyncio.gather(*(self.catch_up(place) for place in range(len(self.links))))

    # --- where writes stand -------------------------------------------------------------------

    def known_revision(self, place: int, key: str, version: int) -> Revision | None:
        """The place in history of a write found in the store; None if it may be told yet.

        Of one that this client did not see happen it is the beginning of its history, which is
        later than the write and earlier than anything that will be told.
        """
        known = self.places.known((key, version))
        return self.begin if known is None and version <= self._settled[place] else known

    async def revision_of(self, place: int, key: str, version: int) -> Revision:
        """As `known_revision`, of any write found in the store."""
        known = self.known_revision(place, key, version)
        if known is not None:
            return known
        await self.catch_up(place)
        self._settled[place] = max(self._settled[place], version)
        return self.places.known((key, version)) or self.begin

    def knows(self, revision: Revision) -> bool:
        """Whether a revision is a point of this very history, and all that followed is known.

        One that another process gave out need not be, even if its number lies between two of ours.
        """
        if revision == self.begin:
            return self.history.reaches(revision)
        number = self.history.number_after(revision)
        before = self.history.event_at(number - 1) if number > 0 else None
        return before is not None and before.revision == revision

    def position(self, revision: Revision) -> Position | None:
        """What a revision says of each shard; None for one of another history."""
        return position_of(revision, self.epoch, len(self.links))
