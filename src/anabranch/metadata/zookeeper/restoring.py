"""Writes exported nodes into ZooKeeper, with what of them it can keep.

A version is kept by writing the node so many times in one multi, up to a limit; above it the node
begins at 0. A sequence number is kept by making and removing children. Times cannot be kept.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from anabranch import limits
from anabranch.errors import ConflictError, InputError
from anabranch.metadata.operation_checks import check_record
from anabranch.metadata.paths import ROOT, join, parent_of
from anabranch.metadata.store import Record
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.naming import HIDDEN_PREFIX
from anabranch.metadata.zookeeper.replies import Acl, Code, Refusal
from anabranch.metadata.zookeeper.requests import Request
from anabranch.metadata.zookeeper.writing import Writer, meaning

Operations = list[Request[object]]


@dataclass(slots=True)
class _Parent:
    """A node whose children are being restored."""

    path: str
    next_sequence: int
    creates: int


class Restoring:
    """One restore."""

    def __init__(self, client: ZooKeeperClient, indexes: IndexNodes, writer: Writer) -> None:
        self._client = client
        self._indexes = indexes
        self._writer = writer
        self._pending: Operations = []
        self._owners: list[Record] = []
        """For each pending operation, the record it belongs to."""
        self._pending_bytes = 0
        self._parents: list[_Parent] = []

    async def run(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        count = 0
        async for record in records:
            check_record(record, holds_access=True)
            if record.next_sequence > limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX:
                raise InputError(
                    f"{record.path}: its next sequence number {record.next_sequence} is above the "
                    f"{limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX} that can be restored to ZooKeeper"
                )
            if record.session is None:
                await self._add(record)
                count += 1
        await self._leave(None)
        await self._flush()
        return count

    async def _add(self, record: Record) -> None:
        creates = 0
        if record.path == ROOT:
            creates = await self._add_root(record)
        else:
            parent = parent_of(record.path)
            await self._leave(parent)
            if self._parents:
                self._parents[-1].creates += 1
            elif parent != ROOT:
                await self._flush()
                await self._writer.make_parents(record.path, None, None)
            await self._add_node(record)
        self._parents.append(_Parent(record.path, record.next_sequence, creates))

    async def _add_root(self, record: Record) -> int:
        stat = await self._client.exists(ROOT)
        if stat.version:
            raise ConflictError("/ exists already: it was written to")
        writes = record.native_version
        if writes > limits.ZOOKEEPER_RESTORED_VERSION_MAX or (record.value and not writes):
            writes = 1
        await self._add_all(record, [self._client.op_set(ROOT, b"")] * (writes - 1))
        if writes:
            await self._finish(record, self._client.op_set(ROOT, record.value))
        if record.access:
            await self._flush()
            await self._client.set_acl(ROOT, self._acl(record))
        return stat.creates

    async def _add_node(self, record: Record) -> None:
        writes = record.native_version
        if not 0 < writes <= limits.ZOOKEEPER_RESTORED_VERSION_MAX:
            create = self._client.op_create(record.path, record.value, acl=self._acl(record))
            await self._finish(record, create)
            return
        create = self._client.op_create(record.path, b"", acl=self._acl(record))
        blank = self._client.op_set(record.path, b"")
        await self._add_all(record, [create, *[blank] * (writes - 1)])
        await self._finish(record, self._client.op_set(record.path, record.value))

    def _acl(self, record: Record) -> Sequence[Acl]:
        if not record.access:
            return self._writer.acl
        return [Acl(right.permissions, right.scheme, right.identity) for right in record.access]

    async def _finish(self, record: Record, last: Request[object]) -> None:
        """The write that gives a node its value; its keys come in the same moment."""
        together = [last, *await self._indexes.beside(record.path, record.indexes)]
        await self._make_room(sum(len(operation.body) + 16 for operation in together))
        for operation in together:
            self._append(record, operation)

    async def _add_all(self, record: Record, operations: Operations) -> None:
        for operation in operations:
            await self._make_room(len(operation.body) + 16)
            self._append(record, operation)

    def _append(self, record: Record, operation: Request[object]) -> None:
        self._pending.append(operation)
        self._owners.append(record)
        self._pending_bytes += len(operation.body) + 16

    async def _make_room(self, size_bytes: int) -> None:
        if self._pending and (
            len(self._pending) >= limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX
            or self._pending_bytes + size_bytes > self._client.request_bytes_max // 2
        ):
            await self._flush()

    async def _flush(self) -> None:
        operations, owners = self._pending, self._owners
        self._pending, self._owners, self._pending_bytes = [], [], 0
        if not operations:
            return
        refused = await self._try(operations)
        if refused is None:
            return
        place, refusal = refused
        record = owners[place]
        # What came before stays, so it is written without the one that was refused.
        before = [
            operation
            for operation, owner in zip(operations, owners, strict=True)
            if owner is not record
        ][: owners.index(record)]
        if before and (again := await self._try(before)) is not None:
            raise meaning(again[1], owners[again[0]].path)
        if refusal.code == Code.NODE_EXISTS:
            raise ConflictError(f"{record.path} exists already: nothing from there on was restored")
        raise meaning(refusal, record.path)

    async def _try(self, operations: Operations) -> tuple[int, Refusal] | None:
        """Carry out all, or say which one was refused."""
        for place, part in enumerate(await self._client.multi(operations)):
            if isinstance(part, Refusal) and part.code not in (
                Code.OK,
                Code.RUNTIME_INCONSISTENCY,
            ):
                return place, part
        return None

    async def _leave(self, parent: str | None) -> None:
        """All children of the nodes below `parent` are there: see to their sequence numbers."""
        while self._parents and self._parents[-1].path != parent:
            left = self._parents.pop()
            missing = left.next_sequence - left.creates
            if missing > 0:
                await self._flush()
                await self._count_up(left.path, missing)

    async def _count_up(self, path: str, times: int) -> None:
        name = join(path, f"{HIDDEN_PREFIX}passed-restore")
        pair: Operations = [self._client.op_create(name, b""), self._client.op_delete(name)]
        pairs_max = max(
            1,
            min(
                limits.ZOOKEEPER_RESTORE_OPERATIONS_MAX // 2,
                self._client.request_bytes_max // (4 * len(pair[0].body) + 64),
            ),
        )
        while times > 0:
            pairs = min(times, pairs_max)
            if (refused := await self._try(pair * pairs)) is not None:
                raise meaning(refused[1], path)
            times -= pairs
