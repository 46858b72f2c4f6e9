"""Planted bugs of locks, elections, caches and counters in `anabranch.metadata`."""

from typing import Any

from anabranch.errors import BadVersion, NotFound, OutcomeUnknown
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.counters import BlockCounter, SequentialCounter
from anabranch.metadata.election import Election
from anabranch.metadata.election_machine import Happened, Standing, Then, Turn
from anabranch.metadata.lease import Lease
from anabranch.metadata.lock_machine import LockMachine, LockState, Step
from anabranch.metadata.locks import Lock
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Event,
    EventKind,
    Expected,
    Node,
    Revision,
    SessionEvent,
    Stat,
)
from anabranch.testing.planted import original, planted


@planted("held_ignores_lease", target="anabranch.metadata.lease:Lease.runs")
def held_ignores_lease(self: Lease, session: int) -> bool:
    """A holder relies on its session until somebody tells it otherwise."""
    return self._store.session == session


@planted("release_without_version", target="anabranch.metadata.locks:Lock._remove")
async def release_without_version(self: Lock, _step: Step) -> bool:
    """A release removes whatever lock is there, also somebody else's."""
    try:
        await self._store.delete(self.path, ANY)
    except (NotFound, BadVersion):
        return True
    return True


@planted("token_reused", target="anabranch.metadata.lock_machine:LockMachine.created")
def token_reused(self: LockMachine, stat: Stat) -> Step | None:
    """The token is that of the node's own versions, which begin anew with each life."""
    step: Step | None = original("token_reused")(self, stat)
    self._token = Revision(stat.version.epoch, stat.version.native)
    return step


@planted("token_is_a_revision", target="anabranch.metadata.lock_machine:LockMachine.created")
def token_is_a_revision(self: LockMachine, stat: Stat) -> Step | None:
    """The token is a point of history, of which two clients may have another view."""
    step: Step | None = original("token_is_a_revision")(self, stat)
    self._token = stat.revision
    return step


@planted("guard_skipped", target="anabranch.metadata.locks:Lock.guard")
def guard_skipped(self: Lock) -> Any:
    """A write under a lock names no guard."""
    del self


@planted(
    "trusts_value_of_other_session", target="anabranch.metadata.lock_machine:LockMachine.found"
)
def trusts_value_of_other_session(self: LockMachine, node: Node | None) -> Step | None:
    """Whoever finds its own name in a node takes it for its own, whatever session it is of."""
    if node is None or node.value != self.value:
        step: Step | None = original("trusts_value_of_other_session")(self, node)
        return step
    self.state, self._stat = LockState.HELD, node.stat
    self._token = Revision(node.stat.version.epoch, node.stat.version.life)
    return None


@planted("busy_lock_is_taken_over", target="anabranch.metadata.lock_machine:judge")
def busy_lock_is_taken_over(node: Node | None, value: bytes) -> Any:
    """Any ephemeral node is taken for a leftover of one's own."""
    return original("busy_lock_is_taken_over")(node, node.value if node is not None else value)


@planted("deletion_is_not_heard", target="anabranch.metadata.lock_machine:LockMachine.changed")
def deletion_is_not_heard(self: LockMachine, event: Event) -> Step | None:
    """A holder does not listen to the deletion of its node."""
    if event.kind is EventKind.DELETED:
        return None
    step: Step | None = original("deletion_is_not_heard")(self, event)
    return step


@planted(
    "session_loss_is_not_heard",
    target="anabranch.metadata.lock_machine:LockMachine.session_changed",
)
def session_loss_is_not_heard(
    self: LockMachine, _event: SessionEvent, *, same_session: bool
) -> Step | None:
    """A holder does not listen to what happens to its session."""
    del same_session
    return None


@planted("own_write_not_seen", target="anabranch.metadata.cache:MetadataCache.put")
async def own_write_not_seen(
    self: MetadataCache[Any], path: str, value: Any, expected: Expected = ANY
) -> Stat:
    """A write goes past the cache, which learns of it when the watch tells."""
    return await self._store.put(path, self._encode(value), expected)


@planted("gap_keeps_cache", target="anabranch.metadata.cache:MetadataCache.invalidate_all")
def gap_keeps_cache(self: MetadataCache[Any]) -> None:
    """After a gap in the watch old entries are served on."""
    del self


@planted("cache_ignores_watch", target="anabranch.metadata.cache:MetadataCache._changed")
def cache_ignores_watch(self: MetadataCache[Any], event: Event) -> None:
    """What others write is never heard of."""
    del self, event


@planted("unknown_block_is_used", target="anabranch.metadata.counters:BlockCounter._advance")
async def unknown_block_is_used(self: BlockCounter, floor: int, count: int) -> int:
    """A block whose reservation was not answered is handed out."""
    node = await self._store.get(self._path)
    following = self._first if node is None else self._decode(node.value)
    end = max(following, floor) + count
    expected: Expected = ABSENT if node is None else node.stat.version
    guard = None if self._guard is None else self._guard()
    try:
        await self._store.put(self._path, self._encode(end), expected, guard=guard)
    except BadVersion:
        return await unknown_block_is_used(self, floor, count)
    except OutcomeUnknown:
        return end
    return end


@planted("update_ignores_version", target="anabranch.metadata.cache:MetadataCache.put")
async def update_ignores_version(
    self: MetadataCache[Any], path: str, value: Any, expected: Expected = ANY
) -> Stat:
    """A read-modify-update writes over what others wrote meanwhile."""
    del expected
    stat: Stat = await original("update_ignores_version")(self, path, value)
    return stat


@planted(
    "old_entries_are_read_while_cut_off", target="anabranch.metadata.cache:MetadataCache._fresh"
)
def old_entries_are_read_while_cut_off(self: MetadataCache[Any], entry: Any) -> Any:
    """An old entry is read again although nobody can answer."""
    connected, self._connected = self._connected, True
    try:
        return original("old_entries_are_read_while_cut_off")(self, entry)
    finally:
        self._connected = connected


@planted("follower_never_tries_again", target="anabranch.metadata.election_machine:turn")
def follower_never_tries_again(standing: Standing, happened: Happened) -> Turn:
    """Whoever was beaten once does not notice that the leader is gone."""
    if happened is Happened.VACANT:
        return Turn(Standing.FOLLOWING, Then.STOP)
    found: Turn = original("follower_never_tries_again")(standing, happened)
    return found


@planted("resigned_leader_stays", target="anabranch.metadata.election:Election.resign")
async def resigned_leader_stays(self: Election) -> None:
    """A leader that resigns keeps its lock."""
    self._lock = None
    await original("resigned_leader_stays")(self)


@planted("tickets_are_counted", target="anabranch.metadata.counters:SequentialCounter.next")
async def tickets_are_counted(self: SequentialCounter) -> int:
    """A number is how many others there are, instead of what the store drew."""
    folder = self._prefix.rpartition("/")[0]
    stat = await self._store.put(self._prefix, b"", ephemeral=True, sequential=True)
    number = len(await self._store.children(folder))
    await self._store.delete(stat.path)
    return number


@planted("block_is_not_reserved", target="anabranch.metadata.counters:BlockCounter._encode")
def block_is_not_reserved(self: BlockCounter, following: int) -> bytes:
    """A block is handed out before it is written that it was taken."""
    encoded: bytes = original("block_is_not_reserved")(self, following - self._block)
    return encoded
