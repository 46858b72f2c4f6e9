"""Histories of a correct broker always pass; with one planted mistake they never do."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.testing.made_histories import (
    ORDERED,
    SHARED,
    broken_rules,
    correct_run,
    delivered,
    judged,
    outcome,
    receipt,
    sent,
)
from anabranch.verify.records import Delivery, MessageId, Outcome, Place, Record, Sent
from anabranch.verify.verdict import Status

SEEDS = st.integers(0, 2**32)
Mistake = Callable[[Random, list[Record]], None]


def name_of(record: Sent | Delivery) -> MessageId:
    return MessageId(record.producer, record.epoch, record.seq)


def acknowledged(records: list[Record]) -> list[Sent]:
    return [r for r in records if isinstance(r, Sent) and r.outcome is Outcome.OK]


def made_run(seed: int) -> list[Record]:
    """A correct run that certainly holds two good messages of one key and a failed one."""
    records = correct_run(Random(seed), sends=60)
    first = 1 + max(r.entry for r in (x.place for x in records if isinstance(x, Delivery)))
    certain: list[Record] = [sent(1, producer=9), receipt(1, producer=9, entry=first)]
    certain += [sent(2, producer=9), receipt(2, producer=9, entry=first + 1)]
    certain += [sent(3, producer=9), outcome(3, Outcome.FAIL, producer=9)]
    for sub in (ORDERED, SHARED):
        certain += [delivered(n, producer=9, entry=first + n - 1, sub=sub) for n in (1, 2)]
    return [*records[:-3], *certain, *records[-3:]]


def lose(random: Random, records: list[Record]) -> None:
    victim, sub = name_of(random.choice(acknowledged(records))), random.choice((ORDERED, SHARED))
    records[:] = [
        r
        for r in records
        if not (isinstance(r, Delivery) and r.sub == sub and name_of(r) == victim)
    ]


def invent(random: Random, records: list[Record]) -> None:
    index = random.choice([i for i, r in enumerate(records) if isinstance(r, Delivery)])
    original = records[index]
    assert isinstance(original, Delivery)
    change = random.choice(({"seq": 10**6}, {"crc": original.crc ^ 1}, {"epoch": 7}))
    records.insert(index, original._replace(**change))


def revive(random: Random, records: list[Record]) -> None:
    failed = [r for r in records if isinstance(r, Sent) and r.outcome is Outcome.FAIL]
    victim = random.choice(failed)
    sub = random.choice((ORDERED, SHARED))
    key = next(r.key for r in records if hasattr(r, "key") and name_of(r) == name_of(victim))
    again = delivered(victim.seq, entry=10**6, producer=victim.producer, key=key, sub=sub)
    records.insert(-3, again)


def store_again(random: Random, records: list[Record]) -> None:
    copies = [r for r in records if isinstance(r, Delivery) and r.producer == 9]
    records.insert(-3, random.choice(copies)._replace(place=Place(-1, 99, 0, -1)))


def swap_first_deliveries(random: Random, records: list[Record]) -> None:
    firsts: dict[MessageId, int] = {}
    for index, record in enumerate(records):
        if isinstance(record, Delivery) and record.sub == ORDERED:
            firsts.setdefault(name_of(record), index)
    by_key: dict[tuple[int, str], list[int]] = {}
    for name, index in firsts.items():
        record = records[index]
        assert isinstance(record, Delivery)
        by_key.setdefault((name.producer, record.key), []).append(index)
    several = [indexes for indexes in by_key.values() if len(indexes) > 1]
    a, b = random.sample(random.choice(several), 2)
    records[a], records[b] = records[b], records[a]


def receipts_cross(random: Random, records: list[Record]) -> None:
    at = [i for i, r in enumerate(records) if isinstance(r, Sent) and r.place is not None]
    producer = random.choice([r.producer for r in acknowledged(records) if r.producer == 9])
    a, b = [i for i in at if records[i].producer == producer][:2]  # type: ignore[union-attr]
    first, second = records[a], records[b]
    records[a] = first._replace(place=second.place)  # type: ignore[union-attr,call-arg]
    records[b] = second._replace(place=first.place)  # type: ignore[union-attr,call-arg]


def share_a_place(random: Random, records: list[Record]) -> None:
    one, two = random.sample(acknowledged(records), 2)
    for index, record in enumerate(records):
        if isinstance(record, Sent | Delivery) and name_of(record) == name_of(two):
            records[index] = record._replace(place=one.place)


def proven(goal: str, bug: str) -> pytest.MarkDecorator:
    return pytest.mark.goal(goal, broken_by=bug)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_correct_broker_always_passes(seed: int) -> None:
    verdict = judged(made_run(seed))
    assert verdict.status is Status.CLEAN, verdict.as_text()


@pytest.mark.parametrize(
    ("rule", "mistake"),
    [
        pytest.param("C1", lose, marks=proven("check.C1", "loss_is_left_undecided")),
        pytest.param("C2", invent, marks=proven("check.C2", "content_is_not_compared")),
        pytest.param("C3", revive, marks=proven("check.C3", "failed_sends_are_not_looked_for")),
        pytest.param("C4", store_again, marks=proven("check.C4", "second_place_is_forgotten")),
        pytest.param(
            "C6", swap_first_deliveries, marks=proven("check.C6", "key_order_is_only_counted")
        ),
        pytest.param(
            "C7", receipts_cross, marks=proven("check.C7", "places_of_receipts_are_ignored")
        ),
        pytest.param("C8", share_a_place, marks=proven("check.C8", "divergence_is_only_counted")),
    ],
)
@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_one_mistake_is_always_caught(rule: str, mistake: Mistake, seed: int) -> None:
    records = made_run(seed)
    mistake(Random(seed), records)
    assert rule in broken_rules(judged(records))
