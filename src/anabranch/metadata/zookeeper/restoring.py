"""Writes exported nodes into ZooKeeper, with what of them it can keep.

A version is kept by writing the node so many times in one multi, up to a limit; above it the node
begins at 0. A sequence number is kept by making and removing children. Times cannot be kept. Access
rights come last, see `closing`: when all that is below a node is there, or all of a copy.

Where nothing is, nothing can be refused, so several requests are under way; elsewhere one at a
time, so that nothing comes behind a node that was in the way.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError, InputError
from anabranch.metadata.access_rights import tell_open
from anabranch.metadata.operation_checks import check_record
from anabranch.metadata.paths import ROOT, is_within, join, parent_of
from anabranch.metadata.store import Record
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.client import ZooKeeperClient
from anabranch.metadata.zookeeper.closing import Closing, Rights
from anabranch.metadata.zookeeper.indexing import IndexNodes
from anabranch.metadata.zookeeper.naming import HIDDEN_PREFIX, shown
from anabranch.metadata.zookeeper.refusals import meaning
from anabranch.metadata.zookeeper.replies import Acl, Code, Part, Refusal
from anabranch.metadata.zookeeper.request_sizes import RequestSize
from anabranch.metadata.zookeeper.requests import Request
from anabranch.metadata.zookeeper.writing import Writer

Operations = list[Request[object]]
_PART_BYTES: Final = 16
"""What an operation takes in a request besides its body."""


@dataclass(slots=True)
class _Parent:
    """A node whose children are being restored."""

    record: Record
    creates: int


class _Multi(NamedTuple):
    """Operations that are under way together, each with the record it belongs to."""

    operations: Operations
    owners: list[Record]
    answer: asyncio.Future[list[Part]]


class Restoring:
    """One restore."""

    def __init__(
        self,
        client: ZooKeeperClient,
        indexes: IndexNodes,
        writer: Writer,
        *,
        closes: bool,
        alone: bool = False,
    ) -> None:
        self._client = client
        self._closes = closes
        """Whether nodes get their own access rights here; otherwise somebody does it later."""
        self._closing = Closing(client)
        self._open: dict[str, Rights] = {}
        """Nodes that were made and are open to us still, with the rights that they are to have."""
        self._whole: list[tuple[str, Rights]] = []
        """Nodes to be closed: what is below them is there, or under way."""
        self._has_rights = False
        self._indexes = indexes
        self._writer = writer
        self._size = RequestSize()
        self._bytes_max = client.request_bytes_max // 2
        self._free: str | None = ROOT if alone else None
        """At and below this path there was nothing, so that nothing can be in the way."""
        self._pending: Operations = []
        self._owners: list[Record] = []
        """For each pending operation, the record it belongs to."""
        self._pending_bytes = 0
        self._under_way: deque[_Multi] = deque()
        self._parents: list[_Parent] = []
        self._create = client.creating(writer.acl)
        self._loop = asyncio.get_running_loop()

    async def run(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        count = 0
        try:
            async for record in records:
                check_record(record, holds_access=True)
                if record.next_sequence > limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX:
                    raise InputError(
                        f"{record.path}: its next sequence number {record.next_sequence} is above "
                        f"the {limits.ZOOKEEPER_RESTORED_SEQUENCE_MAX} that can be restored to "
                        "ZooKeeper"
                    )
                if record.session is None:
                    if not count and self._free is None:
                        # Often all is empty, whatever the first node is.
                        self._free = await self._nothing_at(ROOT) or await self._nothing_at(
                            record.path
                        )
                    if not self._add_plain(record):
                        await self._add(record)
                    count += 1
            await self._leave(None)
            await self._close_whole()
        except (ConflictError, InputError) as error:
            try:
                await self._close_open()
            except AnabranchError as reason:
                tell_open(error, ROOT, f"they could not be closed ({reason}): set their rights")
            raise
        except (Exception, asyncio.CancelledError) as error:
            # Who goes on would be shut out by what was closed.
            if self._has_rights and self._closes:
                tell_open(error, ROOT, "the same once more goes on and closes them")
            raise
        finally:
            left = [multi.answer for multi in self._under_way]
            await asyncio.gather(*left, return_exceptions=True)
        return count

    async def _close_whole(self) -> None:
        await self._flush()
        await self._settle(0)
        await self._closing.close(self._whole)
        for path, _ in self._whole:
            self._open.pop(path, None)
        self._whole.clear()

    async def _close_open(self) -> None:
        """After a failure: of what was made, nothing stays open."""
        for multi in self._under_way:
            await asyncio.gather(multi.answer, return_exceptions=True)
            self._note_open(multi.owners)
        await self._closing.close_made([*self._open.items()])

    def _note_open(self, made: Sequence[Record]) -> None:
        if self._has_rights and self._closes:
            self._open.update(
                (record.path, record.access)
                for record in made
                if record.access and record.path != ROOT  # which nobody opened
            )

    async def _nothing_at(self, path: str) -> str | None:
        """The path, if there is nothing at or below it; a root is always there."""
        try:
            names, _ = await self._client.children(path)
        except Refusal as refusal:
            if path == ROOT and refusal.code == Code.NO_AUTH:
                return None  # who may write below it need not be allowed to look at it
            if refusal.code != Code.NO_NODE:
                raise meaning(refusal, path) from None
            return path
        at_top = self._client.chroot == ROOT
        return path if path == ROOT and not shown(path, names, at_top=at_top) else None

    def _add_plain(self, record: Record) -> bool:
        """Add a node that needs no more than to be made, as most do; otherwise do nothing."""
        path, value, writes, _, _, _, _, indexes, access = record
        if (
            access
            or indexes
            or 0 < writes <= limits.ZOOKEEPER_RESTORED_VERSION_MAX
            or len(self._pending) >= self._size.operations_max
            or not self._is_below_last(path[: path.rindex("/")] or ROOT)
        ):
            return False
        operation = self._create(path, value)
        size_bytes = len(operation.body) + _PART_BYTES
        if self._pending_bytes + size_bytes > self._bytes_max:
            return False
        self._pending.append(operation)
        self._owners.append(record)
        self._pending_bytes += size_bytes
        self._parents[-1].creates += 1
        self._parents.append(_Parent(record, 0))
        return True

    def _is_below_last(self, parent: str) -> bool:
        """Leave nodes that nothing is to be done about; whether `parent` is where we are then."""
        parents = self._parents
        while parents:
            last = parents[-1]
            record = last.record
            if record.path == parent:
                return True
            if record.access or record.next_sequence > last.creates:
                return False
            parents.pop()
        return False

    async def _add(self, record: Record) -> None:
        creates = 0
        if record.path == ROOT:
            creates = await self._add_root(record)
        else:
            parent = parent_of(record.path)
            if not self._parents or self._parents[-1].record.path != parent:
                await self._leave(parent)
            if self._parents:
                self._parents[-1].creates += 1
            elif parent != ROOT:
                await self._flush()
                await self._settle(0)
                await self._writer.make_parents(record.path, None, None)
                self._parents.append(_Parent(Record(parent, b"", 0, 0, 0), 0))
            await self._add_node(record)
        self._parents.append(_Parent(record, creates))

    async def _add_root(self, record: Record) -> int:
        stat = await self._client.exists(ROOT)
        if stat.version:
            raise ConflictError("/ exists already: it was written to")
        writes = record.native_version
        if writes > limits.ZOOKEEPER_RESTORED_VERSION_MAX or (record.value and not writes):
            writes = 1
        if writes:
            blank: Operations = [self._client.op_set(ROOT, b"")] * (writes - 1)
            await self._add_writes(record, blank, self._client.op_set(ROOT, record.value))
        return stat.creates

    async def _add_node(self, record: Record) -> None:
        acl: Sequence[Acl] = self._writer.acl
        if record.access:
            self._has_rights = True
            acl = await self._closing.open_acl(record.access)
        writes = record.native_version
        if not 0 < writes <= limits.ZOOKEEPER_RESTORED_VERSION_MAX:
            create = self._client.op_create(record.path, record.value, acl=acl)
            await self._add_writes(record, [], create)
            return
        create = self._client.op_create(record.path, b"", acl=acl)
        blank = self._client.op_set(record.path, b"")
        last = self._client.op_set(record.path, record.value)
        await self._add_writes(record, [create, *[blank] * (writes - 1)], last)

    async def _add_writes(self, record: Record, before: Operations, last: Request[object]) -> None:
        """What makes a node; the last write gives it its value, and its keys in the same moment.

        All of it is in one multi, so that a node is there whole or not at all, except if one cannot
        take it.
        """
        together = [last]
        if record.indexes:
            together += await self._indexes.beside(record.path, record.indexes)
        if before and _size_bytes([*before, *together]) > self._bytes_max:
            for operation in before:
                await self._add_together(record, [operation])
        else:
            together = [*before, *together]
        await self._add_together(record, together)

    async def _add_together(self, record: Record, operations: Operations) -> None:
        size_bytes = _size_bytes(operations)
        count = len(self._pending) + len(operations)
        if self._pending and (
            count > self._size.operations_max or self._pending_bytes + size_bytes > self._bytes_max
        ):
            await self._flush()
        self._pending += operations
        self._owners += [record] * len(operations)
        self._pending_bytes += size_bytes

    async def _flush(self) -> None:
        """Send what is pending; where something may be in the way, wait for the answer."""
        operations, owners = self._pending, self._owners
        self._pending, self._owners, self._pending_bytes = [], [], 0
        if not operations:
            return
        answer = self._client.begin(requests.multi_done(operations))
        begun_s = self._loop.time()
        answer.add_done_callback(lambda _: self._size.answered(self._loop.time() - begun_s))
        self._under_way.append(_Multi(operations, owners, answer))
        free = self._free is not None and is_within(self._free, owners[-1].path)
        await self._settle(self._size.under_way_max if free else 0)

    async def _settle(self, under_way_max: int) -> None:
        while len(self._under_way) > under_way_max:
            multi = self._under_way[0]
            refused = _refused(await multi.answer)
            self._under_way.popleft()
            if refused is not None:
                await self._stop(multi, *refused)
            self._note_open(multi.owners)

    async def _stop(self, multi: _Multi, place: int, refusal: Refusal) -> None:
        """Write what came before a node that was refused, without it; then say why."""
        operations, owners, _ = multi
        record = owners[place]
        while place and owners[place - 1] is record:
            place -= 1
        before = operations[:place]
        if before and (again := _refused(await self._client.multi(before))) is not None:
            raise meaning(again[1], owners[again[0]].path)
        self._note_open(owners[:place])
        if refusal.code == Code.NODE_EXISTS:
            rest = "some nodes" if self._under_way else "nothing"
            raise ConflictError(f"{record.path} exists already: {rest} from there on was restored")
        raise meaning(refusal, record.path)

    async def _leave(self, parent: str | None) -> None:
        """All children of the nodes below `parent` are there: see to their sequence numbers."""
        while self._parents and self._parents[-1].record.path != parent:
            left = self._parents.pop()
            missing = left.record.next_sequence - left.creates
            if missing > 0:
                await self._count_up(left.record, missing)
            if left.record.access and self._closes:
                self._whole.append((left.record.path, left.record.access))
                if len(self._whole) >= limits.METADATA_PAGE_NODES_MAX:
                    await self._close_whole()

    async def _count_up(self, record: Record, times: int) -> None:
        name = join(record.path, f"{HIDDEN_PREFIX}passed-restore")
        pair: Operations = [self._client.op_create(name, b""), self._client.op_delete(name)]
        owner = Record(*record)  # another one: the node itself is not what is refused here
        for _ in range(times):
            await self._add_together(owner, pair)


def _size_bytes(operations: Operations) -> int:
    return sum([len(operation.body) + _PART_BYTES for operation in operations])


def _refused(answer: list[Part]) -> tuple[int, Refusal] | None:
    """Which operation was refused, if one was."""
    for place, part in enumerate(answer):
        if isinstance(part, Refusal) and part.code not in (Code.OK, Code.RUNTIME_INCONSISTENCY):
            return place, part
    return None
