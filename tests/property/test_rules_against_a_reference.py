"""On random histories, sensible or not, every rule finds exactly what its slow twin finds."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_rules import RULES, Found, History

from anabranch.testing.made_histories import ORDERED, SHARED, checksum, subscribed
from anabranch.verify.records import (
    CONNECTION_LOST,
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    CURSOR_MOVED,
    OWNER_IN_DOUBT,
    REDELIVERY_ASKED,
    SERVER_KILLED,
    WINDOW_CLOSED,
    WINDOW_OPENED,
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    Drained,
    Event,
    MessageId,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
)
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import Verdict, conclude

EVENTS = (
    CONNECTION_LOST,
    CONNECTION_RESTORED,
    CONSUMER_CONNECTION_LOST,
    REDELIVERY_ASKED,
    CURSOR_MOVED,
    OWNER_IN_DOUBT,
    SERVER_KILLED,
    WINDOW_OPENED,
    WINDOW_CLOSED,
)


class Chaos:
    """Makes a history that obeys the format and nothing else."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.open: list[MessageId] = []
        self.times = [100.0]
        self.subs = {ORDERED}

    def records(self, count: int) -> list[Record]:
        makers = [self.send] * 4 + [self.sent] * 4 + [self.delivery] * 6 + [self.ack] * 4
        makers += [self.cursor, self.cursor, self.event, self.other]
        records: list[Record] = [subscribed(ORDERED)._replace(t=100.0)]
        while len(records) < count:
            step = self.random.choice((0.0, 0.001, 0.001, 0.4, 0.7, 0.7, 2.0, 6.0))
            self.times.append(round(self.times[-1] + step, 6))
            record = self.random.choice(makers)()
            if record is not None:
                records.append(record._replace(t=self.times[-1]))
        return records

    def message(self) -> MessageId:
        return MessageId(self.random.randrange(2), 0, self.random.randrange(6))

    def key(self, message: MessageId) -> str:
        return ("", "a", "b")[message.seq % 3]

    def place(self) -> Place:
        choice = self.random.choice
        return Place(choice((-1, -1, -1, 0)), choice((1, 1, 2)), self.random.randrange(6), -1)

    def sub(self) -> str:
        return self.random.choice(sorted(self.subs))

    def consumer(self) -> str:
        return self.random.choice(("c", "c", "d"))

    def send(self) -> Record:
        message = self.message()
        self.open.append(message)
        return Send(*message, self.key(message), checksum(message, self.key(message)))

    def sent(self) -> Record | None:
        if not self.open:
            return None
        message = self.open.pop(self.random.randrange(len(self.open)))
        outcome = self.random.choice((Outcome.OK, Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN))
        place = self.place() if outcome is Outcome.OK else None
        return Sent(*message, outcome, place)

    def delivery(self) -> Record:
        message = self.message()
        crc = checksum(message, self.key(message)) ^ (self.random.random() < 0.05)
        return Delivery(self.sub(), self.consumer(), *message, self.key(message), crc, self.place())

    def ack(self) -> Record:
        kind = self.random.choice(list(AckKind))
        outcome = self.random.choice((Outcome.OK, Outcome.OK, Outcome.UNKNOWN))
        places = tuple(self.place() for _ in range(self.random.randrange(3)))
        return Ack(self.sub(), self.consumer(), kind, outcome, places)

    def cursor(self) -> Record:
        return CursorAt(self.sub(), self.place(), self.random.choice(self.times[-6:]))

    def event(self) -> Record:
        producer = self.random.choice((None, 0, 1))
        sub = self.random.choice(("", self.sub()))
        return Event(self.random.choice(EVENTS), self.consumer(), producer, sub)

    def other(self) -> Record:
        if self.random.random() < 0.4:
            sub = self.random.choice((ORDERED, SHARED))
            self.subs.add(sub)
            return subscribed(sub)._replace(consumer=self.consumer())
        if self.random.random() < 0.5:
            return Damaged(self.sub(), "c", self.place(), "made")
        return Drained(self.sub(), "made")


def found_by(verdict: Verdict, rule: str) -> list[Found]:
    found: list[Found] = []
    for violation in verdict.violations:
        f = violation.finding
        if f.rule == rule:
            what = f.t if f.message is None else tuple(f.message)
            found.append((rule, what, None if rule in ("C4", "C7", "C8") else f.sub))
    return sorted(found, key=repr)


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 2**32), dedup=st.booleans(), lag_s=st.sampled_from((0.0, 1.0, 7.0)))
@settings(max_examples=150, deadline=None)
def test_rule_finds_what_its_slow_twin_finds(
    rule: str, seed: int, dedup: bool, lag_s: float
) -> None:
    records = Chaos(seed).records(70)
    judge = Judge(dedup=dedup, ack_lag_s=lag_s)
    for record in records:
        judge.see(record)
    verdict = conclude(judge)
    said = RULES[rule](History(records, dedup=dedup, ack_lag_s=lag_s))
    assert found_by(verdict, rule) == sorted(said.found, key=repr)
    (result,) = [result for result in verdict.rules if result.id == rule]
    assert (result.violations, result.tolerated) == (len(said.found), said.tolerated)
