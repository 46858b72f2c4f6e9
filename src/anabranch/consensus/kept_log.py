"""The log of one voter: what is in it, durable, committed and applied.

Pure. It knows records, the disk's order and snapshots, and nothing of other voters: what makes a
record committed is decided in `replica.py`.
"""

from anabranch.consensus import log
from anabranch.consensus.events import (
    Abandon,
    Append,
    Apply,
    DropLog,
    Instruction,
    Seal,
    TakeSnapshot,
)
from anabranch.consensus.log import BEGINNING, LogPosition, LogRecord, RecordKind
from anabranch.consensus.recovery import ReadBack, check_follows
from anabranch.consensus.snapshots import SnapshotSchedule
from anabranch.consensus.tail import LogTail
from anabranch.consensus.writes import Writes
from anabranch.errors import FormatError


class KeptLog:
    """Indexes: snapshot <= applied <= committed, applied <= durable <= last."""

    def __init__(self, *, snapshot_after_bytes: int, alone: bool) -> None:
        self.tail = LogTail(BEGINNING)
        self.writes = Writes()
        self.durable_index = 0
        self.committed_index = 0
        self.applied = BEGINNING
        self._alone = alone
        self._schedule = SnapshotSchedule(snapshot_after_bytes)
        self._promise = log.vote(0, log.NOBODY)
        self._tickets: dict[int, int] = {}
        self._read_back = ReadBack(BEGINNING)

    @property
    def last(self) -> LogPosition:
        """The newest record, durable or not."""
        return self.tail.last

    @property
    def is_storing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._schedule.being_stored

    # --- reading it back ----------------------------------------------------------------------

    def opened(self, snapshot: LogPosition, snapshot_bytes: int) -> None:
        """The stored snapshot, before any record."""
        self._schedule.loaded(snapshot, snapshot_bytes)
        self._begin_at(snapshot)
        self._read_back = ReadBack(snapshot)

    def _begin_at(self, snapshot: LogPosition) -> None:
        self.tail = LogTail(snapshot)
        self.applied = snapshot
        self.durable_index = self.committed_index = snapshot.index

    def recovered(self, record: LogRecord) -> list[Instruction]:
        """The next stored record.

        Raises:
            LogDiscontinuity: if it cannot stand where it was found.
            FormatError: if the only voter finds the log of several.
        """
        if not self._alone:
            self._schedule.grow(record)
            self._read_back.read(record)
            return []
        if record.kind in (RecordKind.VOTE, RecordKind.CUT):
            raise FormatError(
                f"{record.kind.name.lower()} of term {record.term}: this log belongs to one of "
                "several voters, and a store with a single voter cannot know which of its "
                "records hold"
            )
        if record.index <= self._schedule.position.index:
            return []
        check_follows(record, self.applied)
        self._schedule.grow(record)
        # No other voter can contradict a record of the only one: it is applied at once, so that
        # recovery needs no memory for the log.
        self._begin_at(record.position)
        return [Apply(record, None)] if record.kind is RecordKind.COMMAND else []

    def recovery_ended(self) -> tuple[int, int, list[Instruction]]:
        """All was read: the term, the vote in it, and what is to be written first."""
        if self._alone:
            return self.last.term, log.NOBODY, []
        read = self._read_back
        cut = read.end()
        self.tail = read.tail
        self.durable_index = self.last.index
        self._promise = log.vote(read.term, read.voted_for)
        return read.term, read.voted_for, [] if cut is None else [self._give(cut)]

    # --- writing ------------------------------------------------------------------------------

    def _give(self, record: LogRecord) -> Append:
        self.writes.add(record)
        return Append(record)

    def write(self, record: LogRecord, ticket: int | None = None) -> list[Instruction]:
        """Add the next record."""
        self.tail.append(record)
        self._schedule.grow(record)
        instructions: list[Instruction] = [self._give(record)]
        if ticket is not None:
            self._tickets[record.index] = ticket
        if record.kind is RecordKind.COMMAND and self._schedule.plan(record.index):
            instructions += self._seal()
        return instructions

    def _seal(self) -> list[Instruction]:
        # The files before the seal will be dropped: the promise in them has to be given again.
        return [Seal()] if self._alone else [Seal(), self._give(self._promise)]

    def promise(self, term: int, voted_for: int) -> list[Instruction]:
        """Note a term and the vote in it, unless they are noted."""
        record = log.vote(term, voted_for)
        if record == self._promise:
            return []
        self._promise = record
        return [self._give(record)]

    def once_promised(self, instruction: Instruction) -> list[Instruction]:
        """Give an instruction when the term and the vote are durable."""
        return self.writes.after(self.writes.promised, instruction)

    def once_durable(self, instruction: Instruction) -> list[Instruction]:
        """Give an instruction when everything written so far is durable."""
        return self.writes.after(self.writes.given, instruction)

    def cut_behind(self, index: int) -> list[Instruction]:
        """Take records back that another leader did not have."""
        assert index >= self.committed_index, "what is committed is never cut"
        self.tail.cut_behind(index)
        self.writes.void_behind(index)
        self._schedule.cut_behind(index)
        self.durable_index = min(self.durable_index, index)
        return [self._give(log.cut(self.last))]

    def appended(self, index: int) -> list[Instruction]:
        """The disk has written so far; return what waited for that."""
        durable = self.writes.complete(index)
        if durable is not None:
            self.durable_index = durable
        return self.writes.released()

    # --- committing ---------------------------------------------------------------------------

    def commit_to(self, index: int) -> list[Instruction]:
        """Records up to this index hold for ever; apply those that are durable here."""
        if index > self.committed_index:
            self.committed_index = index
        instructions: list[Instruction] = []
        at, end = self.applied.index, min(self.committed_index, self.durable_index)
        if at >= end:
            return instructions
        while at < end:
            at += 1
            record = self.tail.get(at)
            if record.kind is RecordKind.COMMAND:
                instructions.append(Apply(record, self._tickets.pop(at, None)))
            if self._schedule.due(at):
                instructions.append(TakeSnapshot(record.position))
        self.applied = record.position
        if self._alone:
            self.tail.forget_up_to(at)
        return instructions

    def abandon(self) -> list[Instruction]:
        """Answer everybody who still waits for a record to be applied."""
        doomed, self._tickets = self._tickets, {}
        return [Abandon(ticket) for ticket in doomed.values()]

    # --- snapshots ----------------------------------------------------------------------------

    def snapshot_stored(
        self, position: LogPosition, snapshot_bytes: int, *, needed_from: int
    ) -> list[Instruction]:
        """The own snapshot is durable; records are kept from an index on for others."""
        self._schedule.stored(position, snapshot_bytes)
        self.tail.forget_up_to(min(position.index, needed_from))
        return self.once_promised(DropLog(position))

    def begin_install(self) -> None:
        """Another voter's snapshot is on its way to the disk: the own one is not taken."""
        self._schedule.give_up()

    def snapshot_installed(self, position: LogPosition, snapshot_bytes: int) -> list[Instruction]:
        """Another voter's snapshot took the place of the own log."""
        assert position.index > self.committed_index, "the own log is as new as that"
        self.writes.void_behind(0)
        self._schedule.loaded(position, snapshot_bytes)
        self._begin_at(position)
        instructions = [*self._seal(), self._give(log.cut(position))]
        return instructions + self.once_durable(DropLog(position))

    def validate(self) -> None:
        """Check what must hold between events."""
        assert self._schedule.position.index <= self.applied.index <= self.committed_index
        assert self.applied.index <= self.durable_index <= self.last.index
        assert self._schedule.position.term <= self.applied.term <= self.last.term
        assert all(index > self.applied.index for index in self._tickets)
        self.tail.validate()
        self._schedule.validate(self.last.index)
