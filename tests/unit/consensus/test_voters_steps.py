"""One of several voters, step by step: what it says, what it writes first, what it refuses."""

import pytest
from driven_voter import COMMAND, ELECTION, HEARTBEAT, TERM, Driven, command, following, leading

from anabranch.consensus import log
from anabranch.consensus.events import (
    Abandon,
    Append,
    Appended,
    Apply,
    NotLeader,
    Opened,
    Propose,
    Read,
    ReadNow,
    Ready,
    Received,
    RecoveryEnded,
    Send,
    Timer,
    TimerFired,
)
from anabranch.consensus.log import BEGINNING, NOBODY, LogPosition, LogRecord
from anabranch.consensus.messages import (
    AppendReply,
    AppendRequest,
    VoteReply,
    VoteRequest,
)
from anabranch.consensus.replica import Replica

# --- elections --------------------------------------------------------------------------------


def test_elected_in_three_steps_each_durable_before_it_is_told() -> None:
    step = Driven()
    assert step.first == [ELECTION]
    canvass = VoteRequest(1, BEGINNING, canvass=True)
    assert step(TimerFired(Timer.ELECTION)) == [Send(2, canvass), Send(3, canvass), ELECTION]
    assert step.replica.term == 0, "a canvass changes no term"
    assert step(Received(3, VoteReply(1, granted=True, canvass=True))) == [
        Append(log.vote(1, 1)),
        ELECTION,
    ]
    request = VoteRequest(1, BEGINNING, canvass=False)
    assert step(Appended(0)) == [Send(2, request), Send(3, request)]
    record = LogRecord(1, 1, TERM, b"")
    assert step(Received(2, VoteReply(1, granted=True, canvass=False))) == [
        Append(record),
        Send(2, AppendRequest(1, 1, BEGINNING, (record,), 0)),
        Send(3, AppendRequest(1, 2, BEGINNING, (record,), 0)),
        HEARTBEAT,
        ELECTION,
    ]
    assert step(Received(3, VoteReply(1, granted=True, canvass=False))) == [], "elected once"
    assert step(Received(2, AppendReply(1, 1, accepted=True, index=1))) == []
    assert step(Appended(1)) == [Ready(1)]


def test_vote_is_told_when_it_is_durable_and_given_once_in_a_term() -> None:
    step = Driven()
    request = VoteRequest(4, BEGINNING, canvass=False)
    assert step(Received(2, request)) == [ELECTION, Append(log.vote(4, 2))]
    assert step(Appended(0)) == [Send(2, VoteReply(4, granted=True, canvass=False))]
    refusal = Send(3, VoteReply(4, granted=False, canvass=False))
    assert step(Received(3, request)) == [refusal]
    again = step(Received(2, request))
    assert again == [ELECTION, Send(2, VoteReply(4, granted=True, canvass=False))]


def test_vote_outlives_a_restart() -> None:
    step = Driven(log.vote(4, 2))
    assert step.replica.term == 4
    refusal = Send(3, VoteReply(4, granted=False, canvass=False))
    assert step(Received(3, VoteRequest(4, BEGINNING, canvass=False))) == [refusal]


def test_candidate_with_an_older_log_is_refused_and_its_term_noted() -> None:
    step = following(command(1, 1), command(1, 2))
    request = VoteRequest(5, LogPosition(1, 1), canvass=False)
    assert step(Received(3, request)) == [Append(log.vote(5, NOBODY))]
    assert step(Appended(0)) == [Send(3, VoteReply(5, granted=False, canvass=False))]


@pytest.mark.parametrize("timer_fired", [False, True])
def test_canvass_succeeds_only_when_the_leader_is_silent(timer_fired: bool) -> None:
    step = following()
    if timer_fired:
        step(TimerFired(Timer.ELECTION))
    (answer,) = step(Received(3, VoteRequest(2, BEGINNING, canvass=True)))
    term = 2 if timer_fired else 1
    assert answer == Send(3, VoteReply(term, granted=timer_fired, canvass=True))
    assert step.replica.term == 1


def test_refusal_with_a_later_term_is_followed() -> None:
    step = Driven()
    step(TimerFired(Timer.ELECTION))
    refused = VoteReply(7, granted=False, canvass=True)
    assert step(Received(2, refused)) == [Append(log.vote(7, NOBODY))]
    assert step(Received(3, refused)) == []


def test_leader_without_its_majority_steps_down() -> None:
    step = leading()
    assert step(TimerFired(Timer.ELECTION)) == [ELECTION]
    step(Propose(71, b"x"))
    assert step(TimerFired(Timer.ELECTION)) == [Abandon(71), ELECTION]
    assert step(Propose(72, b"y")) == [NotLeader(72, NOBODY)]
    assert step(TimerFired(Timer.HEARTBEAT)) == []


def test_leader_of_an_older_term_is_told_the_term() -> None:
    step = Driven(log.vote(3, NOBODY))
    (answer,) = step(Received(2, AppendRequest(2, 9, BEGINNING, (), 0)))
    assert answer == Send(2, AppendReply(3, 0, accepted=False, index=0))
    old = leading()
    old(Propose(71, b"x"))
    assert old(Received(3, AppendReply(3, 0, accepted=False, index=0))) == [
        Abandon(71),
        Append(log.vote(3, NOBODY)),
    ]


# --- replication ------------------------------------------------------------------------------


def test_record_is_committed_by_a_majority_and_then_told_to_followers() -> None:
    step = leading()
    record = LogRecord(1, 2, COMMAND, b"x")
    appended, first, second = step(Propose(71, b"x"))
    assert appended == Append(record)
    assert first == Send(2, AppendRequest(1, 3, LogPosition(1, 1), (record,), 1))
    assert second == Send(3, AppendRequest(1, 4, LogPosition(1, 1), (record,), 1))
    assert step(Appended(2)) == [], "one of three is no majority"
    assert step(Received(3, AppendReply(1, 4, accepted=True, index=2))) == [Apply(record, 71)]
    beat, _, again = step(TimerFired(Timer.HEARTBEAT))
    assert beat == Send(2, AppendRequest(1, 5, LogPosition(1, 2), (), 2))
    assert again == HEARTBEAT


def test_majority_of_others_does_not_apply_what_is_volatile_here() -> None:
    step = leading()
    step(Propose(71, b"x"))
    for voter in (2, 3):
        assert step(Received(voter, AppendReply(1, 4, accepted=True, index=2))) == []
    assert step(Appended(2)) == [Apply(LogRecord(1, 2, COMMAND, b"x"), 71)]


def test_record_of_an_older_term_is_committed_only_below_one_of_the_own() -> None:
    old = command(1, 1)
    step = Driven(log.vote(1, 2), old)
    step(TimerFired(Timer.ELECTION))
    step(Received(2, VoteReply(2, granted=True, canvass=True)))
    step(Appended(0))
    step(Received(2, VoteReply(2, granted=True, canvass=False)))
    step(Appended(2))
    assert step(Received(2, AppendReply(2, 1, accepted=True, index=1))) == []
    (applied, ready) = step(Received(2, AppendReply(2, 1, accepted=True, index=2)))
    assert (applied, ready) == (Apply(old, None), Ready(2))


def test_follower_answers_when_durable_and_applies_what_is_committed() -> None:
    step = Driven()
    a, b = command(1, 1), command(1, 2)
    assert step(Received(2, AppendRequest(1, 5, BEGINNING, (a, b), 1))) == [
        Append(log.vote(1, NOBODY)),
        ELECTION,
        Append(a),
        Append(b),
    ]
    assert step(Appended(0)) == []
    assert step(Appended(1)) == [Apply(a, None)]
    assert step(Appended(2)) == [Send(2, AppendReply(1, 5, accepted=True, index=2))]
    assert step(Propose(71, b"x")) == [NotLeader(71, 2)]


def test_gap_and_conflict_are_refused_with_a_place_to_go_on() -> None:
    step = following(command(1, 1), command(1, 2), committed=1)
    gap = AppendRequest(1, 8, LogPosition(1, 9), (), 0)
    refusal = Send(2, AppendReply(1, 8, accepted=False, index=2))
    assert step(Received(2, gap)) == [ELECTION, refusal]
    conflict = AppendRequest(1, 9, LogPosition(0, 2), (), 0)
    refusal = Send(2, AppendReply(1, 9, accepted=False, index=1))
    assert step(Received(2, conflict)) == [ELECTION, refusal]


def test_conflicting_tail_is_cut_in_memory_and_in_the_log() -> None:
    step = following(command(1, 1), command(1, 2), command(1, 3), committed=1)
    new = command(2, 2)
    request = AppendRequest(2, 4, LogPosition(1, 1), (new,), 1)
    assert step(Received(3, request)) == [
        Append(log.vote(2, NOBODY)),
        ELECTION,
        Append(log.cut(LogPosition(1, 1))),
        Append(new),
    ]
    assert step.replica.last == LogPosition(2, 2)
    assert step(Appended(0)) == []
    assert step(Appended(1)) == []
    assert step(Appended(2)) == [Send(3, AppendReply(2, 4, accepted=True, index=2))]


def test_record_that_was_cut_while_under_way_does_not_count_as_durable() -> None:
    step = Driven()
    step(Received(2, AppendRequest(1, 1, BEGINNING, (command(1, 1), command(1, 2)), 0)))
    step(Received(3, AppendRequest(2, 1, BEGINNING, (command(2, 1),), 1)))
    step(Appended(0))
    assert step(Appended(1)) == []
    assert step(Appended(2)) == [Send(2, AppendReply(1, 1, accepted=True, index=2))]
    assert step(Appended(0)) == []
    assert step(Appended(0)) == [], "the cut"
    assert step(Appended(1)) == [
        Send(3, AppendReply(2, 1, accepted=True, index=1)),
        Apply(command(2, 1), None),
    ]


def test_repeated_and_late_requests_change_nothing() -> None:
    records = (command(1, 1), command(1, 2))
    step = following(*records, committed=2)
    late = AppendRequest(1, 1, BEGINNING, records[:1], 1)
    answer = Send(2, AppendReply(1, 1, accepted=True, index=2))
    assert step(Received(2, late)) == [ELECTION, answer]
    assert step.replica.last == LogPosition(1, 2)


def test_lost_request_is_sent_again_from_where_the_follower_is() -> None:
    step = leading()
    for number in range(6):
        step(Propose(number, b"x"))
    refused = AppendReply(1, 9, accepted=False, index=1)
    (again, *_) = step(Received(3, refused))
    assert isinstance(again, Send)
    assert isinstance(again.message, AppendRequest)
    assert again.message.previous == LogPosition(1, 1)
    assert len(again.message.records) == 6
    assert step(Received(3, refused)) == [], "the requests behind the lost one are refused too"


# --- reads ------------------------------------------------------------------------------------


def test_read_waits_until_a_majority_says_who_leads() -> None:
    step = leading()
    probe, other = step(Read(81))
    assert probe == Send(2, AppendRequest(1, 3, LogPosition(1, 1), (), 1))
    assert isinstance(other, Send)
    assert step(Received(2, AppendReply(1, 2, accepted=True, index=1))) == [], "an old answer"
    assert step(Received(2, AppendReply(1, 3, accepted=True, index=1))) == [ReadNow(81)]


def test_read_is_not_answered_by_one_who_leads_no_more() -> None:
    step = leading()
    step(Read(81))
    refused = step(Received(3, AppendReply(9, 0, accepted=False, index=0)))
    assert refused == [NotLeader(81, NOBODY), Append(log.vote(9, NOBODY))]
    assert step(Read(82)) == [NotLeader(82, NOBODY)]


def test_read_of_a_single_voter_needs_nobody() -> None:
    alone = Replica(snapshot_after_bytes=1 << 20)
    for event in (Opened(BEGINNING, 0), RecoveryEnded(), Appended(1)):
        alone.step(event)
    assert alone.step(Read(81)) == [ReadNow(81)]
