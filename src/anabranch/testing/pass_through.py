"""A metadata store that hands every call of the contract to another one, and has nothing else.

Whatever works through it needs no more than the contract of its store: no class, and no attribute
that only one kind of store has.
"""

from collections.abc import AsyncIterator, Sequence

from anabranch.errors import AnabranchError
from anabranch.metadata.store import (
    ANY,
    Event,
    Expected,
    Guard,
    IndexKey,
    MetadataStore,
    Node,
    Operation,
    Outcome,
    Record,
    Revision,
    SessionEvent,
    Stat,
)


class PassThrough:
    """See `MetadataStore`, for all of it."""

    def __init__(self, behind: MetadataStore) -> None:
        self._behind = behind
        self.fencing = behind.fencing

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        return await self._behind.get(path)

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
        return await self._behind.put(
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
        await self._behind.delete(path, expected, guard=guard)

    async def exists(self, path: str) -> bool:
        """See `MetadataStore.exists`."""
        return await self._behind.exists(path)

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        return await self._behind.children(path)

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """See `MetadataStore.scan`."""
        return self._behind.scan(prefix)

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """See `MetadataStore.scan_index`."""
        return self._behind.scan_index(index, first, last)

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`."""
        return await self._behind.batch(operations)

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`."""
        return self._behind.watch(prefix, since)

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """See `MetadataStore.changed_since`."""
        return self._behind.changed_since(since, prefix)

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        return self._behind.session_events()

    @property
    def session(self) -> int:
        """See `MetadataStore.session`."""
        return self._behind.session

    @property
    def session_timeout_s(self) -> float:
        """See `MetadataStore.session_timeout_s`."""
        return self._behind.session_timeout_s

    @property
    def session_valid_until(self) -> float:
        """See `MetadataStore.session_valid_until`."""
        return self._behind.session_valid_until

    async def sync(self) -> None:
        """See `MetadataStore.sync`."""
        await self._behind.sync()

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """See `MetadataStore.export`."""
        return self._behind.export(prefix, access=access, values=values)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        return await self._behind.record(path)

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        return await self._behind.restore(records)

    @property
    def failure(self) -> AnabranchError | None:
        """See `MetadataStore.failure`."""
        return self._behind.failure

    async def revision(self) -> Revision:
        """See `MetadataStore.revision`."""
        return await self._behind.revision()

    async def moment(self) -> Revision:
        """See `MetadataStore.moment`."""
        return await self._behind.moment()

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        await self._behind.close()
