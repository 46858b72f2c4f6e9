"""The metadata store on Oxia. Only the factory names it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    NotFound,
    OutcomeUnknown,
    StoreFailed,
    Unreachable,
)
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.operation_checks import check_operation, split_checked
from anabranch.metadata.oxia import keys
from anabranch.metadata.oxia.address import parse_address
from anabranch.metadata.oxia.batching import groups
from anabranch.metadata.oxia.feed import Feed
from anabranch.metadata.oxia.nodes import UNWRITTEN_ROOT, found_from_version, stat_from
from anabranch.metadata.oxia.positions import Position
from anabranch.metadata.oxia.resharding import Opening, Present, Shards
from anabranch.metadata.oxia.restoring import Restorer
from anabranch.metadata.oxia.resuming import ResumedWatch, events_between
from anabranch.metadata.oxia.sessions import SessionKeeper
from anabranch.metadata.paths import ROOT, check_path, is_within
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
    EventKind,
    Expected,
    Fencing,
    Guard,
    IndexKey,
    Node,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    SessionEvent,
    Stat,
)
from anabranch.metadata.watching import Readership
from anabranch.runtime import Runtime
from anabranch.runtime.channels import OPEN_TO_ALL, CallFailed, Security


class OxiaStore:
    """See `MetadataStore`. Export goes level by level: parents first, not in path order."""

    fencing = Fencing.LEASE

    def __init__(self, shards: Shards) -> None:
        """Use `open`."""
        self._shards = shards
        self._history = shards.present.feed.history
        self._news = shards.present.sessions.news
        self._readership = Readership()
        self._closed = False
        self._writes = 0
        self._idle = asyncio.Event()

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        url: str,
        *,
        session_timeout_s: float = limits.METADATA_SESSION_TIMEOUT_S,
        security: Security = OPEN_TO_ALL,
    ) -> "OxiaStore":
        """Connect to the namespace that `oxia://host:port/namespace` names.

        Raises:
            ConfigError: if the URL or the timeout is wrong.
            Unreachable: if no server answers.
            NotFound: if there is no such namespace.
        """
        opening = Opening(runtime, parse_address(url), security, session_timeout_s)
        return cls(Shards(opening, await Present.open(opening, None, None)))

    # --- the session --------------------------------------------------------------------------

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`: a server that is away may come back."""
        return None

    @property
    def _sessions(self) -> SessionKeeper:
        return self._shards.present.sessions

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self._sessions.number

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`."""
        return self._sessions.lease.timeout_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return self._sessions.valid_until_s

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        self._check_open()
        return self._news.listen()

    async def end_session(self, session: int) -> None:
        """End any session of a client like this one, whatever that client thinks.

        Raises:
            NotFound: if there is no such session.
        """
        self._check_open()
        if not await self._shards.ask(lambda present: present.end_session(session)):
            raise NotFound(f"no session {session}")

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writes:
                with suppress(TimeoutError):
                    async with asyncio.timeout(limits.OXIA_OPEN_S_MAX):
                        await self._idle.wait()
        except BaseException:
            for link in self._shards.present.client.links:
                link.drop()
            raise
        finally:
            self._history.end(self._readership)
            await self._shards.close()

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")

    # --- reading ------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        self._check_open()
        check_path(path)
        return await self._shards.ask(lambda present: self._get(present, path))

    async def _get(self, present: Present, path: str) -> Node | None:
        place = present.client.place_of(path)
        request = pb.GetRequest(key=path, include_value=True)
        answer = await present.client.links[place].get(request)
        if answer.status == pb.OK:
            found = found_from_version(answer.version)
            # Who reads a node often writes it next, and then need not look at it again.
            present.writer.remember(path, found)
            life = found.version.life
            revision = present.feed.known_revision(place, path, life)
            if revision is None:
                revision = await present.feed.revision_of(place, path, life)
            return Node(answer.value, stat_from(path, found, revision, self.session))
        if path != ROOT:
            return None
        return Node(b"", stat_from(ROOT, UNWRITTEN_ROOT, present.feed.begin, self.session))

    async def _node(self, present: Present, place: int, answer: pb.GetResponse) -> Node:
        """A node that was found, and need not be remembered."""
        path, found = answer.key, found_from_version(answer.version)
        revision = await present.feed.revision_of(place, path, found.version.life)
        return Node(answer.value, stat_from(path, found, revision, self.session))

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        self._check_open()
        check_path(path)
        answer = await self._shards.ask(lambda present: present.client.get(path, value=False))
        return answer.status == pb.OK or path == ROOT

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        self._check_open()
        first, end = keys.children_range(check_path(path))
        found = await self._shards.ask(lambda present: present.client.keys_in((first, end)))
        return [key[len(first) :] for key in found if key != ROOT]

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        self._check_open()
        check_path(prefix)
        return self._shards.stream(lambda present: self._scan(present, prefix))

    async def _scan(self, present: Present, prefix: str) -> AsyncIterator[Node]:
        top = await self._get(present, prefix)
        if top is None:
            return
        yield top
        async for place, record in present.scanner.below(prefix):
            self._check_open()
            yield await self._node(present, place, record)

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`; `Unreachable` if the connection is lost on the way."""
        self._check_open()
        return self._shards.stream(lambda present: self._scan_index(present, index, first, last))

    async def _scan_index(
        self, present: Present, index: str, first: str, last: str | None
    ) -> AsyncIterator[Node]:
        async for place, record in present.scanner.by_index(index, first, last):
            yield await self._node(present, place, record)

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        self._check_open()
        await self._shards.ask(lambda present: present.feed.catch_up_all())

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        await self.sync()
        return self._history.newest

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`: how far every shard is."""
        await self.sync()
        return self._shards.present.feed.moment

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`; `Unreachable` if the connection is lost on the way."""
        del access, values  # there are none of the first, and the second cost little
        self._check_open()
        check_path(prefix)
        return self._shards.stream(lambda present: present.scanner.export(prefix))

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        self._check_open()
        check_path(path)
        return await self._shards.ask(lambda present: present.scanner.record(path))

    # --- watching -----------------------------------------------------------------------------

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`.

        Without `since`, changes by others that this process had not heard of yet are told, too.
        """
        self._check_open()
        check_path(prefix)
        feed = self._shards.present.feed
        if since is None or feed.knows(since):
            return self._history.watch(prefix, since, self._readership)
        return ResumedWatch(feed, self._readership, prefix, feed.position(since))

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        self._check_open()
        check_path(prefix)
        return self._shards.stream(lambda present: self._changed_since(present.feed, since, prefix))

    async def _changed_since(
        self, feed: Feed, since: Revision, prefix: str
    ) -> AsyncIterator[Event]:
        await feed.catch_up_all()
        history = feed.history
        newest: dict[str, Event] = {}
        if not feed.knows(since):
            older = await self._older(feed, feed.position(since))
            if older is None or not history.reaches(feed.begin):
                yield Event(EventKind.GAP, ROOT, history.newest)
                return
            newest = {event.path: event for event in older if is_within(prefix, event.path)}
            since = feed.begin
        async for event in history.changed_since(since, prefix):
            newest.pop(event.path, None)
            newest[event.path] = event
        for event in newest.values():
            yield event

    async def _older(self, feed: Feed, position: Position | None) -> list[Event] | None:
        if position is None:
            return None
        try:
            return await events_between(feed, position)
        except CallFailed as error:
            raise Unreachable(f"Oxia broke off: {error}") from None

    # --- writing ------------------------------------------------------------------------------

    async def put(
        self,
        path: str,
        value: bytes,
        expected: Expected = ANY,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        indexes: tuple[IndexKey, ...] = (),
        guard: Guard | None = None,
    ) -> Stat:
        """See `MetadataStore.put`."""
        stat = await self._write(Put(path, value, expected, ephemeral, sequential, indexes, guard))
        assert stat is not None
        return stat

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        await self._write(Delete(path, expected, guard))

    async def _write(self, operation: Operation) -> Stat | None:
        self._check_open()
        check_operation(operation)
        self._writes += 1
        try:
            return await self._shards.ask(lambda present: present.writer.carry_out(operation))
        finally:
            self._written()

    def _written(self) -> None:
        """Something has ended that `close` waits for."""
        self._writes -= 1
        if self._closed and not self._writes:
            self._idle.set()

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`; the order of changes on different shards is open."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        self._writes += 1
        try:
            for places, command in split_checked(operations, outcomes):
                await self._carry_out(command, places, outcomes)
        finally:
            self._written()
        return outcomes

    async def _carry_out(
        self, command: Sequence[Operation], places: Sequence[int], outcomes: list[Outcome]
    ) -> None:
        operations = dict(zip(places, command, strict=True))

        def carried_out(operation: Operation) -> Awaitable[Stat | None]:
            return self._shards.ask(lambda present: present.writer.carry_out(operation))

        for group in groups(command, places):
            results = await asyncio.gather(
                *(carried_out(operations[place]) for place in group), return_exceptions=True
            )
            for place, result in zip(group, results, strict=True):
                if isinstance(result, BaseException) and not isinstance(result, AnabranchError):
                    raise result
                outcomes[place] = result

    async def restore_alone(self, records: AsyncIterator[Record]) -> int:
        """See `RestoresAlone.restore_alone`."""
        return await self.restore(records, alone=True)

    async def restore(self, records: AsyncIterator[Record], *, alone: bool = False) -> int:
        """See `MetadataStore.restore`; times are those of the copy."""
        self._check_open()
        self._writes += 1
        try:
            present = await self._shards.now()
            return await Restorer(present.client, present.feed, alone=alone).run(records)
        except StoreFailed as error:
            raise OutcomeUnknown(f"a part of the nodes may be restored: {error}") from None
        finally:
            self._written()
