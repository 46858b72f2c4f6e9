"""A simulated metadata service that can be copied: the rest of a store's contract.

As `remote_store`, and with it: exports, restores, batches, indexes, changes since a moment.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.commands import Restore, Write
from anabranch.metadata.entries import Entry, node_of, record_of
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
    EventKind,
    Expected,
    Guard,
    IndexKey,
    Node,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    Stat,
)
from anabranch.runtime import Clock
from anabranch.testing.simulation.metadata_service import MetadataService
from anabranch.testing.simulation.remote_store import RemoteStore
from anabranch.testing.simulation.world import World

_EPOCH: Final = 1
_FORGETS_SHARE: Final = 0.01
"""Questions for changes that the service answers with a gap."""
OnWrite = Callable[[int, Operation], None]


class WholeService(MetadataService):
    """The store's side."""

    def __init__(self, world: World, *, timeout_s: float, delay_s: float, flaky: float) -> None:
        super().__init__(world, timeout_s=timeout_s, delay_s=delay_s, flaky=flaky)
        self.owners: dict[int, object] = {}
        """Which life of a process each session is of."""
        self.on_write: OnWrite = lambda session, operation: None
        """Told every write that was carried out."""
        self.spoil: Callable[[Record], bool] = lambda record: False
        """Asked whether a record gets lost on its way into the store."""
        self.watch("/")

    def write(self, session: int, operation: Operation) -> Outcome:
        """Carry out one write."""
        effect = self.machine.apply(Write(0, [operation], session), epoch=_EPOCH)
        self._publish(effect.events)
        outcome = effect.outcomes[0]
        if not isinstance(outcome, AnabranchError):
            self.on_write(session, operation)
        return outcome

    def nodes(self, session: int, prefix: str) -> list[Node]:
        """Everything at or below a path."""
        return [node_of(path, entry, session) for path, entry in self._entries(prefix)]

    def records(self, prefix: str) -> list[Record]:
        """The same as an export gives it."""
        return [record_of(path, entry) for path, entry in self._entries(prefix)]

    def _entries(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        page = self.machine.tree.page(prefix, None)
        while page:
            yield from page
            page = self.machine.tree.page(prefix, page[-1][0])

    def restore(self, records: Sequence[Record]) -> list[Outcome]:
        """Take in what was exported."""
        kept = [record for record in records if not self.spoil(record)]
        effect = self.machine.apply(Restore(0, kept), epoch=_EPOCH)
        self._publish(effect.events)
        return list(effect.outcomes)

    def changed_since(self, since: Revision, prefix: str) -> list[Event]:
        """The newest change of each path."""
        if self.rng.random() < _FORGETS_SHARE:
            self.world.reach("changes forgotten")
            return [Event(EventKind.GAP, "/", self.machine.tree.revision)]
        after = bisect_right(self._events, since, key=lambda event: event.revision)
        newest: dict[str, Event] = {}
        for event in self._events[after:]:
            if is_within(prefix, event.path):
                newest.pop(event.path, None)
                newest[event.path] = event
        return list(newest.values())


class WholeStore(RemoteStore):
    """The client's side. See `MetadataStore`."""

    _service: WholeService

    def __init__(self, service: WholeService, clock: Clock, life: object) -> None:
        """`life` is the life of the process whose handle this is."""
        super().__init__(service, clock)
        self._life = life

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self._session

    @session.setter
    def session(self, session: int) -> None:
        self._session = session
        if session:
            self._service.owners[session] = self._life

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that could break."""
        return self._link is not None

    # --- reading ------------------------------------------------------------------------------

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return await self._call(lambda: self._service.machine.tree.exists(path), is_write=False)

    async def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        session = self.session
        for node in await self._call(lambda: self._service.nodes(session, prefix), is_write=False):
            yield node

    async def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`."""
        del access, values
        for record in await self._call(lambda: self._service.records(prefix), is_write=False):
            yield record

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""

        def read() -> Record | None:
            entry = self._service.machine.tree.entry(path)
            return None if entry is None else record_of(path, entry)

        return await self._call(read, is_write=False)

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        return await self._call(lambda: self._service.machine.tree.revision, is_write=False)

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        return await self.revision()

    async def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        for event in await self._call(
            lambda: self._service.changed_since(since, prefix), is_write=False
        ):
            yield event

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
        assert isinstance(stat, Stat)
        return stat

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        await self._write(Delete(path, expected, guard))

    async def _write(self, operation: Operation) -> Outcome:
        session = self.session
        return await self._call(lambda: self._service.write(session, operation), is_write=True)

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`."""
        session, wanted = self.session, list(operations)
        return await self._call(
            lambda: [self._service.write(session, operation) for operation in wanted],
            is_write=True,
        )

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        wanted = [record async for record in records if record.session is None]
        for outcome in await self._call(lambda: self._service.restore(wanted), is_write=True):
            if isinstance(outcome, AnabranchError):
                raise outcome
        return len(wanted)
