"""C5 and C11: what was confirmed does not come again, and no cursor goes back."""

import pytest

from anabranch.errors import FormatError
from anabranch.testing.made_histories import (
    ORDERED,
    SHARED,
    broken_rules,
    confirmed,
    cursor_at,
    delivered,
    judged,
    receipt,
    sent,
    subscribed,
)
from anabranch.verify.records import (
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    CURSOR_MOVED,
    OWNER_IN_DOUBT,
    REDELIVERY_ASKED,
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    AckKind,
    Drained,
    Event,
    Outcome,
    Place,
    Record,
)
from anabranch.verify.verdict import RuleResult, Status, Verdict

CUMULATIVE = AckKind.CUMULATIVE
CRASH = (Event(WINDOW_OPENED), Event(SERVER_KILLED), Event(WINDOW_CLOSED))


def run(*after: Record, sub: str = ORDERED) -> list[Record]:
    """Three messages that were sent, acknowledged and delivered once; then what is given."""
    messages = [r for seq in (1, 2, 3) for r in (sent(seq), receipt(seq))]
    arrivals = [delivered(seq, sub=sub) for seq in (1, 2, 3)]
    return [subscribed(sub), *messages, *arrivals, *after, Drained(sub, "made")]


def rule(verdict: Verdict, name: str) -> RuleResult:
    return next(rule for rule in verdict.rules if rule.id == name)


@pytest.mark.goal("check.C5", part="outside a crash", broken_by="confirmed_ack_not_remembered")
@pytest.mark.parametrize("sub", [ORDERED, SHARED])
@pytest.mark.parametrize("kind", AckKind)
def test_delivery_after_its_confirmed_ack_is_found(kind: AckKind, sub: str) -> None:
    ack = confirmed(2, kind=kind, sub=sub)
    verdict = judged(run(ack, delivered(2, sub=sub), sub=sub))
    assert verdict.status is Status.VIOLATED
    assert broken_rules(verdict) == {"C5"}
    (violation,) = verdict.violations
    assert violation.finding.message == (0, 0, 2)
    assert violation.finding.sub == sub
    assert violation.finding.places == (Place(-1, 1, 2, -1),)
    assert rule(verdict, "C5").checked == (2 if kind is CUMULATIVE else 1)
    assert judged(run(ack, sub=sub)).status is Status.CLEAN


@pytest.mark.goal("check.C5", part="outside a crash", broken_by="cumulative_ack_covers_its_last")
def test_cumulative_ack_confirms_all_below_and_nothing_above() -> None:
    ack = confirmed(2, kind=CUMULATIVE)
    assert broken_rules(judged(run(ack, delivered(1)))) == {"C5"}
    assert judged(run(ack, delivered(3))).status is Status.CLEAN
    elsewhere = ack._replace(places=(Place(0, 1, 2, -1),))
    assert judged(run(elsewhere, delivered(1))).status is Status.CLEAN, "another partition"


def test_ack_of_unknown_outcome_and_ack_of_another_subscription_confirm_nothing() -> None:
    unknown = confirmed(2)._replace(outcome=Outcome.UNKNOWN)
    assert judged(run(unknown, delivered(2))).status is Status.CLEAN
    other = [subscribed(SHARED), *run(confirmed(2, sub=SHARED), delivered(2))]
    assert "C5" not in broken_rules(judged(other))


@pytest.mark.parametrize(
    "cause",
    [
        Event(CONSUMER_CONNECTION_LOST, sub=ORDERED),
        Event(CONSUMER_CONNECTION_LOST),
        Event(REDELIVERY_ASKED, sub=ORDERED),
        Event(SERVER_KILLED),
        Event(CURSOR_MOVED, sub=ORDERED),
        subscribed(ORDERED),
    ],
    ids=["connection", "any connection", "asked", "crash", "seek", "other consumer"],
)
def test_copy_that_was_under_way_before_the_ack_is_not_held_against_the_server(
    cause: Record,
) -> None:
    assert judged(run(cause, confirmed(2), delivered(2))).status is Status.CLEAN


@pytest.mark.goal("check.C5", part="outside a crash", broken_by="any_event_excuses_acks")
def test_cause_of_another_subscription_or_after_the_ack_explains_nothing() -> None:
    asked = Event(REDELIVERY_ASKED, sub=SHARED)
    other = [subscribed(SHARED), *run(asked, confirmed(2), delivered(2))]
    assert "C5" in broken_rules(judged(other))
    later = Event(REDELIVERY_ASKED, sub=ORDERED)
    assert broken_rules(judged(run(confirmed(2), later, delivered(2)))) == {"C5"}


@pytest.mark.goal("check.C5", part="after a crash", broken_by="crash_excuses_every_ack")
def test_crash_excuses_no_confirmed_ack_unless_a_lag_is_allowed() -> None:
    again = run(confirmed(2), *CRASH, delivered(2))
    assert broken_rules(judged(again)) == {"C5"}
    verdict = judged(again, ack_lag_s=1.0)
    assert verdict.status is Status.CLEAN
    assert (rule(verdict, "C5").violations, rule(verdict, "C5").tolerated) == (0, 1)


@pytest.mark.goal("check.C5", part="after a crash", broken_by="crash_excuses_every_ack")
def test_lag_after_a_crash_is_measured_and_bounded() -> None:
    late = [event._replace(t=110.0) for event in CRASH]
    early, timely = confirmed(1)._replace(t=107.0), confirmed(2)._replace(t=108.5)
    records = run(early, timely, *late, delivered(1), delivered(2))
    verdict = judged(records, ack_lag_s=2.0)
    assert [v.finding.message for v in verdict.violations] == [(0, 0, 1)]
    assert rule(verdict, "C5").tolerated == 1
    assert verdict.figures["longest_undone_ack_s"] == pytest.approx(1.501)


def test_confirmed_while_the_owner_was_going_down_counts_as_just_before_the_crash() -> None:
    opened, killed, closed = CRASH
    records = run(opened, killed, delivered(1), confirmed(1), closed, delivered(1))
    assert judged(records, ack_lag_s=0.5).status is Status.CLEAN


@pytest.mark.goal("check.C5", part="after a crash", broken_by="crash_excuses_every_ack")
def test_ack_confirmed_after_the_crash_is_not_excused_by_it() -> None:
    fresh = [sent(4), receipt(4), delivered(4), confirmed(4), delivered(4)]
    verdict = judged(run(*CRASH, *fresh), ack_lag_s=30.0)
    assert [v.finding.message for v in verdict.violations] == [(0, 0, 4)]


def test_queue_of_another_consumer_may_hold_what_it_was_sent_before_the_ack() -> None:
    other = delivered(2)._replace(consumer="other")
    assert judged(run(confirmed(2), other)).status is Status.CLEAN
    back = Event(CONNECTION_RESTORED, "other", sub=ORDERED)
    assert broken_rules(judged(run(confirmed(2), back, other))) == {"C5"}
    came = subscribed()._replace(consumer="other")
    assert broken_rules(judged(run(confirmed(2), came, other))) == {"C5"}


def test_second_copy_of_a_message_stored_twice_is_not_the_first() -> None:
    copies = [sent(4), delivered(4, entry=40), confirmed(40), delivered(4, entry=41)]
    assert judged(run(*copies)).status is Status.CLEAN


@pytest.mark.goal("check.C11", part="rule", broken_by="cursor_compared_with_nothing")
def test_cursor_below_an_earlier_position_is_found() -> None:
    verdict = judged(run(cursor_at(1), cursor_at(3), cursor_at(2)))
    assert verdict.status is Status.VIOLATED
    assert broken_rules(verdict) == {"C11"}
    (violation,) = verdict.violations
    assert violation.finding.places == (Place(-1, 1, 3, -1), Place(-1, 1, 2, -1))
    assert violation.finding.sub == ORDERED
    assert rule(verdict, "C11").checked == 3


@pytest.mark.goal("check.C11", part="rule", broken_by="cursor_compared_with_nothing")
def test_cursor_is_compared_over_an_operation_and_with_the_highest_before() -> None:
    operation = [Event("operation-begun"), Event("operation-ended")]
    assert broken_rules(judged(run(cursor_at(3), *operation, cursor_at(2)))) == {"C11"}
    back_and_up = run(cursor_at(5), cursor_at(3), cursor_at(4))
    assert rule(judged(back_and_up), "C11").violations == 2


@pytest.mark.goal("check.C11", part="rule", broken_by="cursors_share_a_position")
def test_cursors_that_stand_or_rise_are_fine_each_on_its_own() -> None:
    other = cursor_at(1, sub=SHARED)
    records = [subscribed(SHARED), *run(cursor_at(2), cursor_at(2), cursor_at(3), other)]
    assert broken_rules(judged(records)) == set()
    partition = cursor_at(1)._replace(place=Place(4, 1, 1, -1))
    assert judged(run(cursor_at(3), partition)).status is Status.CLEAN


def test_answers_that_crossed_are_not_compared() -> None:
    crossed = cursor_at(2, asked=100.0)
    assert judged(run(cursor_at(3), crossed)).status is Status.CLEAN


def test_seek_moves_a_cursor_back_once() -> None:
    moved = Event(CURSOR_MOVED, sub=ORDERED)
    assert judged(run(cursor_at(3), moved, cursor_at(1))).status is Status.CLEAN
    again = judged(run(cursor_at(3), moved, cursor_at(2), cursor_at(1)))
    assert broken_rules(again) == {"C11"}
    elsewhere = Event(CURSOR_MOVED, sub=SHARED)
    assert broken_rules(judged(run(cursor_at(3), elsewhere, cursor_at(1)))) == {"C11"}
    crossing = cursor_at(9, asked=100.0)
    assert judged(run(moved, crossing, cursor_at(1))).status is Status.CLEAN


def test_owner_in_doubt_tells_nothing_that_a_cursor_is_held_to() -> None:
    doubt, over = Event(OWNER_IN_DOUBT), Event(WINDOW_CLOSED)
    assert judged(run(cursor_at(3), doubt, cursor_at(5), cursor_at(4), over)).status is Status.CLEAN
    assert judged(run(doubt, cursor_at(5), over, cursor_at(4))).status is Status.CLEAN
    afterwards = run(doubt, cursor_at(5), over, cursor_at(4), cursor_at(3))
    assert broken_rules(judged(afterwards)) == {"C11"}
    no_doubt = run(Event(WINDOW_OPENED), cursor_at(5), over, cursor_at(4))
    assert broken_rules(judged(no_doubt)) == {"C11"}


@pytest.mark.parametrize("record", [confirmed(1, sub=SHARED), cursor_at(1, sub=SHARED)])
def test_unknown_subscription_is_refused(record: Record) -> None:
    with pytest.raises(FormatError, match="never announced"):
        judged(run(record))
