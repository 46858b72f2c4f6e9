"""Planted bugs of the client for ZooKeeper, `anabranch.metadata.zookeeper`."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from anabranch.metadata.store import Revision
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper.connection import ServerConnection
from anabranch.metadata.zookeeper.link import Link
from anabranch.metadata.zookeeper.readers import Readers
from anabranch.metadata.zookeeper.replies import Change
from anabranch.metadata.zookeeper.session import Session
from anabranch.metadata.zookeeper.turns import Turns
from anabranch.testing.planted import original, planted


@planted("zk_any_answer_renews", target="anabranch.metadata.zookeeper.session:Session.answered")
def zk_any_answer_renews(self: Session, now_s: float) -> None:
    """An answer of a server counts at once, whatever the leader has heard of."""
    if self._unanswered:
        self._renewed_s = max(self._renewed_s, self._asked_s)
    original("zk_any_answer_renews")(self, now_s)


@planted(
    "zk_removals_side_by_side",
    target="anabranch.metadata.zookeeper.turns:Turns.at",
)
def zk_removals_side_by_side(self: Turns, path: str) -> Any:
    """Two writes of one client compare the same life, and the second hits the next one."""
    del self, path
    return nullcontext()


@planted("zk_doubt_is_forgotten", target="anabranch.metadata.zookeeper.turns:Turns.in_doubt")
def zk_doubt_is_forgotten(self: Turns) -> bool:
    """After a removal of unknown outcome, what any server shows is believed."""
    del self
    return False


@planted(
    "zk_watches_are_not_put_back",
    target="anabranch.metadata.zookeeper.connection:ServerConnection.rearm",
)
def zk_watches_are_not_put_back(
    self: ServerConnection, zxid_seen: int, persistent: Sequence[str], recursive: Sequence[str]
) -> None:
    """Watches are left behind with the connection that they were made on."""
    del self, zxid_seen, persistent, recursive


@planted(
    "zk_rearmed_watches_lose_a_change", target="anabranch.metadata.zookeeper.link:Link.changed"
)
def zk_rearmed_watches_lose_a_change(self: Link, changes: list[Change]) -> None:
    """What is told first on each later connection is passed over, with no gap for it."""
    assert self._connection is not None
    before = vars(self).setdefault("_told_on", self._connection)
    vars(self)["_told_on"] = self._connection
    if before is self._connection:
        original("zk_rearmed_watches_lose_a_change")(self, changes)


@planted("zk_rearmed_watches_tell_twice", target="anabranch.metadata.zookeeper.link:Link.changed")
def zk_rearmed_watches_tell_twice(self: Link, changes: list[Change]) -> None:
    """Once watches were put back, each change is told by the old and by the new one."""
    assert self._connection is not None
    first = vars(self).setdefault("_told_on", self._connection)
    twice = changes if first is self._connection else [one for one in changes for _ in range(2)]
    original("zk_rearmed_watches_tell_twice")(self, twice)


@planted("zk_lost_writes_are_repeated", target="anabranch.metadata.zookeeper.link:Link._detached")
def zk_lost_writes_are_repeated(self: Link, connection: ServerConnection) -> None:
    """A write whose answer was lost is sent again, as if it had not been carried out."""
    if self._connection is connection:
        lost = connection.take_unanswered()
        original("zk_lost_writes_are_repeated")(self, connection)
        self._queue.extendleft(call for call in reversed(lost) if not call.once)


@planted(
    "zk_answers_go_to_the_newest",
    target="anabranch.metadata.zookeeper.connection:ServerConnection.send",
)
def zk_answers_go_to_the_newest(self: ServerConnection, calls: Any) -> None:
    """Of two requests that are under way, each gets the answer to the other."""
    original("zk_answers_go_to_the_newest")(self, calls)
    if len(self._sent) > 1:
        (first, one), (second, two) = self._sent[-2], self._sent[-1]
        if one.request.read is two.request.read:
            self._sent[-2], self._sent[-1] = (first, two), (second, one)


@planted(
    "zk_readers_show_the_past",
    target="anabranch.metadata.zookeeper.readers:Readers.catch_up",
)
async def zk_readers_show_the_past(self: Readers) -> None:
    """Access rights are those of whenever the readers' servers heard from their leader."""
    del self


@planted(
    "zk_readers_begin_too_late",
    target="anabranch.metadata.transfer.sources:StoreSource.moment",
)
async def zk_readers_begin_too_late(self: StoreSource) -> Revision:
    """Sessions of our own look like somebody's writes, and the source is read once more."""
    moment = await self._store.moment()
    await original("zk_readers_begin_too_late")(self)
    return moment
