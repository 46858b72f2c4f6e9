"""Puts and deletes of nodes, made of Oxia's operations on single keys.

Oxia knows no parents, no owners that outlast a put, and no write that depends on another key. So a
write looks first and is then conditional on what it saw; it is tried again if that changed. Two
things are left that only a server could close: a child put while its parent is being deleted stays
without a parent, and a guard that is replaced between the look and the write does not stop it. The
second is what `Fencing.LEASE` says: the write is acknowledged only if the writer's lease still
runs after the answer.
"""

import asyncio
from contextlib import suppress

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    BadVersion,
    ConflictError,
    Fenced,
    InputError,
    InvalidPath,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    SessionExpired,
    StoreFailed,
    Unreachable,
)
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.keys import escape_index, sequence_key
from anabranch.metadata.oxia.nodes import (
    Found,
    found_from,
    found_from_version,
    mismatch,
    stat_from,
)
from anabranch.metadata.oxia.occupancy import Occupancy
from anabranch.metadata.oxia.requests import ABSENT_VERSION
from anabranch.metadata.oxia.sessions import SessionKeeper
from anabranch.metadata.paths import ROOT, ancestors_of, parent_of
from anabranch.metadata.store import (
    Condition,
    Delete,
    Guard,
    IndexKey,
    Operation,
    Put,
    Stat,
)
from anabranch.runtime import Clock


def index_messages(indexes: tuple[IndexKey, ...]) -> list[pb.SecondaryIndex]:
    """Secondary index keys as the server takes them."""
    return [
        pb.SecondaryIndex(
            index_name=escape_index(entry.index), secondary_key=escape_index(entry.key)
        )
        for entry in indexes
    ]


class Writer:
    """Carries out single writes; many at a time share requests."""

    def __init__(
        self,
        client: OxiaClient,
        feed: Feed,
        sessions: SessionKeeper,
        occupancy: Occupancy,
        clock: Clock,
    ) -> None:
        self._client = client
        self._feed = feed
        self._sessions = sessions
        self._occupancy = occupancy
        self._clock = clock
        self._remembered: dict[str, Found] = {}
        self._making: dict[str, asyncio.Task[AnabranchError | None]] = {}

    async def carry_out(self, operation: Operation) -> Stat | None:
        """Put or delete, under its guard."""
        session = self._sessions.number
        if operation.guard is not None:
            await self._check_guard(operation.guard)
        if isinstance(operation, Put):
            stat = await (
                self._put_next(operation) if operation.sequential else self._put(operation)
            )
        else:
            stat = None
            await self._delete(operation)
        if operation.guard is not None:
            self._check_lease(operation.path, session)
        return stat

    async def look(self, path: str, *, value: bool = False) -> Found | None:
        """What is at a path now."""
        return found_from(path, await self._client.get(path, value=value))

    async def _check_guard(self, guard: Guard) -> None:
        found = await self.look(guard.path)
        if found is None:
            raise Fenced(f"the guard {guard.path} is gone: this writer was replaced")
        if found.version != guard.version:
            raise Fenced(
                f"the guard {guard.path} is at {found.version}, this writer knows "
                f"{guard.version}: it was replaced"
            )

    def _check_lease(self, path: str, session: int) -> None:
        """Make sure that the session in which a write began still runs; another does not count."""
        lease = self._sessions.lease
        margin_s = limits.LEASE_DRIFT_SHARE_MAX * lease.timeout_s
        if (
            self._sessions.number != session
            or self._clock.monotonic_s() >= self._sessions.valid_until_s - margin_s
        ):
            raise OutcomeUnknown(
                f"{path}: the lease ran out before the answer came; the write may be there, but "
                "its writer may have been replaced before"
            )

    # --- put ----------------------------------------------------------------------------------

    async def _put(self, put: Put) -> Stat:
        for _ in range(limits.OXIA_WRITE_TRIES_MAX):
            found = self._recall(put)
            if found is None and (put.expected is not Condition.ABSENT or put.path == ROOT):
                found = await self.look(put.path)
            if (refusal := mismatch(put.path, found, put.expected)) is not None:
                raise refusal
            if found is None:
                await self._ensure_parents(put.path)
            stat = await self._try_put(put, put.path, found)
            if stat is not None:
                return stat
            if put.expected is not Condition.ANY:
                raise BadVersion(put.path, "somebody else was first")
        raise ConflictError(f"{put.path} changes too often to be written")

    def _recall(self, put: Put) -> Found | None:
        """What the node was when this client last saw it, once, if the put may rely on it.

        The write is conditional on it: if it is not so any more, nothing happens.
        """
        found = self._remembered.pop(put.path, None)
        if found is None or put.expected is Condition.ANY or put.expected == found.version:
            return found
        return None

    def remember(self, path: str, found: Found) -> None:
        """Keep what a node was when it was last read or written; see `_recall`."""
        self._remembered[path] = found
        if len(self._remembered) > limits.OXIA_REMEMBERED_NODES_MAX:
            del self._remembered[next(iter(self._remembered))]

    async def _try_put(self, put: Put, path: str, found: Found | None) -> Stat | None:
        """Write if the node still is as it was found; None if it is not."""
        link = self._client.link_of(path)
        request = pb.PutRequest(key=path, value=put.value)
        if put.indexes:
            request.secondary_indexes.extend(index_messages(put.indexes))
        request.expected_version_id = ABSENT_VERSION
        if found is not None and found.written:
            request.expected_version_id = found.version.life
            if found.session_id is not None:
                request.session_id = found.session_id
                request.client_identity = found.identity or ""
        elif found is None and put.ephemeral:
            session_id = self._sessions.id_on(link.number)
            if session_id is None:
                raise SessionExpired(f"{path}: the session that should own this node has ended")
            request.session_id = session_id
            request.client_identity = self._sessions.identity
        answer, revision = await link.write(request, self._feed.places.answered)
        if answer.status == pb.SESSION_DOES_NOT_EXIST and found is None:
            raise SessionExpired(f"{path}: the session that should own this node has ended")
        if revision is None:
            return None
        written = found_from_version(answer.version)
        self.remember(path, written)
        return stat_from(path, written, revision, self._sessions.number)

    async def _put_next(self, put: Put) -> Stat:
        parent = parent_of(f"{put.path}0")
        await self._ensure_parents(f"{put.path}0")
        for _ in range(limits.OXIA_WRITE_TRIES_MAX):
            path = f"{put.path}{await self._next_number(parent):010}"
            stat = await self._try_put(put, path, None)
            if stat is not None:
                return stat
        raise ConflictError(f"{put.path}: too many of the next names are taken")

    async def _next_number(self, parent: str) -> int:
        key = sequence_key(parent)
        answer: pb.PutResponse = await self._client.write(pb.PutRequest(key=key))
        number = answer.version.modifications_count
        found = await self.look(parent, value=True)
        if found is None or found.value or number > found.version.native:
            return number
        if found.version.native == 0:
            return number
        # Pulsar counts an empty parent's own changes: it may have given out this number.
        raised = pb.PutRequest(
            key=key,
            expected_version_id=answer.version.version_id,
            override_modifications_count=found.version.native,
        )
        await self._client.write(raised)
        return await self._next_number(parent)

    # --- parents ------------------------------------------------------------------------------

    async def _ensure_parents(self, path: str) -> None:
        parent = parent_of(path)
        if parent == ROOT or parent in self._feed.lasting:
            return
        deletions = self._feed.deletions
        above = await self.look(parent)
        if above is not None:
            self._refuse_owned(path, parent, above)
            if deletions == self._feed.deletions:
                self._feed.lasting[parent] = None
                if len(self._feed.lasting) > limits.OXIA_REMEMBERED_NODES_MAX:
                    del self._feed.lasting[next(iter(self._feed.lasting))]
            return
        ancestors = list(ancestors_of(path))
        found = await asyncio.gather(*map(self.look, ancestors))
        for ancestor, state in zip(ancestors, found, strict=True):
            if state is not None:
                self._refuse_owned(path, ancestor, state)
        missing = [a for a, state in zip(ancestors, found, strict=True) if state is None]
        if len(self._client.links) == 1:
            # One log: sent in order is made in order.
            await asyncio.gather(*map(self._make_parent, missing))
        else:
            for ancestor in missing:
                await self._make_parent(ancestor)

    def _refuse_owned(self, path: str, ancestor: str, found: Found) -> None:
        if found.session != NOBODY:
            raise InputError(f"{path}: {ancestor} is ephemeral and can have no children")

    async def _make_parent(self, path: str) -> None:
        making = self._making.get(path)
        if making is None:
            making = self._client.tasks.spawn("oxia-parent", self._put_parent(path))
            self._making[path] = making
            making.add_done_callback(lambda _: self._making.pop(path, None))
        if (failure := await asyncio.shield(making)) is not None:
            raise failure

    async def _put_parent(self, path: str) -> AnabranchError | None:
        """Put an empty node unless there is one; the reason if that failed."""
        try:
            request = pb.PutRequest(key=path, expected_version_id=ABSENT_VERSION)
            await self._client.link_of(path).write(request, self._feed.places.answered)
        except AnabranchError as failure:
            return failure
        return None

    # --- delete -------------------------------------------------------------------------------

    async def _delete(self, delete: Delete) -> None:
        path = delete.path
        if path == ROOT:
            raise InvalidPath("the root '/' cannot be deleted")
        for _ in range(limits.OXIA_WRITE_TRIES_MAX):
            found, occupied = await asyncio.gather(self.look(path), self._occupancy.of(path))
            if found is None:
                raise NotFound(f"no node at {path}")
            if (refusal := mismatch(path, found, delete.expected)) is not None:
                raise refusal
            if occupied:
                raise NotEmpty(f"{path} has children: delete them first")
            request = pb.DeleteRequest(key=path, expected_version_id=found.version.life)
            answer: pb.DeleteResponse = await self._client.write(request)
            if answer.status == pb.OK:
                self._feed.deleted(path)
                # It is deleted, whether or not its notification can be waited for.
                with suppress(Unreachable, AlreadyClosed, StoreFailed):
                    await self._feed.catch_up(self._client.place_of(path))
                return
        raise ConflictError(f"{path} changes too often to be deleted")
