"""The durable metadata store of one process: a tree behind a replicated log with one voter.

This is the shell: it carries out what `consensus.replica` says, on a journal and a snapshot file
behind `runtime.disk`. Only the factory names it. In its folder: `log/` the journal, `snapshot` the
tree as it was at some record of the log, `lock` against a second process.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from anabranch import limits
from anabranch.consensus import log, replica
from anabranch.consensus.log import BEGINNING, LogPosition
from anabranch.errors import (
    AnabranchError,
    Corruption,
    FormatError,
    OutcomeUnknown,
    StorageError,
    StoreFailed,
)
from anabranch.journal import Journal, RecordPlace
from anabranch.metadata import commands, snapshot
from anabranch.metadata.byte_budget import ByteBudget
from anabranch.metadata.local_tree import LocalTreeReads, check_operation, split_checked
from anabranch.metadata.store import ANY, Delete, Expected, Operation, Outcome, Put, Stat
from anabranch.metadata.tree import Tree, TreeView
from anabranch.runtime import Disk, Runtime
from anabranch.runtime.disk import FolderLock
from anabranch.runtime.tasks import Tasks

JOURNAL_KIND: Final = b"META"
_Answer = asyncio.Future[list[Outcome]]


class EmbeddedStore(LocalTreeReads):
    """A tree whose every change is durable before it is seen."""

    def __init__(self, runtime: Runtime, folder: str, tree: Tree, state: replica.Replica) -> None:
        """Use `open`."""
        super().__init__(tree)
        self._clock = runtime.clock
        self._disk = runtime.disk
        self._folder = folder
        self._replica = state
        self._journal: Journal
        self._lock: FolderLock
        self._tasks = Tasks(self._task_failed)
        self._snapshot_task: asyncio.Task[None] | None = None
        self._first_kept_segment = 0
        self._budget = ByteBudget(limits.METADATA_IN_FLIGHT_BYTES_MAX)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, _Answer] = {}
        self._next_ticket = 1

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        folder: str,
        *,
        snapshot_after_bytes: int = limits.METADATA_SNAPSHOT_AFTER_BYTES,
    ) -> "EmbeddedStore":
        """Open the store in a folder, which is made if it is not there.

        Raises:
            FolderInUse: if another process has it open.
            FormatError: if the folder holds something else or a version this build does not know.
            Corruption: if stored bytes are damaged; names the file and the place.
            StorageError: if the disk fails.
        """
        disk = runtime.disk
        try:
            await disk.make_folder(folder)
            lock = disk.lock_folder(folder)
        except OSError as error:
            raise StorageError(f"cannot open the metadata store in {folder}: {error}") from error
        try:
            await _refuse_foreign_folder(disk, folder)
            tree, position, snapshot_bytes = await _load_snapshot(disk, folder)
            state = replica.Replica(snapshot_after_bytes=snapshot_after_bytes)
            store = cls(runtime, folder, tree, state)
            store._lock = lock
            await store._recover(position, snapshot_bytes)
        except OSError as error:
            lock.release()
            raise StorageError(f"cannot open the metadata store in {folder}: {error}") from error
        except BaseException:
            lock.release()
            raise
        return store

    async def _recover(self, position: LogPosition, snapshot_bytes: int) -> None:
        self._step(replica.Opened(position, snapshot_bytes))
        self._journal = await Journal.open(
            self._disk,
            f"{self._folder}/log",
            kind=JOURNAL_KIND,
            segment_bytes=limits.METADATA_LOG_SEGMENT_BYTES,
            replay=self._replay,
        )
        try:
            self._step(replica.RecoveryEnded())
            await self._ready
        except BaseException:
            await self._journal.close()
            raise

    def _replay(self, place: RecordPlace, data: memoryview) -> None:
        file = f"{self._folder}/log, segment {place.segment}"
        try:
            self._step(replica.Recovered(log.decode(data)))
        except replica.LogDiscontinuity as error:
            raise Corruption(file, place.offset, str(error)) from error
        except FormatError as error:
            raise FormatError(f"{file}, byte {place.offset}: {error}") from error

    # --- the contract -------------------------------------------------------------------------

    async def put(self, path: str, value: bytes, expected: Expected = ANY) -> Stat:
        """See `MetadataStore.put`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        outcome = await self._write_one(Put(path, value, expected))
        assert outcome is not None
        return outcome

    async def delete(self, path: str, expected: Expected = ANY) -> None:
        """See `MetadataStore.delete`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        await self._write_one(Delete(path, expected))

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """See `MetadataStore.batch`; a `StorageError` or `OutcomeUnknown` if the disk fails."""
        self._check_open()
        outcomes: list[Outcome] = [None] * len(operations)
        sent: list[tuple[list[int], _Answer]] = []
        for places, command in split_checked(operations, outcomes):
            sent.append((places, await self._propose(command)))
        # All have answered before the first failure is raised: no answer is left unread.
        await asyncio.gather(*(answer for _, answer in sent), return_exceptions=True)
        for places, answer in sent:
            for place, outcome in zip(places, answer.result(), strict=True):
                outcomes[place] = outcome
        return outcomes

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._closed:
            return
        self._closed = True
        if self._snapshot_task is not None:
            # Not cancelled: a snapshot that reached the disk after this store was opened again
            # would belong to a log that is no more.
            await asyncio.wait([self._snapshot_task])
        await self._tasks.close()
        await self._journal.close()
        self._history.close()
        self._lock.release()

    # --- writing ------------------------------------------------------------------------------

    async def _write_one(self, operation: Operation) -> Stat | None:
        self._check_open()
        check_operation(operation)
        (outcome,) = await (await self._propose([operation]))
        if isinstance(outcome, AnabranchError):
            raise outcome
        return outcome

    async def _propose(self, operations: Sequence[Operation]) -> _Answer:
        """Bring a command on its way; the answer comes when it is durable and applied."""
        payload = commands.encode(commands.Command(self._clock.wall_ms(), operations))
        await self._budget.take(len(payload))
        try:
            self._check_open()
        except BaseException:
            self._budget.give_back(len(payload))
            raise
        ticket = self._next_ticket
        self._next_ticket += 1
        answer: _Answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._budget.give_back(len(payload)))
        self._answers[ticket] = answer
        self._step(replica.Propose(ticket, payload))
        return answer

    def _step(self, event: replica.ReplicaEvent) -> None:
        for instruction in self._replica.step(event):
            self._carry_out(instruction)

    def _carry_out(self, instruction: replica.Instruction) -> None:
        match instruction:
            case replica.Append(record):
                self._journal.append(log.encode(record), partial(self._appended, record.index))
            case replica.Apply(record, ticket):
                self._apply(record, ticket)
            case replica.Ready():
                self._ready.set_result(None)
            case replica.Refuse(ticket):
                self._answer(ticket, StoreFailed(f"the metadata store has failed: {self._failure}"))
            case replica.Abandon(ticket):
                self._answer(ticket, OutcomeUnknown(f"the disk failed: {self._failure}"))
            case replica.Seal():
                self._first_kept_segment = self._journal.roll()
            case replica.TakeSnapshot(position):
                self._snapshot_task = self._tasks.spawn(
                    "metadata-snapshot", self._store_snapshot(position, self._tree.freeze())
                )
            case replica.DropLog():
                raise AssertionError("only a snapshot that was stored lets the log be cut")

    def _appended(self, index: int, error: Exception | None) -> None:
        if error is None:
            self._step(replica.Appended(index))
            return
        self._fail(error if isinstance(error, AnabranchError) else StorageError(f"log: {error}"))

    def _fail(self, failure: AnabranchError) -> None:
        if self._failure is None:
            self._failure = failure
        self._step(replica.AppendFailed())
        if not self._ready.done():
            self._ready.set_exception(failure)

    def _apply(self, record: log.LogRecord, ticket: int | None) -> None:
        # From the record, not from what the caller passed: what is shown is what a restart shows.
        command = commands.decode(record.payload)
        applied = self._tree.apply(command.operations, epoch=record.term, wall_ms=command.wall_ms)
        self._history.publish(applied.events)
        if ticket is not None:
            self._answer(ticket, applied.outcomes)

    def _answer(self, ticket: int, outcome: list[Outcome] | AnabranchError) -> None:
        answer = self._answers.pop(ticket)
        if answer.done():  # its caller was cancelled
            return
        if isinstance(outcome, AnabranchError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    # --- snapshots ----------------------------------------------------------------------------

    async def _store_snapshot(self, position: LogPosition, view: TreeView) -> None:
        content = bytearray(
            snapshot.encode_header(snapshot.SnapshotHeader(position, view.counters))
        )
        node_count = 0
        try:
            while page := view.next_page():
                content += snapshot.encode_nodes(page)
                node_count += len(page)
                await asyncio.sleep(0)
                if self._closed:
                    return
        finally:
            self._tree.release(view)
        content += snapshot.encode_end(node_count)
        try:
            await self._disk.replace(f"{self._folder}/snapshot", content)
        except OSError as error:
            self._fail(StorageError(f"cannot store a snapshot in {self._folder}: {error}"))
            return
        for instruction in self._replica.step(replica.SnapshotStored(position, len(content))):
            assert isinstance(instruction, replica.DropLog)
            try:
                await self._journal.drop_segments_below(self._first_kept_segment)
            except StorageError as error:
                self._fail(error)

    def _task_failed(self, name: str, failure: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{name} of {self._folder} broke", "exception": failure}
        )


async def _refuse_foreign_folder(disk: Disk, folder: str) -> None:
    for name in await disk.list(folder):
        if name not in ("log", "lock") and not name.startswith("snapshot"):
            raise FormatError(
                f"{folder} is not a metadata store: it holds {name!r}; choose another folder"
            )


async def _load_snapshot(disk: Disk, folder: str) -> tuple[Tree, LogPosition, int]:
    file = f"{folder}/snapshot"
    if not await disk.exists(file):
        return Tree(), BEGINNING, 0
    if not await disk.exists(f"{folder}/log"):
        raise Corruption(f"{folder}/log", 0, "there is a snapshot, but the log is missing")
    content = await disk.read(file)
    reader = snapshot.SnapshotReader(file, content)
    tree = Tree(reader.header.counters)
    for nodes in reader.blocks():
        for path, entry in nodes:
            tree.load(path, entry)
        await asyncio.sleep(0)
    return tree, reader.header.position, len(content)
