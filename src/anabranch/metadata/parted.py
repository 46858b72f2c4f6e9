"""One tree in two stores: a configuration store beyond a border, and the cluster's own before it.

A call goes to the store that has its path. What is above the border, the root and `/admin`, is the
cluster's own; what is below that is shown of both. Two stores have no moment in common: what needs
one is refused above the border, and is to be asked of each store by itself. Sessions, and so
ephemeral nodes, are those of the cluster's own store.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from anabranch.errors import AnabranchError, InputError, NotEmpty
from anabranch.metadata.border import Border
from anabranch.metadata.merging import MergedWatch, merged
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
    EventKind,
    Expected,
    Fencing,
    Guard,
    IndexKey,
    MetadataStore,
    Node,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
    SessionEvent,
    Stat,
)

_BITS: Final = 256
"""More than a part of a revision has, whatever store it is of."""
_OWN: Final = (1 << _BITS) - 1
_OF_BOTH: Final = 1 << 2 * _BITS


class PartedStore:
    """See `MetadataStore`. A revision of both is good for either, and above the border."""

    def __init__(
        self, local: MetadataStore, configuration: MetadataStore, border: Border | None = None
    ) -> None:
        self.local = local
        self.configuration = configuration
        self._border = Border() if border is None else border

    @property
    def fencing(self) -> Fencing:
        """See `MetadataStore.fencing`; a guard and what it guards are in one store."""
        return self.local.fencing

    def part_of(self, path: str) -> MetadataStore:
        """The store that has a node."""
        return self.configuration if self._border.is_beyond(path) else self.local

    def part_below(self, prefix: str) -> MetadataStore:
        """The store that has all at or below a path: this one if both have something there."""
        return self if self._border.is_above(prefix) else self.part_of(prefix)

    # --- one node -------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        node = await self.part_of(path).get(path)
        if node is None and await self._goes_on_beyond(path):
            return await self.configuration.get(path)
        return node

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return await self.part_of(path).exists(path) or await self._goes_on_beyond(path)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        return await self.part_of(path).record(path)

    async def _goes_on_beyond(self, path: str) -> bool:
        """Whether the configuration store has something below a path above the border."""
        return self._border.is_above(path) and bool(await self.configuration.children(path))

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
        written = Put(path, value, expected, ephemeral, sequential, indexes, guard)
        return await self._place_of(written).put(
            path,
            value,
            expected,
            ephemeral=ephemeral,
            sequential=sequential,
            indexes=indexes,
            guard=guard,
        )

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        place = self._place_of(Delete(path, expected, guard))
        if path != ROOT and await self._goes_on_beyond(path):
            raise NotEmpty(f"{path} has children in the configuration store")
        await place.delete(path, expected, guard=guard)

    def _place_of(self, operation: Operation) -> MetadataStore:
        """The store that carries out an operation.

        Raises:
            InputError: if neither can do it alone.
        """
        path = operation.path
        numbered = isinstance(operation, Put) and operation.sequential
        place = self.part_of(f"{path}0" if numbered else path)
        if operation.guard is not None and self.part_of(operation.guard.path) is not place:
            raise InputError(f"{path} and its guard {operation.guard.path} are in two stores")
        if place is self.configuration and isinstance(operation, Put) and operation.ephemeral:
            raise InputError(f"{path} would be ephemeral, which the configuration store keeps none")
        return place

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`; one request for each run of operations on one store."""
        if not operations:
            return await self.local.batch(operations)
        outcomes: list[Outcome] = [None] * len(operations)
        run: list[int] = []
        of: MetadataStore = self.local
        for number, operation in enumerate(operations):
            try:
                place = self._place_of(operation)
                if isinstance(operation, Delete) and self._border.is_above(operation.path):
                    raise InputError(f"{operation.path} is in two stores: delete it by itself")
            except InputError as refusal:
                outcomes[number] = refusal
                continue
            if place is not of:
                await self._carry_out(of, operations, run, outcomes)
                run, of = [], place
            run.append(number)
        await self._carry_out(of, operations, run, outcomes)
        return outcomes

    async def _carry_out(
        self,
        store: MetadataStore,
        operations: Sequence[Operation],
        run: Sequence[int],
        outcomes: list[Outcome],
    ) -> None:
        if not run:
            return
        answers = await store.batch([operations[number] for number in run])
        for number, answer in zip(run, answers, strict=True):
            outcomes[number] = answer

    # --- many nodes -----------------------------------------------------------------------------

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        found = await self.part_of(path).children(path)
        if self._border.is_above(path):
            return sorted({*found, *await self.configuration.children(path)})
        return found

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`; a node above the border that both have is the cluster's own."""
        if not self._border.is_above(prefix):
            return self.part_of(prefix).scan(prefix)
        parts = (self.local, self.configuration)
        first, second = [self._shown(part, part.scan(prefix)) for part in parts]
        return merged(first, second)

    async def _shown(self, store: MetadataStore, nodes: AsyncIterator[Node]) -> AsyncIterator[Node]:
        """What a store has on its side of the border; what else it has there is not looked at."""
        async for node in nodes:
            path = node.stat.path
            if self._border.is_above(path) or self.part_of(path) is store:
                yield node

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """Refused: nodes of two stores cannot be brought into the order of an index."""
        raise InputError("an index is of one store: ask the metadata or the configuration store")

    # --- changes --------------------------------------------------------------------------------

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`; above the border a revision of one store alone is a gap."""
        if not self._border.is_above(prefix):
            part = self.part_of(prefix)
            return part.watch(prefix, self._own(part, since))
        parts = (self.local, self.configuration)
        if since is not None and not _is_of_both(since):
            return MergedWatch([part.watch(prefix) for part in parts], [_gap(since)])
        return MergedWatch([part.watch(prefix, self._own(part, since)) for part in parts])

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`; above the border it is not known."""
        if self._border.is_above(prefix):
            return _each([_gap(since)])
        part = self.part_of(prefix)
        own = self._own(part, since)
        assert own is not None
        return part.changed_since(own, prefix)

    def _own(self, part: MetadataStore, since: Revision | None) -> Revision | None:
        """A revision as one of the stores knows it."""
        if since is None or not _is_of_both(since):
            return since
        shift = _BITS if part is self.configuration else 0
        return Revision(since.epoch >> shift & _OWN, since.index >> shift & _OWN)

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`; larger than any that is of one store alone."""
        return _of_both(await self.local.revision(), await self.configuration.revision())

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        return _of_both(await self.local.moment(), await self.configuration.moment())

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        await self.local.sync()
        await self.configuration.sync()

    # --- copies ---------------------------------------------------------------------------------

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`; refused above the border."""
        if self._border.is_above(prefix):
            raise InputError(f"{prefix} is in two stores, which have no moment in common")
        return self.part_of(prefix).export(prefix, access=access, values=values)

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """Refused: a copy is of one store, and is restored there."""
        raise InputError("a copy is of one store: restore it into that one")

    # --- the session, and the end ---------------------------------------------------------------

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        return self.local.session_events()

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self.local.session

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`."""
        return self.local.session_timeout_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return self.local.session_valid_until

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`: that of either."""
        return self.local.failure or self.configuration.failure

    async def close(self) -> None:
        """See `MetadataStore.close`: both are closed."""
        async with AsyncExitStack() as held:
            held.push_async_callback(self.configuration.close)
            held.push_async_callback(self.local.close)


def part_holding(store: MetadataStore, prefix: str) -> MetadataStore:
    """The store that has all below a path, and whose session says whether it can be read."""
    return store.part_below(prefix) if isinstance(store, PartedStore) else store


def _of_both(local: Revision, configuration: Revision) -> Revision:
    return Revision(
        _OF_BOTH | configuration.epoch << _BITS | local.epoch,
        configuration.index << _BITS | local.index,
    )


def _is_of_both(revision: Revision) -> bool:
    return revision.epoch >= _OF_BOTH


def _gap(since: Revision) -> Event:
    return Event(EventKind.GAP, ROOT, since)


async def _each(events: Iterable[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event
