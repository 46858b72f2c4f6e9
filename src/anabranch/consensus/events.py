"""What a voter is told and what it asks for: the two vocabularies of `Replica.step`.

Values only. A driver with a single voter meets the first halves alone; the rest is for several.
"""

from dataclasses import dataclass
from enum import Enum

from anabranch.consensus.log import LogPosition, LogRecord
from anabranch.consensus.messages import Message


class Timer(Enum):
    """Each voter has one of each. Its driver decides how long it runs."""

    ELECTION = "election"
    """Long, and each time drawn anew, so that two voters seldom stand at the same time."""
    HEARTBEAT = "heartbeat"
    """Short against the election timer."""


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
    """The record of this index is durable, and all that were appended before it."""

    up_to_index: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The log could not be written; what is in flight may or may not be in it."""


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot asked for by `TakeSnapshot` is durable."""

    position: LogPosition
    snapshot_bytes: int


@dataclass(frozen=True, slots=True)
class Read:
    """A caller wants to read a state that holds everything answered before it asked."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Received:
    """Another voter sent a message; it may be old, repeated, or out of order."""

    sender: int
    message: Message


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that `StartTimer` began ran out."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """A snapshot given by `InstallSnapshot` is durable, and is the state from now on."""

    position: LogPosition
    snapshot_bytes: int


ReplicaEvent = (
    Opened
    | Recovered
    | RecoveryEnded
    | Propose
    | Appended
    | AppendFailed
    | SnapshotStored
    | Read
    | Received
    | TimerFired
    | SnapshotInstalled
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
    """Answer a ticket: its command may or may not take effect after this."""

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


@dataclass(frozen=True, slots=True)
class NotLeader:
    """Answer a ticket: nothing was changed; ask that voter, or any after a while if `NOBODY`."""

    ticket: int
    leader: int


@dataclass(frozen=True, slots=True)
class ReadNow:
    """Answer a ticket: the state as it is now may be read."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to another voter, once; it may be lost."""

    to: int
    message: Message


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """Send the stored snapshot to another voter, as a `SnapshotRequest` of this term."""

    to: int
    term: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Store this snapshot in place of the own one, load it, and report when it is durable."""

    position: LogPosition
    content: bytes


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start a timer, anew if it runs."""

    timer: Timer


Instruction = (
    Append
    | Apply
    | Ready
    | Refuse
    | Abandon
    | Seal
    | TakeSnapshot
    | DropLog
    | NotLeader
    | ReadNow
    | Send
    | SendSnapshot
    | InstallSnapshot
    | StartTimer
)
