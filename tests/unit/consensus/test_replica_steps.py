"""The voter's state machine: events in, instructions out."""

import pytest

from anabranch.consensus.log import BEGINNING, LogPosition, LogRecord, RecordKind
from anabranch.consensus.replica import (
    Abandon,
    Append,
    Appended,
    AppendFailed,
    Apply,
    DropLog,
    Instruction,
    LogDiscontinuity,
    Opened,
    Phase,
    Propose,
    Ready,
    Recovered,
    RecoveryEnded,
    Refuse,
    Replica,
    ReplicaEvent,
    Seal,
    SnapshotStored,
    TakeSnapshot,
)

COMMAND, TERM = RecordKind.COMMAND, RecordKind.TERM


class Driven:
    """A replica whose invariants are checked after every step."""

    def __init__(self, snapshot_after_bytes: int = 1 << 20) -> None:
        self.replica = Replica(snapshot_after_bytes=snapshot_after_bytes)

    def __call__(self, event: ReplicaEvent) -> list[Instruction]:
        instructions = self.replica.step(event)
        self.replica.validate()
        return instructions


def leading(snapshot_after_bytes: int = 1 << 20) -> Driven:
    step = Driven(snapshot_after_bytes)
    step(Opened(BEGINNING, 0))
    step(RecoveryEnded())
    step(Appended(1))
    return step


def test_first_open_begins_term_one_durably_before_it_is_ready() -> None:
    step = Driven()
    assert step(Opened(BEGINNING, 0)) == []
    assert step(RecoveryEnded()) == [Append(LogRecord(1, 1, TERM, b""))]
    assert step.replica.phase is Phase.RAISING_TERM
    assert step(Appended(1)) == [Ready(1)]
    assert step.replica.phase is Phase.LEADING


def test_reopen_applies_the_log_and_raises_the_term() -> None:
    step = Driven()
    step(Opened(BEGINNING, 0))
    old = LogRecord(1, 2, COMMAND, b"x")
    assert step(Recovered(LogRecord(1, 1, TERM, b""))) == []
    assert step(Recovered(old)) == [Apply(old, None)]
    assert step(RecoveryEnded()) == [Append(LogRecord(2, 3, TERM, b""))]
    assert step(Appended(3)) == [Ready(2)]


def test_proposals_are_applied_in_order_once_durable() -> None:
    step = leading()
    a, b, c = (LogRecord(1, index, COMMAND, bytes([index])) for index in (2, 3, 4))
    assert step(Propose(71, a.payload)) == [Append(a)]
    assert step(Propose(72, b.payload)) == [Append(b)]
    assert step(Appended(2)) == [Apply(a, 71)]
    assert step(Propose(73, c.payload)) == [Append(c)]
    assert step(Appended(4)) == [Apply(b, 72), Apply(c, 73)]


def test_failed_append_leaves_what_was_in_flight_unknown_and_refuses_the_rest() -> None:
    step = leading()
    step(Propose(71, b"a"))
    step(Propose(72, b"b"))
    step(Appended(2))
    step(Propose(73, b"c"))
    assert step(AppendFailed()) == [Abandon(72), Abandon(73)]
    assert step(Propose(74, b"d")) == [Refuse(74)]
    assert step(Appended(4)) == []
    assert step(AppendFailed()) == []


def test_failure_while_the_term_is_raised_never_gets_ready() -> None:
    step = Driven()
    step(Opened(BEGINNING, 0))
    step(RecoveryEnded())
    assert step(AppendFailed()) == []
    assert step.replica.phase is Phase.FAILED


def test_snapshot_covers_exactly_the_sealed_part_of_the_log() -> None:
    step = leading(snapshot_after_bytes=50)
    assert step(Propose(1, b"x")) == [Append(LogRecord(1, 2, COMMAND, b"x"))]
    assert step(Propose(2, b"y")) == [Append(LogRecord(1, 3, COMMAND, b"y")), Seal()]
    assert len(step(Propose(3, b"z"))) == 1, "one snapshot at a time"
    assert step(Appended(4)) == [
        Apply(LogRecord(1, 2, COMMAND, b"x"), 1),
        Apply(LogRecord(1, 3, COMMAND, b"y"), 2),
        TakeSnapshot(LogPosition(1, 3)),
        Apply(LogRecord(1, 4, COMMAND, b"z"), 3),
    ]
    assert step(SnapshotStored(LogPosition(1, 3), 70)) == [DropLog(LogPosition(1, 3))]
    # The next one waits until the log is as long as that snapshot was: z's 19 bytes count.
    assert len(step(Propose(4, b"0" * 31))) == 1
    assert step(Propose(5, b""))[1:] == [Seal()]


def test_snapshot_that_arrives_after_the_failure_drops_nothing() -> None:
    step = leading(snapshot_after_bytes=1)
    step(Propose(1, b"x"))
    assert TakeSnapshot(LogPosition(1, 2)) in step(Appended(2))
    step(AppendFailed())
    assert step(SnapshotStored(LogPosition(1, 2), 10)) == []


def test_records_that_the_snapshot_holds_are_skipped() -> None:
    step = Driven()
    step(Opened(LogPosition(2, 5), 100))
    assert step(Recovered(LogRecord(1, 4, COMMAND, b"old"))) == []
    assert step(Recovered(LogRecord(2, 5, COMMAND, b"old"))) == []
    new = LogRecord(2, 6, COMMAND, b"new")
    assert step(Recovered(new)) == [Apply(new, None)]
    assert step(RecoveryEnded()) == [Append(LogRecord(3, 7, TERM, b""))]


def test_term_is_raised_above_the_snapshot_alone() -> None:
    step = Driven()
    step(Opened(LogPosition(4, 9), 100))
    assert step(RecoveryEnded()) == [Append(LogRecord(5, 10, TERM, b""))]


@pytest.mark.parametrize(
    ("snapshot", "records", "named"),
    [
        (BEGINNING, [LogRecord(1, 2, COMMAND, b"")], "record 2 follows record 0"),
        (LogPosition(1, 5), [LogRecord(1, 7, COMMAND, b"")], "record 7 follows record 5"),
        (
            BEGINNING,
            [LogRecord(2, 1, TERM, b""), LogRecord(1, 2, COMMAND, b"")],
            "term 1 after term 2",
        ),
        (
            BEGINNING,
            [LogRecord(1, 1, TERM, b""), LogRecord(1, 2, COMMAND, b""), LogRecord(1, 2, TERM, b"")],
            "record 2 follows record 2",
        ),
    ],
)
def test_hole_in_the_log_is_refused(
    snapshot: LogPosition, records: list[LogRecord], named: str
) -> None:
    step = Driven()
    step(Opened(snapshot, 0))
    for record in records[:-1]:
        step(Recovered(record))
    with pytest.raises(LogDiscontinuity, match=named):
        step(Recovered(records[-1]))


def test_event_out_of_place_is_a_programmer_mistake() -> None:
    with pytest.raises(AssertionError, match="while new"):
        Driven()(Propose(1, b""))
    with pytest.raises(AssertionError, match="appends complete in order"):
        leading()(Appended(1))
