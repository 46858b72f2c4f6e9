"""Planted bugs of the metadata store on ZooKeeper."""

from typing import Any

from anabranch.metadata.store import Guard, Put, Stat, Version
from anabranch.metadata.zookeeper import jute
from anabranch.metadata.zookeeper.naming import EPOCH
from anabranch.metadata.zookeeper.replies import Code, Refusal, ZStat
from anabranch.metadata.zookeeper.walking import Walk
from anabranch.metadata.zookeeper.writing import Writer
from anabranch.testing.planted import original, planted

_WRITER = "anabranch.metadata.zookeeper.writing:Writer"


@planted("own_node_is_anybodys", target=f"{_WRITER}._stat_bound")
async def own_node_is_anybodys(
    self: Writer, path: str, version: Version
) -> tuple[ZStat | None, bool, None]:
    """A write to a node of our session is sent in the next session, too."""
    return *await self._stat_if(path, version), None


@planted("guard_is_not_looked_at_again", target=f"{_WRITER}._still_lives")
async def guard_is_not_looked_at_again(self: Writer, guard: Guard) -> bool:
    """A guard that was made anew with the same number passes for the old one."""
    del self, guard
    return True


@planted("node_without_keys_counts_as_refused", target=f"{_WRITER}._give_keys")
async def node_without_keys_counts_as_refused(
    self: Writer, path: str, put: Put, made: ZStat, session: int | None
) -> Stat:
    """A sequential node that was made, and got no keys, is told to be refused."""
    version = Version(EPOCH, made.version, made.czxid)
    again = Put(path, put.value, version, indexes=put.indexes, guard=put.guard)
    return await self._put_over(again, version, session)


@planted("zk_refused_parents_are_missing", target=f"{_WRITER}._is_there")
async def zk_refused_parents_are_missing(self: Writer, path: str, refusal: Refusal) -> bool:
    """Who may make nothing at the top of a tree can make no parents deep in it."""
    del self, path
    return refusal.code == Code.NODE_EXISTS


@planted("zk_batches_must_make_nodes", target=f"{_WRITER}._create")
async def zk_batches_must_make_nodes(
    self: Writer, put: Put, session: int | None, *, may_be_there: bool = False
) -> Stat | None:
    """In a batch, a node that is there is written only by who could make it."""
    del may_be_there
    stat: Stat | None = await original("zk_batches_must_make_nodes")(self, put, session)
    return stat


@planted("zk_pages_stay_too_large", target="anabranch.metadata.zookeeper.walking:Walk._shrink")
def zk_pages_stay_too_large(self: Walk[Any]) -> bool:
    """Large nodes that follow small ones are too much for one answer, and that is the end."""
    del self
    return False


@planted("zk_unreadable_keys_are_none", target="anabranch.metadata.zookeeper.indexing:_check_gone")
def zk_unreadable_keys_are_none(refusal: Refusal, path: str) -> None:
    """A node whose index keys may not be read has none, in an export as in a search."""
    del refusal, path


@planted("lengths_are_believed", target="anabranch.metadata.zookeeper.jute:Reader.buffer")
def lengths_are_believed(self: jute.Reader) -> bytes:
    """A value is as long as its server says, whether the bytes are there or not."""
    length = self.integer()
    found = self.data[self.at : self.at + length]
    self.at += length
    return found
