"""One write of the contract as ZooKeeper's operations: what to send, and what a refusal means.

ZooKeeper compares a version only, which begins anew in each life of a node. So a token's life is
compared here, by reading, before the server compares its version. What can happen between the two
is told in `docs/internals/zookeeper.md`.
"""

import asyncio
from typing import Final, TypeVar

from anabranch import limits
from anabranch.errors import (
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
)
from anabranch.metadata.paths import ROOT, ancestors_of, join, parent_of
from anabranch.metadata.store import ABSENT, ANY, Delete, Guard, Operation, Put, Stat, Version
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.naming import EPOCH, HIDDEN_PREFIX, stat_of
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Code, Part, Refusal, ZStat
from anabranch.metadata.zookeeper.requests import Flag, Request
from anabranch.metadata.zookeeper.turns import Turns
from anabranch.runtime import Entropy

T = TypeVar("T")
_NATIVE_END: Final = 2**31
_ROLLED_BACK: Final = (Code.OK, Code.RUNTIME_INCONSISTENCY)
"""What a multi says of operations that failed only because another did."""


class Writer:
    """Carries out writes."""

    def __init__(self, client: ZooKeeperClient, indexes: IndexNodes, entropy: Entropy) -> None:
        self._client = client
        self._indexes = indexes
        self._entropy = entropy
        self.acl = client.new_acl
        self._turns = Turns()

    async def write(self, operation: Operation, *, create_first: bool = False) -> Stat | None:
        """Carry out a checked operation.

        Raises:
            AnabranchError: as `MetadataStore.put` and `delete` say.
        """
        try:
            if isinstance(operation, Delete):
                await self._delete(operation)
                return None
            return await self._put(operation, create_first)
        except Refusal as refusal:
            raise meaning(refusal, operation.path) from None

    # --- conditions ---------------------------------------------------------------------------

    async def _stat(self, path: str) -> ZStat | None:
        try:
            return await self._client.exists(path)
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                return None
            raise

    async def _stat_if(self, path: str, version: Version) -> tuple[ZStat | None, bool]:
        """The stat, and whether the node is in that life and version."""
        if version.epoch != EPOCH or not 0 <= version.native < _NATIVE_END:
            return await self._stat(path), False
        for fresh in (False, True):
            if fresh or self._turns.in_doubt():
                # This server may lag behind what the caller has seen, and what it has sent.
                await self._turns.settle(self._client.sync)
            stat = await self._stat(path)
            if stat and (stat.czxid, stat.version) == (version.life, version.native):
                return stat, True
        return stat, False

    async def _stat_bound(
        self, path: str, version: Version
    ) -> tuple[ZStat | None, bool, int | None]:
        """As `_stat_if`, and the session outside of which a write would meet another life.

        A node of our own session goes with it; whoever makes the next one begins at 0 again.
        """
        session = self._client.link.session.number
        stat, holds = await self._stat_if(path, version)
        return stat, holds, session if stat is not None and stat.owner == session else None

    async def _check_guard(self, guard: Guard | None) -> int | None:
        """Refuse a guard that does not hold; the session that a write under it is bound to."""
        if guard is None:
            return None
        stat, holds, session = await self._stat_bound(guard.path, guard.version)
        if stat is None:
            raise Fenced(f"the guard {guard.path} is gone: this writer was replaced")
        if not holds:
            raise _fenced(guard)
        return session

    async def _send(
        self,
        request: Request[T],
        guard: Guard | None,
        session: int | None,
        beside: tuple[Request[object], ...] = (),
    ) -> T:
        """Send a write with its guard, and with what has to happen in the same moment."""
        if guard is None and not beside:
            return await self._client.send(request, session=session)
        if guard is None:
            parts = await self._client.multi([request, *beside], session=session)
            return self._done(parts, None)
        answer, lives = await asyncio.gather(
            self._client.multi([_check(self._client, guard), request, *beside], session=session),
            self._still_lives(guard),
            return_exceptions=True,
        )
        if isinstance(answer, BaseException):
            raise answer
        done: T = self._done(answer, guard)
        if lives is not True:
            raise OutcomeUnknown(
                f"the guard {guard.path} was made anew while this was written, or cannot be read: "
                "the write may be there, but its writer may have been replaced before"
            )
        return done

    async def _still_lives(self, guard: Guard) -> bool:
        """Asked behind a write, on the same connection: a life that is over does not come back."""
        stat = await self._stat(guard.path)
        return stat is not None and stat.czxid == guard.version.life

    def _done(self, parts: list[Part], guard: Guard | None) -> T:  # type: ignore[type-var]
        """The answer to the write among the parts of a multi, or its refusal."""
        checks = 0 if guard is None else 1
        for place, part in enumerate(parts):
            if isinstance(part, Refusal) and part.code not in _ROLLED_BACK:
                if guard is not None and place == 0:
                    raise _fenced(guard)
                if place > checks and part.code in (Code.NO_NODE, Code.NODE_EXISTS):
                    self._indexes.look_again()
                    raise _BesideRefused
                raise part
        return parts[checks]  # type: ignore[return-value]

    # --- put ----------------------------------------------------------------------------------

    async def _put(self, put: Put, create_first: bool) -> Stat:
        self._check_size(put)
        session = await self._check_guard(put.guard)
        if put.ephemeral:
            session = self._client.link.session.number
        if put.sequential:
            return await self._put_next(put, session)
        if isinstance(put.expected, Version):
            return await self._put_over(put, put.expected, session)
        if put.path == ROOT and put.expected is ABSENT:
            raise BadVersion(ROOT, "the root is always there")
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            if put.expected is ANY and not create_first:
                found = await self._set(put, session)
                if found is not None:
                    return found
            if put.path != ROOT:
                found = await self._create(put, session, may_be_there=create_first)
                if found is not None:
                    return found
                if put.expected is ABSENT:
                    raise BadVersion(put.path, "it exists already")
            create_first = False
        raise ConflictError(f"others make and remove {put.path} all the time: nothing was written")

    def _check_size(self, put: Put) -> None:
        # The path is there twice with its index keys; 3 KiB are room for what has a fixed size.
        texts = [put.path, put.path, *(key.index + key.key for key in put.indexes)]
        if put.guard is not None:
            texts.append(put.guard.path)
        size_bytes = len(put.value) + 3 * sum(map(len, texts)) + 3 * limits.KIB
        if size_bytes > self._client.request_bytes_max:
            raise InputError(
                f"the value for {put.path} has {len(put.value)} bytes, ZooKeeper takes requests of "
                f"{self._client.request_bytes_max} bytes: raise jute.maxbuffer there and in the URL"
            )

    async def _put_over(self, put: Put, version: Version, session: int | None) -> Stat:
        async with self._turns.at(put.path):
            _, holds, own = await self._stat_bound(put.path, version)
            found = await self._set(put, session or own, version) if holds else None
        if found is None:
            raise BadVersion(put.path)
        if found.version.life != version.life:
            raise OutcomeUnknown(
                f"{put.path} was removed and made anew while it was written: read it"
            )
        return found

    async def _set(
        self, put: Put, session: int | None, version: Version | None = None
    ) -> Stat | None:
        native = -1 if version is None else version.native
        request = self._client.op_set(put.path, put.value, native)
        while True:
            beside = await self._indexes.beside(put.path, put.indexes)
            try:
                stat = await self._send(request, put.guard, session, beside)
            except _BesideRefused:
                continue
            except Refusal as refusal:
                if refusal.code in (Code.NO_NODE, Code.BAD_VERSION):
                    return None
                raise
            return self._seen(put.path, stat)

    async def _create(
        self, put: Put, session: int | None, *, may_be_there: bool = False
    ) -> Stat | None:
        """Make the node and what is missing above it; None if it is there.

        If nobody looked, `may_be_there`: who may write a node need not be allowed to make it.
        """
        flag = Flag.EPHEMERAL if put.ephemeral else Flag.PERSISTENT
        request = self._client.op_create(put.path, put.value, flag, self.acl)
        made_parents = False
        while True:
            beside = await self._indexes.beside(put.path, put.indexes)
            try:
                _, stat = await self._send(request, put.guard, session, beside)
            except _BesideRefused:
                continue
            except Refusal as refusal:
                if refusal.code == Code.NODE_EXISTS:
                    return None
                if refusal.code == Code.NO_AUTH and may_be_there and put.expected is ANY:
                    return None
                if refusal.code != Code.NO_NODE or made_parents:
                    raise
                await self.make_parents(put.path, put.guard, session)
                made_parents = True
                continue
            return self._seen(put.path, stat)

    async def _put_next(self, put: Put, session: int | None) -> Stat:
        flag = Flag.EPHEMERAL_SEQUENTIAL if put.ephemeral else Flag.SEQUENTIAL
        request = self._client.op_create(put.path, put.value, flag, self.acl)
        for _ in range(limits.CONDITIONAL_WRITE_TRIES_MAX):
            try:
                made, stat = await self._send(request, put.guard, session)
            except Refusal as refusal:
                if refusal.code == Code.NO_NODE:
                    await self.make_parents(put.path, put.guard, session)
                elif refusal.code == Code.NODE_EXISTS:
                    await self._pass_over(parent_of(put.path), put.guard)
                else:
                    raise
                continue
            path = self._client.local(made)
            assert path is not None
            if put.indexes:
                return await self._give_keys(path, put, stat, session)
            return self._seen(path, stat)
        raise ConflictError(
            f"others change {parent_of(put.path)} all the time: nothing was written"
        )

    async def _give_keys(self, path: str, put: Put, made: ZStat, session: int | None) -> Stat:
        """Its path was not known before: the keys follow, by a write of the same value."""
        version = Version(EPOCH, made.version, made.czxid)
        again = Put(path, put.value, version, indexes=put.indexes, guard=put.guard)
        try:
            return await self._put_over(again, version, session)
        except AnabranchError as error:
            # Whatever that is called, it does not mean that nothing was written.
            raise OutcomeUnknown(f"{path} was made, its index keys were not: {error}") from error

    async def _pass_over(self, parent: str, guard: Guard | None) -> None:
        """Let the next sequential child get the number after next: the next name is taken."""
        name = join(parent, f"{HIDDEN_PREFIX}passed-{self._entropy.token_hex(8)}")
        await self._send(
            self._client.op_create(name, b""), guard, None, (self._client.op_delete(name),)
        )

    async def make_parents(self, path: str, guard: Guard | None, session: int | None) -> None:
        """Make what is missing above a path: each by its own request, so that each has a revision.

        Raises:
            InputError: if one of them is ephemeral.
        """
        above = list(ancestors_of(path))
        made = await asyncio.gather(
            *(
                self._send(self._client.op_create(parent, b"", acl=self.acl), guard, session)
                for parent in above
            ),
            return_exceptions=True,
        )
        for parent, outcome in zip(above, made, strict=True):
            if isinstance(outcome, Refusal):
                if not await self._is_there(parent, outcome):
                    raise meaning(outcome, parent)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _is_there(self, path: str, refusal: Refusal) -> bool:
        """Whether a node was not made because there is one."""
        if refusal.code == Code.NO_AUTH:
            # Rights are looked at before whether there is anything to be made.
            return await self._stat(path) is not None
        return refusal.code == Code.NODE_EXISTS

    def _seen(self, path: str, stat: ZStat) -> Stat:
        return stat_of(path, stat, self._client.link.session.number)

    # --- delete -------------------------------------------------------------------------------

    async def _delete(self, delete: Delete) -> None:
        path = delete.path
        if path == ROOT:
            raise InvalidPath("the root '/' cannot be deleted")
        session = await self._check_guard(delete.guard)
        if delete.expected is ANY:
            await self._delete_if(delete, -1, session, None)
        elif isinstance(delete.expected, Version):
            async with self._turns.at(path):
                stat, holds, own = await self._stat_bound(path, delete.expected)
                _check_found(path, stat, holds)
                await self._delete_if(delete, delete.expected.native, session, own)
        else:
            _check_found(path, await self._stat(path), False)

    async def _delete_if(
        self, delete: Delete, native: int, session: int | None, own: int | None
    ) -> None:
        path = delete.path
        try:
            await self._send(self._client.op_delete(path, native), delete.guard, session or own)
        except SessionExpired:
            if own is None:
                raise
            raise BadVersion(path, "it goes with the session that it belonged to") from None
        except Refusal as refusal:
            if refusal.code == Code.NO_NODE:
                raise _nothing_at(path) from None
            if refusal.code == Code.BAD_VERSION:
                raise BadVersion(path) from None
            if refusal.code == Code.NOT_EMPTY:
                raise NotEmpty(f"{path} has children: delete them first") from None
            raise


class _BesideRefused(Exception):
    """What had to happen in the same moment cannot: look again and try again."""


def _check_found(path: str, stat: ZStat | None, holds: bool) -> None:
    """Refuse to delete what is not there, or not as expected."""
    if stat is None:
        raise _nothing_at(path)
    if not holds:
        raise BadVersion(path)


def _nothing_at(path: str) -> NotFound:
    return NotFound(f"nothing at {path}")


def _fenced(guard: Guard) -> Fenced:
    return Fenced(f"the guard {guard.path} is not in its state any more: this writer was replaced")


def _check(client: ZooKeeperClient, guard: Guard) -> Request[None]:
    return client.op_check(guard.path, guard.version.native)
