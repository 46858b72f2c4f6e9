"""Each rule catches exactly its anomaly, and lets what only looks like one pass."""

import pytest

from anabranch.errors import FormatError
from anabranch.testing.made_histories import (
    ORDERED,
    SHARED,
    broken_rules,
    delivered,
    judged,
    outcome,
    receipt,
    sent,
    subscribed,
)
from anabranch.verify.records import (
    CONNECTION_LOST,
    CONSUMER_CONNECTION_LOST,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Damaged,
    Delivery,
    Drained,
    Event,
    Outcome,
    Place,
    Record,
    Sent,
)
from anabranch.verify.verdict import Status, Verdict

DRAINED = Drained(ORDERED, "made")


def one(seq: int, *, producer: int = 0, key: str = "k", entry: int | None = None) -> list[Record]:
    """A message that was sent and acknowledged."""
    attempt = sent(seq, producer=producer, key=key)
    return [attempt, receipt(seq, producer=producer, entry=entry)]


def clean_run() -> list[Record]:
    sends = [record for seq in (1, 2, 3) for record in one(seq)]
    return [subscribed(), *sends, *(delivered(seq) for seq in (1, 2, 3)), DRAINED]


def only_violation(verdict: Verdict, rule: str) -> object:
    assert verdict.status is Status.VIOLATED
    assert broken_rules(verdict) == {rule}
    (violation,) = verdict.violations
    assert violation.finding.rule == rule
    return violation.finding


def test_clean_run_is_clean() -> None:
    verdict = judged(clean_run())
    assert verdict.status is Status.CLEAN
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] == 3
    checked = {rule.id: rule.checked for rule in verdict.rules}
    assert checked == {
        "C1": 3, "C2": 3, "C3": 0, "C4": 3, "C5": 0, "C6": 3, "C7": 3, "C8": 3, "C11": 0,
        "C13": 3, "C14": 3,
    }  # fmt: skip


@pytest.mark.goal("check.C1", broken_by="loss_is_left_undecided")
def test_acknowledged_message_that_never_arrives_is_lost() -> None:
    records = [record for record in clean_run() if record != delivered(2)]
    finding = only_violation(judged(records), "C1")
    assert finding.message == (0, 0, 2)
    assert finding.sub == ORDERED


@pytest.mark.goal("check.C1", broken_by="loss_is_left_undecided")
def test_every_subscription_must_get_the_message() -> None:
    records = [subscribed(SHARED), *clean_run(), Drained(SHARED, "made")]
    some = [delivered(1, sub=SHARED), delivered(3, sub=SHARED)]
    finding = only_violation(judged([*records[:-2], *some, *records[-2:]]), "C1")
    assert (finding.message, finding.sub) == ((0, 0, 2), SHARED)


@pytest.mark.goal("check.C1", broken_by="subscription_is_owed_its_past")
def test_subscription_made_after_the_send_is_owed_nothing() -> None:
    records = clean_run()
    late = [subscribed(SHARED), *one(9), delivered(9), delivered(9, sub=SHARED)]
    verdict = judged([*records[:-1], *late, DRAINED, Drained(SHARED, "made")])
    assert verdict.status is Status.CLEAN


def test_message_missing_before_the_drain_is_undecided_not_lost() -> None:
    records = [r for r in clean_run() if r not in (delivered(3), DRAINED)]
    verdict = judged(records)
    assert broken_rules(verdict) == set()
    assert verdict.status is Status.INCOMPLETE
    assert "subscription 'ordered' was not drained" in verdict.reasons
    assert any("1 acknowledged messages" in reason for reason in verdict.reasons)


def test_message_acknowledged_after_the_drain_is_undecided() -> None:
    verdict = judged([*clean_run(), *one(4)])
    assert broken_rules(verdict) == set()
    assert verdict.status is Status.INCOMPLETE


@pytest.mark.goal("check.C2", broken_by="unsent_is_believed")
@pytest.mark.parametrize(
    "phantom",
    [delivered(77), delivered(1, producer=5), delivered(1, epoch=3), delivered(10**15)],
    ids=["seq", "producer", "epoch", "far seq"],
)
def test_message_that_was_never_sent_is_a_phantom(phantom: Delivery) -> None:
    finding = only_violation(judged([*clean_run(), phantom]), "C2")
    assert finding.message == (phantom.producer, phantom.epoch, phantom.seq)
    assert finding.places == (phantom.place,)


@pytest.mark.goal("check.C2", broken_by="content_is_not_compared")
def test_other_content_than_was_sent_is_a_phantom() -> None:
    changed = delivered(2)._replace(crc=delivered(2).crc ^ 1)
    finding = only_violation(judged([*clean_run(), changed]), "C2")
    assert "another than was sent" in finding.detail


@pytest.mark.goal("check.C2", broken_by="damage_is_only_counted")
def test_damaged_bytes_are_a_phantom() -> None:
    damaged = Damaged(ORDERED, "c", Place(-1, 1, 9, -1), "checksum wrong")
    finding = only_violation(judged([*clean_run(), damaged]), "C2")
    assert "checksum wrong" in finding.detail


def test_delivery_stamped_before_its_send_is_no_phantom() -> None:
    records = [subscribed(), delivered(1), *one(1), DRAINED]
    assert judged(records).status is Status.CLEAN


@pytest.mark.goal("check.C3", broken_by="failed_sends_are_not_looked_for")
def test_failed_send_that_arrives_is_an_aborted_read() -> None:
    failed = [sent(4), outcome(4, Outcome.FAIL)]
    assert judged([*clean_run()[:-1], *failed, DRAINED]).status is Status.CLEAN
    verdict = judged([*clean_run()[:-1], *failed, delivered(4), DRAINED])
    assert only_violation(verdict, "C3").message == (0, 0, 4)


@pytest.mark.goal("check.C3", broken_by="second_attempt_is_not_counted")
@pytest.mark.parametrize("second", [[], [outcome(4, Outcome.UNKNOWN)], [receipt(4)]])
def test_failed_attempt_beside_another_one_proves_nothing(second: list[Sent]) -> None:
    attempts = [sent(4), outcome(4, Outcome.FAIL), sent(4), *second]
    verdict = judged([*clean_run()[:-1], *attempts, delivered(4), DRAINED])
    assert verdict.status is Status.CLEAN


@pytest.mark.parametrize("ending", [[], [outcome(4, Outcome.UNKNOWN)]], ids=["silent", "told"])
@pytest.mark.parametrize("arrives", [False, True])
def test_unknown_send_may_arrive_or_not(ending: list[Sent], arrives: bool) -> None:
    arrival = [delivered(4)] if arrives else []
    verdict = judged([*clean_run()[:-1], sent(4), *ending, *arrival, DRAINED])
    assert verdict.status is Status.CLEAN
    assert verdict.counts["unknown"] == 1


@pytest.mark.goal("check.C4", broken_by="second_place_is_forgotten")
def test_message_at_two_places_is_stored_twice() -> None:
    finding = only_violation(judged([*clean_run(), delivered(2, entry=50)]), "C4")
    assert finding.message == (0, 0, 2)
    assert {place.entry for place in finding.places} == {2, 50}


@pytest.mark.goal("check.C4", broken_by="second_place_is_forgotten")
def test_receipt_for_another_place_than_the_delivery_is_stored_twice() -> None:
    records = [subscribed(), sent(1), receipt(1, entry=40), delivered(1, entry=41), DRAINED]
    assert broken_rules(judged(records)) == {"C4"}


@pytest.mark.goal("check.C4", broken_by="second_place_is_forgotten")
@pytest.mark.parametrize("dedup", [False, True])
def test_send_in_doubt_may_be_stored_twice_only_without_dedup(dedup: bool) -> None:
    twice = [sent(4), delivered(4, entry=60), delivered(4, entry=61)]
    verdict = judged([*clean_run()[:-1], *twice, DRAINED], dedup=dedup)
    (rule,) = [rule for rule in verdict.rules if rule.id == "C4"]
    assert (rule.violations, rule.tolerated) == ((1, 0) if dedup else (0, 1))


@pytest.mark.goal("check.C4", broken_by="second_place_is_forgotten")
@pytest.mark.parametrize(
    ("event", "is_explained"),
    [
        (Event(CONNECTION_LOST, "", 0), True),
        (Event(CONNECTION_LOST, "", 1), False),
        (Event(CONSUMER_CONNECTION_LOST), False),
    ],
    ids=["own connection", "connection of another", "consumer"],
)
def test_library_sends_again_what_its_lost_connection_held(
    event: Event, is_explained: bool
) -> None:
    held = [sent(4), event, receipt(4, entry=61), delivered(4, entry=60), delivered(4, entry=61)]
    verdict = judged([*clean_run()[:-1], *held, DRAINED])
    assert (verdict.status is Status.CLEAN) is is_explained


@pytest.mark.goal("check.C4", broken_by="second_place_is_forgotten")
@pytest.mark.parametrize("is_before", [True, False])
def test_connection_lost_before_or_after_the_send_explains_nothing(is_before: bool) -> None:
    lost = Event(CONNECTION_LOST, "", 0)
    before, after = ([lost], []) if is_before else ([], [lost])
    records = [*before, *clean_run()[:-1], *after, delivered(2, entry=50), DRAINED]
    assert broken_rules(judged(records)) == {"C4"}


def test_redelivery_from_the_same_place_is_fine() -> None:
    verdict = judged([*clean_run()[:-1], *(delivered(seq) for seq in (1, 2, 3)), DRAINED])
    assert verdict.status is Status.CLEAN
    assert verdict.counts["redeliveries"] == 3


@pytest.mark.goal("check.C6", broken_by="key_order_is_only_counted")
def test_first_deliveries_out_of_order_break_key_order() -> None:
    records = clean_run()
    first, second = records.index(delivered(1)), records.index(delivered(2))
    records[first], records[second] = records[second], records[first]
    finding = only_violation(judged(records), "C6")
    assert finding.message == (0, 0, 1)
    assert finding.key == "k"
    assert "after seq 2" in finding.detail


@pytest.mark.goal("check.C6", broken_by="key_order_over_all_keys")
def test_order_is_kept_per_key_per_producer_and_only_where_promised() -> None:
    sends = [*one(1, key="a"), *one(2, key="b"), *one(1, producer=1, key="a", entry=9)]
    arrivals = [delivered(2, key="b"), delivered(1, producer=1, key="a", entry=9)]
    arrivals.append(delivered(1, key="a"))
    records = [subscribed(), *sends, *arrivals, DRAINED]
    assert judged(records).status is Status.CLEAN
    shared = [subscribed(SHARED), *one(1), *one(2)]
    swapped = [delivered(2, sub=SHARED), delivered(1, sub=SHARED), Drained(SHARED, "made")]
    assert judged([*shared, *swapped]).status is Status.CLEAN


@pytest.mark.goal("check.C6", broken_by="key_order_per_consumer")
def test_order_holds_over_two_consumers_of_one_subscription() -> None:
    handover = [delivered(2)._replace(consumer="other"), delivered(1)]
    records = [r for r in clean_run() if r not in (delivered(1), delivered(2), delivered(3))]
    verdict = judged([*records[:-1], *handover, delivered(3), DRAINED])
    assert broken_rules(verdict) == {"C6"}


@pytest.mark.goal("check.C7", broken_by="places_of_receipts_are_ignored")
def test_receipts_whose_places_go_back_break_position_order() -> None:
    sends = [sent(1), receipt(1, entry=8), sent(2), receipt(2, entry=7)]
    arrivals = [delivered(1, entry=8), delivered(2, entry=7)]
    finding = only_violation(judged([subscribed(), *sends, *arrivals, DRAINED]), "C7")
    assert finding.message == (0, 0, 2)


@pytest.mark.goal("check.C7", broken_by="seqs_of_receipts_are_ignored")
def test_receipts_out_of_the_order_of_sending_break_position_order() -> None:
    sends = [sent(1), sent(2), receipt(2, entry=7), receipt(1, entry=8)]
    arrivals = [delivered(1, entry=8), delivered(2, entry=7)]
    assert broken_rules(judged([subscribed(), *sends, *arrivals, DRAINED])) == {"C7"}


@pytest.mark.goal("check.C8", broken_by="divergence_is_only_counted")
def test_two_messages_at_one_place_diverge() -> None:
    other = [sent(1, producer=1), outcome(1, Outcome.UNKNOWN, producer=1)]
    arrival = delivered(1, producer=1, entry=2)
    finding = only_violation(judged([*clean_run()[:-1], *other, arrival, DRAINED]), "C8")
    assert finding.places == (Place(-1, 1, 2, -1),)


def in_ledgers(*stored: tuple[int, float, float]) -> list[Record]:
    """Messages by the ledger they are in, and when they were sent and acknowledged."""
    sends, receipts, arrivals = [], [], []
    for seq, (ledger, begun, ended) in enumerate(stored, start=4):
        place = Place(-1, ledger, seq, -1)
        sends.append(sent(seq, producer=seq)._replace(t=begun))
        receipts.append(Sent(seq, 0, seq, Outcome.OK, place, t=ended))
        arrivals.append(delivered(seq, producer=seq)._replace(place=place))
    timed = sorted([*sends, *receipts], key=lambda record: record.t)
    return [*clean_run()[:-1], *timed, *arrivals, DRAINED]


@pytest.mark.goal("check.C13", part="rule", broken_by="late_owners_are_believed")
def test_what_is_sent_after_a_later_ledger_was_written_cannot_be_in_an_earlier_one() -> None:
    verdict = judged(in_ledgers((8, 200.0, 200.1), (9, 200.2, 200.3), (8, 200.4, 200.5)))
    finding = only_violation(verdict, "C13")
    assert finding.message == (6, 0, 6)
    assert "ledger 9 had a receipt" in finding.detail


@pytest.mark.goal("check.C13", part="rule", broken_by="late_receipts_are_blamed")
def test_a_receipt_may_come_late_for_what_was_sent_in_time() -> None:
    verdict = judged(in_ledgers((8, 200.0, 200.1), (9, 200.2, 200.3), (8, 200.25, 200.5)))
    assert broken_rules(verdict) == set()


def waiting(seconds: float, *around: Event) -> list[Record]:
    before, after = around if around else (None, None)
    records: list[Record | None] = [sent(4)._replace(t=200.0), before, after]
    records.append(receipt(4)._replace(t=200.0 + seconds))
    return [*clean_run()[:-1], *(r for r in records if r is not None), delivered(4), DRAINED]


@pytest.mark.goal("check.C14", broken_by="windows_are_everywhere")
@pytest.mark.parametrize(("seconds", "is_stuck"), [(4.9, False), (5.1, True)])
def test_producer_without_receipts_for_5_s_is_stuck(seconds: float, is_stuck: bool) -> None:
    assert broken_rules(judged(waiting(seconds))) == ({"C14"} if is_stuck else set())


@pytest.mark.goal("check.C14", broken_by="windows_are_not_known")
@pytest.mark.parametrize(("seconds", "is_stuck"), [(29.0, False), (31.0, True)])
def test_declared_window_allows_30_s(seconds: float, is_stuck: bool) -> None:
    verdict = judged(waiting(seconds, Event(WINDOW_OPENED), Event(WINDOW_CLOSED)))
    assert broken_rules(verdict) == ({"C14"} if is_stuck else set())
    assert verdict.figures["longest_wait_in_window_s"] == pytest.approx(seconds)


@pytest.mark.goal("check.C14", broken_by="timeouts_are_progress")
def test_sends_that_time_out_are_no_progress() -> None:
    attempts: list[Record] = [sent(seq)._replace(t=200.0 + seq) for seq in range(4, 14)]
    lost = [outcome(seq, Outcome.UNKNOWN)._replace(t=202.5 + seq) for seq in range(4, 14)]
    steady = sorted([*attempts, *lost], key=lambda record: record.t)
    assert broken_rules(judged([*clean_run()[:-1], *steady, DRAINED])) == {"C14"}


def test_producer_with_nothing_to_wait_for_is_not_stuck() -> None:
    later = [record._replace(t=record.t or 900.0) for record in one(4)]
    verdict = judged([*clean_run()[:-1], *later, delivered(4), DRAINED])
    assert verdict.status is Status.CLEAN


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "no send was acknowledged"),
        ([subscribed(), DRAINED], "no send was acknowledged"),
        ([*one(1)], "there was no subscription"),
        ([subscribed(), sent(1), DRAINED], "no send was acknowledged"),
    ],
)
def test_too_little_input_never_passes(records: list[Record], reason: str) -> None:
    verdict = judged(records)
    assert verdict.status is Status.INCOMPLETE
    assert reason in verdict.reasons


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([receipt(1)], "without its send"),
        ([sent(1), receipt(1), receipt(1)], "without its send"),
        ([delivered(1)], "never announced"),
        ([sent(1), sent(1, key="other")], "two payloads"),
        ([sent(1)] * 256, "too many times"),
    ],
)
def test_history_that_contradicts_itself_is_refused(records: list[Record], complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        judged(records)


def test_all_violations_are_counted_but_only_some_kept() -> None:
    sends = [record for seq in range(1, 300) for record in one(seq)]
    verdict = judged([subscribed(), *sends, delivered(1), DRAINED])
    assert next(rule for rule in verdict.rules if rule.id == "C1").violations == 298
    assert len(verdict.violations) == 100
