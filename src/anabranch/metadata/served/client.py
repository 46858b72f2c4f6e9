"""The metadata store of a process whose store is served by another one.

Only the factory names it. See `link` for the connection and the session.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, NotFound, ProtocolError, Unreachable
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.operation_checks import check_operation, check_record, split_checked
from anabranch.metadata.paths import check_path
from anabranch.metadata.served import messages
from anabranch.metadata.served.addresses import parse_addresses
from anabranch.metadata.served.calls import Repeat
from anabranch.metadata.served.link import Link
from anabranch.metadata.served.served_watch import ServedWatch, follow
from anabranch.metadata.single_records import first_of
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
from anabranch.metadata.watching import EventHistory, Readership
from anabranch.runtime import Runtime


class ServedStore:
    """See `MetadataStore`."""

    fencing = Fencing.SERVER

    def __init__(self, runtime: Runtime, url: str, session_timeout_s: float) -> None:
        """Use `open`."""
        self._history: EventHistory | None = None
        self._readership = Readership()
        self._closed = False
        self._link = Link(runtime, parse_addresses(url), session_timeout_s, self._take_events)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        url: str,
        *,
        session_timeout_s: float = limits.METADATA_SESSION_TIMEOUT_S,
    ) -> "ServedStore":
        """Connect to the first server of `anabranch://host:port,...` that answers.

        Raises:
            ConfigError: if the URL is wrong.
            Unreachable: if no server answers.
            ProtocolError: if the server refuses this client.
        """
        store = cls(runtime, url, session_timeout_s)
        await store._link.open()
        return store

    # --- the session --------------------------------------------------------------------------

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`: a server that is away may come back."""
        return None

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self._link.session

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`."""
        return self._link.lease.timeout_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return self._link.valid_until_s

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        self._check_open()
        return self._link.news.listen()

    async def end_session(self, session: int) -> None:
        """End any session, with all its ephemeral nodes, whatever its client thinks.

        Raises:
            NotFound: if there is no such session.
            OutcomeUnknown: if the answer was lost.
        """
        request = pb.Request(end_session=pb.EndSession(session=session))
        if not (await self._ask(request, Repeat.ONCE)).count:
            raise NotFound(f"no session {session}")

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        await self._link.close()
        if self._history is not None:
            self._history.end(self._readership)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")

    # --- reading ------------------------------------------------------------------------------

    async def _ask(self, request: pb.Request, repeat: Repeat = Repeat.READ) -> pb.Response:
        self._check_open()
        return await self._link.ask(request, repeat)

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`; `Unreachable` if no server answers."""
        response = await self._ask(pb.Request(get=pb.Path(path=check_path(path))))
        return messages.node_from(response.node) if response.HasField("node") else None

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return (await self._ask(pb.Request(exists=pb.Path(path=check_path(path))))).exists

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        check_path(path)
        while True:
            names = (await self._ask(pb.Request(children=pb.Path(path=path)))).names
            found = list(names.names)
            try:
                while names.cursor:
                    names = (await self._next(names.cursor)).names
                    found += names.names
            except Unreachable:
                continue  # the connection that knew the list is gone: ask for a new one
            finally:
                self._drop(names.cursor)
            return found

    async def _next(self, cursor: int) -> pb.Response:
        request = pb.Request(next=pb.Cursor(cursor=cursor))
        try:
            return await self._ask(request, Repeat.BOUND)
        except NotFound as error:  # it waited for a connection, and went out on another one
            raise Unreachable(f"the server does not keep the list any more: {error}") from error

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        self._check_open()
        return self._scan(check_path(prefix))

    async def _scan(self, prefix: str) -> AsyncIterator[Node]:
        page = (await self._ask(pb.Request(scan=pb.Scan(prefix=prefix)))).nodes
        while page.more:
            for message in page.nodes:
                yield messages.node_from(message)
            after = page.nodes[-1].stat.path
            page = (await self._ask(pb.Request(scan=pb.Scan(prefix=prefix, after=after)))).nodes

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`."""
        self._check_open()
        return self._scan_index(index, first, last)

    async def _scan_index(self, index: str, first: str, last: str | None) -> AsyncIterator[Node]:
        request = pb.ScanIndex(index=index, key=first, last=last)
        page = (await self._ask(pb.Request(scan_index=request))).nodes
        while page.more:
            for message in page.nodes:
                yield messages.node_from(message)
            request = pb.ScanIndex(
                index=index, key=page.last_key, after_path=page.last_path, last=last
            )
            page = (await self._ask(pb.Request(scan_index=request))).nodes

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        await self._ask(pb.Request(ping=pb.Ping()))

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        response = await self._ask(pb.Request(ping=pb.Ping()))
        return messages.revision_from(response.revision)

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        return await self.revision()

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`; `Unreachable` if the connection is lost on the way."""
        del access, values  # there are none of the first, and the second cost little
        self._check_open()
        return self._export(check_path(prefix))

    async def _export(self, prefix: str) -> AsyncIterator[Record]:
        request = pb.Request(export=pb.Path(path=prefix))
        page = (await self._ask(request, Repeat.BOUND)).records
        try:
            while page.cursor:
                for message in page.records:
                    yield messages.record_from(message)
                page = (await self._next(page.cursor)).records
        finally:
            self._drop(page.cursor)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        return await first_of(self.export(path))

    def _drop(self, cursor: int) -> None:
        """Tell the server that a list is not read to its end; nothing to tell if it is 0."""
        if cursor and not self._closed:
            self._link.tell(pb.Request(drop=pb.Cursor(cursor=cursor)))

    # --- watching -----------------------------------------------------------------------------

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`.

        Without `since`, changes by others that this process had not heard of yet are told, too.
        """
        self._check_open()
        check_path(prefix)
        if self._history is None:
            history = self._history = EventHistory(self._link.newest)
            self._link.subscribe(lambda: history.newest)
        since = self._link.newest if since is None else since
        return ServedWatch(self._history, self._readership, self.events_after, prefix, since)

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        self._check_open()
        return self._changed_since(since, check_path(prefix))

    async def _changed_since(self, since: Revision, prefix: str) -> AsyncIterator[Event]:
        newest: dict[str, Event] = {}
        more = True
        while more:
            events, since, more = await self.events_after(since, prefix)
            for event in events:
                if event.kind is EventKind.GAP:
                    yield event
                    return
                newest.pop(event.path, None)
                newest[event.path] = event
        for event in newest.values():
            yield event

    async def events_after(
        self, since: Revision, prefix: str
    ) -> tuple[list[Event], Revision, bool]:
        """Some changes from the server's memory, up to which revision, and whether more follow."""
        request = pb.EventsAfter(since=messages.revision_message(since), prefix=prefix)
        found = (await self._ask(pb.Request(events_after=request))).events
        events = [messages.event_from(event) for event in found.events]
        return events, messages.revision_from(found.up_to), found.more

    def _take_events(self, events: list[Event]) -> None:
        if self._history is None:
            raise ProtocolError("events that nobody asked for")
        follow(self._history, events)

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
        outcome = await self._write_one(
            Put(path, value, expected, ephemeral, sequential, indexes, guard)
        )
        assert outcome is not None
        return outcome

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        await self._write_one(Delete(path, expected, guard))

    async def _write_one(self, operation: Operation) -> Stat | None:
        self._check_open()
        check_operation(operation)
        (outcome,) = await self._link.write([operation])
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        sent = [
            (places, self._link.write(command))
            for places, command in split_checked(operations, outcomes)
        ]
        # All have answered before the first failure is raised: no answer is left unread.
        await asyncio.gather(*(answer for _, answer in sent), return_exceptions=True)
        for places, answer in sent:
            for place, outcome in zip(places, answer.result(), strict=True):
                outcomes[place] = outcome
        return outcomes

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`; `OutcomeUnknown` if the connection is lost on the way."""
        self._check_open()
        count = 0
        chunk: list[pb.Record] = []
        chunk_bytes = 0
        async for record in records:
            check_record(record)
            if record.session is not None:
                continue
            message = messages.record_message(record)
            chunk.append(message)
            chunk_bytes += message.ByteSize()
            if (
                len(chunk) >= limits.METADATA_PAGE_NODES_MAX
                or chunk_bytes >= limits.METADATA_PAGE_BYTES_MAX
            ):
                count += await self._restore(chunk)
                chunk, chunk_bytes = [], 0
        return count + (await self._restore(chunk) if chunk else 0)

    async def _restore(self, records: list[pb.Record]) -> int:
        request = pb.Request(restore=pb.Restore(records=records))
        return (await self._ask(request, Repeat.ONCE)).count
