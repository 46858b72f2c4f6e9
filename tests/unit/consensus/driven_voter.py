"""One of three voters for tests that drive it step by step."""

from anabranch.consensus.election import Voters
from anabranch.consensus.events import (
    Appended,
    Instruction,
    Opened,
    Received,
    Recovered,
    RecoveryEnded,
    ReplicaEvent,
    StartTimer,
    Timer,
    TimerFired,
)
from anabranch.consensus.log import BEGINNING, LogPosition, LogRecord, RecordKind
from anabranch.consensus.messages import (
    AppendReply,
    AppendRequest,
    VoteReply,
)
from anabranch.consensus.replica import Phase, Replica

COMMAND, TERM = RecordKind.COMMAND, RecordKind.TERM
ELECTION, HEARTBEAT = StartTimer(Timer.ELECTION), StartTimer(Timer.HEARTBEAT)


class Driven:
    """Voter 1 of three, with its invariants checked after every step."""

    def __init__(
        self,
        *stored: LogRecord,
        snapshot: LogPosition = BEGINNING,
        snapshot_after_bytes: int = 1 << 20,
    ) -> None:
        self.replica = Replica(
            snapshot_after_bytes=snapshot_after_bytes, voters=Voters(1, (1, 2, 3))
        )
        self(Opened(snapshot, 0))
        for record in stored:
            self(Recovered(record))
        self.first = self(RecoveryEnded())

    def __call__(self, event: ReplicaEvent) -> list[Instruction]:
        instructions = self.replica.step(event)
        self.replica.validate()
        return instructions


def command(term: int, index: int) -> LogRecord:
    return LogRecord(term, index, COMMAND, b"%d.%d" % (term, index))


def leading() -> Driven:
    """Voter 1, elected by 2 in term 1, with the record of its term committed."""
    step = Driven()
    step(TimerFired(Timer.ELECTION))
    step(Received(2, VoteReply(1, granted=True, canvass=True)))
    step(Appended(0))
    step(Received(2, VoteReply(1, granted=True, canvass=False)))
    step(Appended(1))
    step(Received(2, AppendReply(1, 1, accepted=True, index=1)))
    assert step.replica.phase is Phase.LEADING
    return step


def following(*records: LogRecord, committed: int = 0) -> Driven:
    """Voter 1, following 2 in term 1, with some records durable."""
    step = Driven()
    step(Received(2, AppendRequest(1, 1, BEGINNING, records, committed)))
    step(Appended(0))
    for record in records:
        step(Appended(record.index))
    return step
