"""One voter of the replicated log: `step(event)` returns what is to be done, in order.

Pure: no clock, no disk, no tasks. With a single voter a record is committed once it is durable
here; the rule sits in one place (`_committable_to`), where a quorum will count its voters, and
messages between voters will be further events of `step`.

The driver's duties, in this order: feed `Opened`, one `Recovered` per record of the log, then
`RecoveryEnded`; carry out instructions in the order given; report every append with `Appended` in
log order, or `AppendFailed` once. Nothing may be shown to anybody before `Ready`: records that were
read back may still be volatile, and the durable record of the new term is what proves them.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.consensus.log import BEGINNING, HEADER_BYTES, LogPosition, LogRecord, RecordKind

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """The stored snapshot was found; `BEGINNING` and 0 bytes if there is none."""

    snapshot: LogPosition
    snapshot_bytes: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The next record of the stored log was read."""

    record: LogRecord


@dataclass(frozen=True, slots=True)
class RecoveryEnded:
    """The stored log was read to its end."""


@dataclass(frozen=True, slots=True)
class Propose:
    """A caller wants a command in the log. The ticket names it in the answer."""

    ticket: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """The log is durable up to and including this index."""

    up_to_index: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The log could not be written; what is in flight may or may not be in it."""


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot asked for by `TakeSnapshot` is durable."""

    position: LogPosition
    snapshot_bytes: int


ReplicaEvent = (
    Opened | Recovered | RecoveryEnded | Propose | Appended | AppendFailed | SnapshotStored
)

# --- instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Write a record to the log and report when it is durable."""

    record: LogRecord


@dataclass(frozen=True, slots=True)
class Apply:
    """Give a command to the state machine; answer the ticket, if any, with what it says."""

    record: LogRecord
    ticket: int | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The term has begun: what was applied may be shown and proposals are accepted."""

    term: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a ticket: nothing was changed, this log accepts nothing more."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Answer a ticket: its command may or may not take effect after a restart."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Begin a new file of the log, so that all before can be dropped after a snapshot."""


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Store the state as it is now, before applying anything more; it includes `position`."""

    position: LogPosition


@dataclass(frozen=True, slots=True)
class DropLog:
    """Records up to and including this one are not needed any more."""

    up_to: LogPosition


Instruction = Append | Apply | Ready | Refuse | Abandon | Seal | TakeSnapshot | DropLog


class Phase(Enum):
    """Where a voter is in its life."""

    NEW = "new"
    RECOVERING = "recovering"
    RAISING_TERM = "raising term"
    LEADING = "leading"
    FAILED = "failed"


_ACCEPTS: Final[dict[Phase, tuple[type[object], ...]]] = {
    Phase.NEW: (Opened,),
    Phase.RECOVERING: (Recovered, RecoveryEnded),
    Phase.RAISING_TERM: (Appended, AppendFailed),
    Phase.LEADING: (Propose, Appended, AppendFailed, SnapshotStored),
    # Completions of what was under way may still come in; they change nothing any more.
    Phase.FAILED: (Propose, Appended, AppendFailed, SnapshotStored),
}
assert _ACCEPTS.keys() == set(Phase), "every phase needs a row"


class LogDiscontinuity(Exception):
    """A recovered record does not follow the one before it; the driver knows the file."""


class Replica:
    """The state of one voter."""

    def __init__(self, *, snapshot_after_bytes: int) -> None:
        self.phase = Phase.NEW
        self.term = 0
        self._snapshot_after_bytes = snapshot_after_bytes
        self._snapshot = BEGINNING
        self._snapshot_bytes = 0
        self._last = BEGINNING
        self._applied = BEGINNING
        self._durable_index = 0
        self._in_flight: deque[tuple[LogRecord, int | None]] = deque()
        self._log_bytes = 0
        self._snapshot_at_index: int | None = None
        self._bytes_when_sealed = 0

    @property
    def last(self) -> LogPosition:
        """The newest record, durable or not."""
        return self._last

    def step(self, event: ReplicaEvent) -> list[Instruction]:
        """Take in one event.

        Raises:
            LogDiscontinuity: if a recovered record cannot stand where it was found.
        """
        assert isinstance(event, _ACCEPTS[self.phase]), f"{event} while {self.phase.value}"
        match event:
            case Propose():
                return self._propose(event)
            case Appended():
                return self._appended(event.up_to_index)
            case Recovered():
                return self._recovered(event.record)
            case Opened():
                return self._opened(event)
            case RecoveryEnded():
                return self._recovery_ended()
            case AppendFailed():
                return self._append_failed()
            case SnapshotStored():
                return self._snapshot_stored(event)

    def _opened(self, event: Opened) -> list[Instruction]:
        self._snapshot = self._last = self._applied = event.snapshot
        self._snapshot_bytes = event.snapshot_bytes
        self._durable_index = event.snapshot.index
        self.phase = Phase.RECOVERING
        return []

    def _recovered(self, record: LogRecord) -> list[Instruction]:
        if record.index <= self._snapshot.index:
            return []
        if record.index != self._last.index + 1:
            raise LogDiscontinuity(
                f"log record {record.index} follows record {self._last.index}: "
                "the ones between are missing"
            )
        if record.term < self._last.term:
            raise LogDiscontinuity(
                f"log record {record.index} has term {record.term} after term {self._last.term}"
            )
        self._last = record.position
        self._log_bytes += HEADER_BYTES + len(record.payload)
        # No other voter can contradict a record of the only one: it is applied at once, so that
        # recovery needs no memory for the log.
        self._applied = record.position
        self._durable_index = record.index
        return [Apply(record, None)] if record.kind is RecordKind.COMMAND else []

    def _recovery_ended(self) -> list[Instruction]:
        self.term = self._last.term + 1
        self.phase = Phase.RAISING_TERM
        return [self._append(RecordKind.TERM, b"", None)]

    def _append(self, kind: RecordKind, payload: bytes, ticket: int | None) -> Append:
        record = LogRecord(self.term, self._last.index + 1, kind, payload)
        self._last = record.position
        self._log_bytes += HEADER_BYTES + len(payload)
        self._in_flight.append((record, ticket))
        return Append(record)

    def _propose(self, event: Propose) -> list[Instruction]:
        if self.phase is Phase.FAILED:
            return [Refuse(event.ticket)]
        instructions: list[Instruction] = [
            self._append(RecordKind.COMMAND, event.payload, event.ticket)
        ]
        # A snapshot costs about its own size: waiting until the log has grown by as much keeps
        # the extra writing at one byte per byte, whatever the size of the state.
        due_bytes = max(self._snapshot_after_bytes, self._snapshot_bytes)
        if self._snapshot_at_index is None and self._log_bytes >= due_bytes:
            self._snapshot_at_index = self._last.index
            self._bytes_when_sealed = self._log_bytes
            instructions.append(Seal())
        return instructions

    def _committable_to(self) -> int:
        return self._durable_index

    def _appended(self, up_to_index: int) -> list[Instruction]:
        if self.phase is Phase.FAILED:
            return []
        assert self._durable_index < up_to_index <= self._last.index, "appends complete in order"
        self._durable_index = up_to_index
        instructions: list[Instruction] = []
        while self._in_flight and self._in_flight[0][0].index <= self._committable_to():
            record, ticket = self._in_flight.popleft()
            self._applied = record.position
            if record.kind is RecordKind.COMMAND:
                instructions.append(Apply(record, ticket))
            else:
                self.phase = Phase.LEADING
                instructions.append(Ready(self.term))
            if record.index == self._snapshot_at_index:
                instructions.append(TakeSnapshot(record.position))
        return instructions

    def _append_failed(self) -> list[Instruction]:
        self.phase = Phase.FAILED
        doomed = [ticket for _, ticket in self._in_flight if ticket is not None]
        self._in_flight.clear()
        return [Abandon(ticket) for ticket in doomed]

    def _snapshot_stored(self, event: SnapshotStored) -> list[Instruction]:
        if self.phase is Phase.FAILED:
            return []
        assert event.position.index == self._snapshot_at_index, "no such snapshot was asked for"
        self._snapshot = event.position
        self._snapshot_bytes = event.snapshot_bytes
        self._snapshot_at_index = None
        self._log_bytes -= self._bytes_when_sealed
        return [DropLog(event.position)]

    def validate(self) -> None:
        """Check what must hold between events."""
        assert self._snapshot.index <= self._applied.index <= self._durable_index
        assert self._durable_index <= self._last.index
        assert self._snapshot.term <= self._applied.term <= self._last.term
        assert self._log_bytes >= 0
        if self.phase is Phase.FAILED:
            assert not self._in_flight, "a failed log owes nobody an answer"
            return
        indexes = [record.index for record, _ in self._in_flight]
        assert indexes == list(range(self._applied.index + 1, self._last.index + 1))
        if self.phase is Phase.LEADING:
            assert self._last.term == self.term, "a leader's newest record is of its own term"
            assert all(record.term == self.term for record, _ in self._in_flight)
        if self._snapshot_at_index is not None:
            assert self._snapshot.index < self._snapshot_at_index <= self._last.index
