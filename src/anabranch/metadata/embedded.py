"""The durable metadata store of one process: a state machine behind a log with one voter.

This is the shell: it carries out what `consensus.replica` says, on a journal and a snapshot file
behind `runtime.disk`. Only the factory names it. In its folder: `log/` the journal, `snapshot` the
state as it was at some record of the log, `lock` against a second process.
"""

import asyncio
import contextlib
from functools import partial
from typing import Final

from anabranch import limits
from anabranch.consensus import log, replica
from anabranch.consensus.log import BEGINNING, LogPosition
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    Corruption,
    FormatError,
    InputError,
    OutcomeUnknown,
    StorageError,
    StoreFailed,
)
from anabranch.journal import Journal, RecordPlace
from anabranch.metadata import commands, snapshot
from anabranch.metadata.byte_budget import ByteBudget
from anabranch.metadata.commands import Command, EndSessions, OpenSession
from anabranch.metadata.local_handle import Answer, Backing, LocalHandle
from anabranch.metadata.state_machine import Effect, StateMachine
from anabranch.metadata.tree_view import TreeView
from anabranch.runtime import Disk, Runtime
from anabranch.runtime.disk import FolderLock
from anabranch.runtime.tasks import Tasks

JOURNAL_KIND: Final = b"META"


class EmbeddedBacking(Backing):
    """A state whose every change is durable before it is seen."""

    def __init__(
        self, runtime: Runtime, folder: str, machine: StateMachine, state: replica.Replica
    ) -> None:
        """Use `open`."""
        super().__init__(machine, runtime.clock)
        self._disk = runtime.disk
        self._folder = folder
        self._replica = state
        self._journal: Journal
        self._lock: FolderLock
        self._closed = False
        self._tasks = Tasks(self.task_failed)
        self._snapshot_task: asyncio.Task[None] | None = None
        self._first_kept_segment = 0
        self._budget = ByteBudget(limits.METADATA_IN_FLIGHT_BYTES_MAX)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, Answer] = {}
        self._next_ticket = 1

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, *, snapshot_after_bytes: int
    ) -> "EmbeddedBacking":
        """See `EmbeddedStore.open`."""
        disk = runtime.disk
        try:
            await disk.make_folder(folder)
            lock = disk.lock_folder(folder)
        except OSError as error:
            raise StorageError(f"cannot open the metadata store in {folder}: {error}") from error
        try:
            await _refuse_foreign_folder(disk, folder)
            machine, position, snapshot_bytes = await _load_snapshot(disk, folder)
            state = replica.Replica(snapshot_after_bytes=snapshot_after_bytes)
            backing = cls(runtime, folder, machine, state)
            backing._lock = lock
            await backing._recover(position, snapshot_bytes)
        except OSError as error:
            lock.release()
            raise StorageError(f"cannot open the metadata store in {folder}: {error}") from error
        except BaseException:
            lock.release()
            raise
        return backing

    async def begin_local_session(self) -> int:
        """Open the session of this process; the lock proves that older ones of its kind are dead.

        Raises:
            StorageError: if the disk fails; everything is let go of in that case.
        """
        ends = self.machine.local_sessions()
        command = OpenSession(self.clock.wall_ms(), timeout_ms=0, ends=ends)
        try:
            return (await (await self.propose(command))).opened
        except OutcomeUnknown as error:
            await self._let_go()
            raise StorageError(f"cannot open the metadata store: {error}") from error
        except BaseException:
            await self._let_go()
            raise

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

    async def leave(self, handle: LocalHandle) -> None:
        """See `Backing.leave`."""
        self._closed = not self.handles
        if self._replica.phase is replica.Phase.LEADING:
            # If the disk fails now, the next to open the folder ends the session.
            with contextlib.suppress(OutcomeUnknown, StoreFailed):
                await self._end_session(handle.session)
        if not self.handles:
            await self._let_go()

    async def _let_go(self) -> None:
        self._closed = True
        if self._snapshot_task is not None:
            # Not cancelled: a snapshot that reached the disk after this store was opened again
            # would belong to a log that is no more.
            await asyncio.wait([self._snapshot_task])
        await self._tasks.close()
        await self._journal.close()
        self._lock.release()

    # --- writing ------------------------------------------------------------------------------

    async def propose(self, command: Command) -> Answer:
        """See `Backing.propose`: the answer comes when the command is durable and applied."""
        payload = commands.encode(command)
        if log.HEADER_BYTES + len(payload) > limits.JOURNAL_RECORD_BYTES_MAX:
            raise InputError(
                f"a command of {len(payload)} bytes, "
                f"at most {limits.JOURNAL_RECORD_BYTES_MAX - log.HEADER_BYTES} fit a log record"
            )
        await self._budget.take(len(payload))
        if self._closed:
            self._budget.give_back(len(payload))
            raise AlreadyClosed("the metadata store was closed")
        return self._send(payload)

    async def _end_session(self, session: int) -> None:
        payload = commands.encode(EndSessions(self.clock.wall_ms(), (session,)))
        await self._budget.take(len(payload))
        await self._send(payload)

    def _send(self, payload: bytes) -> Answer:
        ticket = self._next_ticket
        self._next_ticket += 1
        answer: Answer = asyncio.get_running_loop().create_future()
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
                self._answer(ticket, StoreFailed(f"the metadata store has failed: {self.failure}"))
            case replica.Abandon(ticket):
                self._answer(ticket, OutcomeUnknown(f"the disk failed: {self.failure}"))
            case replica.Seal():
                self._first_kept_segment = self._journal.roll()
            case replica.TakeSnapshot(position):
                self._snapshot_task = self._tasks.spawn(
                    "metadata-snapshot",
                    self._store_snapshot(self._snapshot_head(position), self.machine.tree.freeze()),
                )
            case replica.DropLog():
                raise AssertionError("only a snapshot that was stored lets the log be cut")

    def _appended(self, index: int, error: Exception | None) -> None:
        if error is None:
            self._step(replica.Appended(index))
            return
        self._fail(error if isinstance(error, AnabranchError) else StorageError(f"log: {error}"))

    def _fail(self, failure: AnabranchError) -> None:
        if self.failure is None:
            self.failure = failure
        self._step(replica.AppendFailed())
        if not self._ready.done():
            self._ready.set_exception(failure)

    def _apply(self, record: log.LogRecord, ticket: int | None) -> None:
        # From the record, not from what the caller passed: what is shown is what a restart shows.
        try:
            effect = self.apply(commands.decode(record.payload), record.term)
        except Exception as error:
            # What follows in the log must not be applied, nor answered, without this.
            if self._ready.done():
                self._fail(StoreFailed(f"log record {record.index} cannot be applied: {error!r}"))
            raise
        if ticket is not None:
            self._answer(ticket, effect)

    def _answer(self, ticket: int, outcome: Effect | AnabranchError) -> None:
        answer = self._answers.pop(ticket)
        if answer.done():  # its caller was cancelled
            return
        if isinstance(outcome, AnabranchError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    # --- snapshots ----------------------------------------------------------------------------

    def _snapshot_head(self, position: LogPosition) -> tuple[LogPosition, bytes]:
        machine = self.machine
        header = snapshot.SnapshotHeader(position, machine.tree.counters, machine.last_session)
        return position, snapshot.encode_header(header) + snapshot.encode_sessions(machine.sessions)

    async def _store_snapshot(self, head: tuple[LogPosition, bytes], view: TreeView) -> None:
        position, content = head[0], bytearray(head[1])
        node_count = 0
        try:
            while page := view.next_page():
                content += snapshot.encode_nodes(page)
                node_count += len(page)
                await asyncio.sleep(0)
                if self._closed:
                    return
        finally:
            self.machine.tree.release(view)
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

    def task_failed(self, name: str, failure: BaseException) -> None:
        """See `Backing.task_failed`."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{name} of {self._folder} broke", "exception": failure}
        )


class EmbeddedStore(LocalHandle):
    """The store in a folder, seen with the session of this process."""

    _backing: EmbeddedBacking

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
        backing = await EmbeddedBacking.open(
            runtime, folder, snapshot_after_bytes=snapshot_after_bytes
        )
        return cls(backing, await backing.begin_local_session())


async def _refuse_foreign_folder(disk: Disk, folder: str) -> None:
    for name in await disk.list(folder):
        if name not in ("log", "lock") and not name.startswith("snapshot"):
            raise FormatError(
                f"{folder} is not a metadata store: it holds {name!r}; choose another folder"
            )


async def _load_snapshot(disk: Disk, folder: str) -> tuple[StateMachine, LogPosition, int]:
    file = f"{folder}/snapshot"
    if not await disk.exists(file):
        return StateMachine(), BEGINNING, 0
    if not await disk.exists(f"{folder}/log"):
        raise Corruption(f"{folder}/log", 0, "there is a snapshot, but the log is missing")
    content = await disk.read(file)
    reader = snapshot.SnapshotReader(file, content)
    machine = StateMachine(reader.header.counters, reader.header.last_session)
    machine.sessions.update(reader.sessions)
    for nodes in reader.blocks():
        for path, entry in nodes:
            machine.tree.load(path, entry)
        await asyncio.sleep(0)
    return machine, reader.header.position, len(content)
