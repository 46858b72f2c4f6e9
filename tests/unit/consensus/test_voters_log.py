"""The log of one of several voters: snapshots, and what is read back after a restart."""

import pytest
from driven_voter import ELECTION, Driven, command, following, leading

from anabranch.consensus import log
from anabranch.consensus.events import (
    Abandon,
    Append,
    Appended,
    AppendFailed,
    Apply,
    DropLog,
    InstallSnapshot,
    Opened,
    Propose,
    Read,
    Received,
    Recovered,
    Refuse,
    Seal,
    Send,
    SendSnapshot,
    SnapshotInstalled,
    SnapshotStored,
    TakeSnapshot,
    Timer,
    TimerFired,
)
from anabranch.consensus.log import BEGINNING, NOBODY, LogPosition, LogRecord
from anabranch.consensus.messages import (
    AppendReply,
    AppendRequest,
    SnapshotRequest,
    VoteReply,
    VoteRequest,
)
from anabranch.consensus.recovery import LogDiscontinuity
from anabranch.consensus.replica import Replica
from anabranch.errors import FormatError

# --- snapshots --------------------------------------------------------------------------------


def test_vote_is_written_again_behind_a_seal() -> None:
    step = Driven(snapshot_after_bytes=30)
    records = (command(1, 1), command(1, 2))
    appended = step(Received(2, AppendRequest(1, 1, BEGINNING, records, 2)))
    assert appended[-3:] == [Append(records[1]), Seal(), Append(log.vote(1, NOBODY))]
    step(Appended(0))
    step(Appended(1))
    assert TakeSnapshot(LogPosition(1, 2)) in step(Appended(2))
    assert step(SnapshotStored(LogPosition(1, 2), 50)) == [], "the vote behind it is volatile"
    assert DropLog(LogPosition(1, 2)) in step(Appended(0))


def test_seal_behind_a_record_that_was_cut_is_forgotten() -> None:
    step = Driven(snapshot_after_bytes=30)
    records = (command(1, 1), command(1, 2))
    assert Seal() in step(Received(2, AppendRequest(1, 1, BEGINNING, records, 0)))
    new = (command(2, 1), command(2, 2))
    assert Seal() in step(Received(3, AppendRequest(2, 1, BEGINNING, new, 0)))


def test_snapshot_takes_the_place_of_a_log_that_is_behind() -> None:
    step = following(command(1, 1))
    position = LogPosition(1, 50)
    offer = SnapshotRequest(1, position, b"state")
    assert step(Received(2, offer)) == [ELECTION, InstallSnapshot(position, b"state")]
    assert step(Received(2, offer)) == [ELECTION], "one at a time"
    assert step(TimerFired(Timer.ELECTION)) == [ELECTION], "no candidate without a state"
    assert step(SnapshotInstalled(position, 5)) == [
        Seal(),
        Append(log.vote(1, NOBODY)),
        Append(log.cut(position)),
    ]
    assert step(Appended(0)) == []
    assert step(Appended(50)) == [
        DropLog(position),
        Send(2, AppendReply(1, 0, accepted=True, index=50)),
    ]
    assert step.replica.applied == position
    known = step(Received(2, offer))
    assert known == [ELECTION, Send(2, AppendReply(1, 0, accepted=True, index=50))]


def test_no_own_snapshot_is_taken_while_another_is_installed() -> None:
    step = Driven(snapshot_after_bytes=30)
    records = (command(1, 1), command(1, 2))
    assert Seal() in step(Received(2, AppendRequest(1, 1, BEGINNING, records, 2)))
    offer = SnapshotRequest(1, LogPosition(1, 50), b"state")
    assert InstallSnapshot(LogPosition(1, 50), b"state") in step(Received(2, offer))
    step(Appended(0))
    applied = [*step(Appended(1)), *step(Appended(2))]
    assert applied[:2] == [Apply(record, None) for record in records]
    assert TakeSnapshot(LogPosition(1, 2)) not in applied
    step(SnapshotInstalled(LogPosition(1, 50), 5))
    assert step.replica.applied == LogPosition(1, 50)


def test_follower_far_behind_is_sent_a_snapshot() -> None:
    step = Driven(log.vote(1, 1), snapshot=LogPosition(1, 9))
    step(TimerFired(Timer.ELECTION))
    step(Received(2, VoteReply(2, granted=True, canvass=True)))
    step(Appended(0))
    step(Received(2, VoteReply(2, granted=True, canvass=False)))
    refused = AppendReply(2, 2, accepted=False, index=3)
    assert step(Received(3, refused)) == [SendSnapshot(3, 2)]
    assert step(Received(3, refused)) == [], "once is enough"


# --- reading back -----------------------------------------------------------------------------


def test_records_are_not_applied_before_a_leader_says_they_hold() -> None:
    step = Driven(log.vote(1, 2), command(1, 1), command(1, 2))
    assert step.first == [ELECTION]
    assert step.replica.applied == BEGINNING
    assert step.replica.last == LogPosition(1, 2)


def test_cut_is_read_back() -> None:
    step = Driven(
        command(1, 1), command(1, 2), log.vote(2, 3), log.cut(LogPosition(1, 1)), command(2, 2)
    )
    assert step.replica.last == LogPosition(2, 2)
    assert step.replica.term == 2


def test_log_older_than_the_snapshot_is_cut_before_it_goes_on() -> None:
    snapshot = LogPosition(3, 50)
    step = Driven(log.vote(3, 2), command(1, 1), command(1, 2), snapshot=snapshot)
    assert step.first == [Append(log.cut(snapshot)), ELECTION]
    assert step.replica.last == snapshot


def test_records_of_another_history_than_the_snapshots_are_void() -> None:
    snapshot = LogPosition(3, 2)
    fork = [command(1, index) for index in (1, 2, 3, 4)]
    step = Driven(log.vote(3, 2), *fork, snapshot=snapshot)
    assert step.first == [Append(log.cut(snapshot)), ELECTION]
    assert step.replica.last == snapshot


def test_records_behind_the_snapshot_that_a_cut_voids_may_not_fit() -> None:
    snapshot = LogPosition(3, 2)
    old = [command(1, index) for index in (1, 2, 3)]
    new = [log.cut(BEGINNING), command(3, 1), command(3, 2), command(3, 3)]
    step = Driven(log.vote(1, 2), *old, log.vote(3, 2), *new, snapshot=snapshot)
    assert step.first == [ELECTION]
    assert step.replica.last == LogPosition(3, 3)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([command(1, 2)], "record 2 follows record 0"),
        ([command(1, 1), command(1, 3)], "record 3 follows record 1"),
        ([log.vote(3, 1), log.vote(2, 1)], "vote of term 2 after term 3"),
        ([command(1, 1), log.cut(LogPosition(1, 4))], "cut behind record 4"),
    ],
)
def test_log_that_cannot_be_is_refused(records: list[LogRecord], named: str) -> None:
    with pytest.raises(LogDiscontinuity, match=named):
        Driven(*records)


@pytest.mark.parametrize("record", [log.vote(1, 2), log.cut(BEGINNING)])
def test_single_voter_refuses_the_log_of_several(record: LogRecord) -> None:
    alone = Replica(snapshot_after_bytes=1 << 20)
    alone.step(Opened(BEGINNING, 0))
    with pytest.raises(FormatError, match="one of several voters"):
        alone.step(Recovered(record))


def test_failed_disk_ends_the_voter() -> None:
    step = leading()
    step(Propose(71, b"x"))
    step(Read(81))
    assert step(AppendFailed()) == [Abandon(71), Refuse(81)]
    assert step(Read(82)) == [Refuse(82)]
    assert step(Received(2, VoteRequest(9, LogPosition(9, 9), canvass=False))) == []
    assert step(TimerFired(Timer.ELECTION)) == []
