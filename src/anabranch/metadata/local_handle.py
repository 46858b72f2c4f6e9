"""A handle on a tree in this process: the whole contract, for one session.

What the tree stands on, memory or a log, is behind `Backing`. Several handles may share one.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, NotFound
from anabranch.metadata.commands import Command, EndSessions, OpenSession, Restore, Write
from anabranch.metadata.entries import node_of, record_of
from anabranch.metadata.operation_checks import check_operation, check_record, split_checked
from anabranch.metadata.paths import check_path
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.single_records import first_of
from anabranch.metadata.state_machine import Effect, StateMachine
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
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
from anabranch.metadata.tree import Tree
from anabranch.metadata.watching import EventHistory, Readership
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks

Answer = asyncio.Future[Effect]


class Backing(ABC):
    """A state machine that handles share, and the way commands take into it."""

    def __init__(self, machine: StateMachine, clock: Clock) -> None:
        self.machine = machine
        self.clock = clock
        self.history = EventHistory(machine.tree.revision)
        self.failure: AnabranchError | None = None
        self.handles: dict[int, LocalHandle] = {}
        """Those that are open, by the number of their present session."""
        self.on_sessions_ended: Callable[[tuple[int, ...]], None] | None = None
        """Whoever gives sessions to others wants to know when one is over, however it ended."""

    @abstractmethod
    async def propose(self, command: Command) -> Answer:
        """Bring a command on its way; the answer comes when it took effect."""

    @abstractmethod
    async def leave(self, handle: "LocalHandle") -> None:
        """A handle was closed: end its session, and with the last one let go of everything."""

    @abstractmethod
    def task_failed(self, name: str, failure: BaseException) -> None:
        """A task in the background broke."""

    def apply(self, command: Command, epoch: int) -> Effect:
        """Carry out a committed command and tell who wants to know."""
        effect = self.machine.apply(command, epoch=epoch)
        self.history.publish(effect.events)
        for session in effect.ended:
            if session in self.handles:
                self.handles[session].session_ended()
        if effect.ended and self.on_sessions_ended is not None:
            self.on_sessions_ended(effect.ended)
        return effect


class LocalHandle:
    """See `MetadataStore`."""

    fencing = Fencing.SERVER

    def __init__(self, backing: Backing, session: int) -> None:
        self._backing = backing
        self._session = session
        self._closed = False
        self._readership = Readership()
        self._news = SessionNews()
        self._tasks = Tasks(backing.task_failed)
        backing.handles[session] = self

    @property
    def backing(self) -> Backing:
        """What this handle stands on, for a server that gives others sessions of their own."""
        return self._backing

    # --- the session --------------------------------------------------------------------------

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`."""
        return self._backing.failure

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self._session

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`: this process needs no renewals."""
        return math.inf

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`: for ever, unless an operator ended it."""
        return math.inf if self._session in self._backing.machine.sessions else -math.inf

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        self._check_open()
        return self._news.listen()

    async def handle(self) -> "LocalHandle":
        """Another handle on the same tree, with a session of its own."""
        self._check_open()
        command = OpenSession(self._backing.clock.wall_ms(), timeout_ms=0)
        return LocalHandle(self._backing, (await self._submit(command)).opened)

    async def end_session(self, session: int) -> None:
        """End any session, with all its ephemeral nodes, whatever its client thinks.

        Raises:
            NotFound: if there is no such session.
        """
        self._check_open()
        effect = await self._submit(EndSessions(self._backing.clock.wall_ms(), (session,)))
        if not effect.ended:
            raise NotFound(f"no session {session}")

    def session_ended(self) -> None:
        """The backing says that this handle's session is over: begin another one."""
        if not self._closed:
            self._news.publish(SessionEvent.SESSION_LOST)
            self._tasks.spawn("begin a new metadata session", self._begin_session())

    async def _begin_session(self) -> None:
        try:
            effect = await self._submit(OpenSession(self._backing.clock.wall_ms(), timeout_ms=0))
        except AnabranchError:
            return  # `failure` says why; there is no session to be had any more
        del self._backing.handles[self._session]
        self._session = effect.opened
        self._backing.handles[effect.opened] = self
        self._news.publish(SessionEvent.SESSION_REESTABLISHED)

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        await self._tasks.close()
        self._backing.handles.pop(self._session, None)
        await self._backing.leave(self)
        self._backing.history.end(self._readership)
        self._news.close()

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")

    # --- reading ------------------------------------------------------------------------------

    @property
    def _tree(self) -> Tree:
        return self._backing.machine.tree

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        self._check_open()
        entry = self._tree.entry(check_path(path))
        return None if entry is None else node_of(path, entry, self._session)

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        self._check_open()
        return self._tree.exists(check_path(path))

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        self._check_open()
        return self._tree.children(check_path(path))

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        self._check_open()
        return self._scan(check_path(prefix))

    async def _scan(self, prefix: str) -> AsyncIterator[Node]:
        page = self._tree.page(prefix, None)
        while page:
            for path, entry in page:
                yield node_of(path, entry, self._session)
            await asyncio.sleep(0)
            self._check_open()
            page = self._tree.page(prefix, page[-1][0])

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`."""
        self._check_open()
        return self._scan_index(index, first, last)

    async def _scan_index(self, index: str, first: str, last: str | None) -> AsyncIterator[Node]:
        page = self._tree.indexes.page(index, (first,), last)
        while page:
            for _, path in page:
                entry = self._tree.entry(path)
                if entry is not None:  # else deleted since the page was taken
                    yield node_of(path, entry, self._session)
            await asyncio.sleep(0)
            self._check_open()
            page = self._tree.indexes.page(index, page[-1][0], last)

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`."""
        self._check_open()
        return self._backing.history.watch(check_path(prefix), since, self._readership)

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        self._check_open()
        return self._backing.history.changed_since(since, check_path(prefix))

    async def sync(self) -> None:
        """See `MetadataStore.sync`: this process sees a write before it is answered."""
        self._check_open()

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        self._check_open()
        return self._tree.revision

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        return await self.revision()

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`."""
        del access, values  # there are none of the first, and the second cost little
        self._check_open()
        return self._export(check_path(prefix))

    async def _export(self, prefix: str) -> AsyncIterator[Record]:
        view = self._tree.freeze(prefix)
        try:
            while page := view.next_page():
                for path, entry in page:
                    yield record_of(path, entry)
                await asyncio.sleep(0)
                self._check_open()
        finally:
            self._tree.release(view)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        return await first_of(self.export(path))

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
        """See `MetadataStore.put`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        outcome = await self._write_one(
            Put(path, value, expected, ephemeral, sequential, indexes, guard)
        )
        assert outcome is not None
        return outcome

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        await self._write_one(Delete(path, expected, guard))

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        sent: list[tuple[list[int], Answer]] = []
        for number, (places, command) in enumerate(split_checked(operations, outcomes)):
            if number > 0:
                await asyncio.sleep(0)
                self._check_open()
            sent.append((places, await self._backing.propose(self._command(command))))
        # All have answered before the first failure is raised: no answer is left unread.
        await asyncio.gather(*(answer for _, answer in sent), return_exceptions=True)
        for places, answer in sent:
            for place, outcome in zip(places, answer.result().outcomes, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        self._check_open()
        count = 0
        chunk: list[Record] = []
        chunk_bytes = 0
        async for record in records:
            check_record(record)
            if record.session is not None:
                continue
            chunk.append(record)
            chunk_bytes += len(record.value) + 4 * len(record.path)
            if (
                len(chunk) >= limits.METADATA_PAGE_NODES_MAX
                or chunk_bytes >= limits.METADATA_PAGE_BYTES_MAX
            ):
                count += await self._restore(chunk)
                chunk, chunk_bytes = [], 0
        return count + (await self._restore(chunk) if chunk else 0)

    async def _restore(self, records: Sequence[Record]) -> int:
        self._check_open()
        effect = await self._submit(Restore(self._backing.clock.wall_ms(), records))
        for outcome in effect.outcomes:
            if isinstance(outcome, AnabranchError):
                raise outcome
        return len(effect.outcomes)

    async def _write_one(self, operation: Operation) -> Stat | None:
        self._check_open()
        check_operation(operation)
        (outcome,) = (await self._submit(self._command([operation]))).outcomes
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome

    def _command(self, operations: Sequence[Operation]) -> Write:
        return Write(self._backing.clock.wall_ms(), operations, self._session)

    async def _submit(self, command: Command) -> Effect:
        return await (await self._backing.propose(command))
