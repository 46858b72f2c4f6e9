"""An owner that never hears that it lost its lock: the ledgers keep the topic from having two."""

import itertools

import pytest
from several_brokers import NAME, TOPIC, settle, several_brokers

from anabranch.broker.broker import Broker
from anabranch.client import Client, Producer
from anabranch.ownership import Bundle
from anabranch.testing.made_histories import broken_rules
from anabranch.verify.recording_consumer import place_of
from anabranch.verify.records import Outcome, Send, Sent
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import conclude


class Recorded:
    """Sends of several producers, judged together."""

    def __init__(self) -> None:
        self.judge = Judge(dedup=False)
        self._times = itertools.count()

    async def send(self, number: int, producer: Producer, seq: int) -> int:
        """Send one message; return the ledger it is in."""
        self.judge.see(Send(number, 0, seq, "k", seq, t=float(next(self._times))))
        stored = await producer.send(b"%d" % seq)
        place = place_of(stored)
        self.judge.see(Sent(number, 0, seq, Outcome.OK, place, t=float(next(self._times))))
        return place.ledger


@pytest.mark.goal("check.C13", part="fenced", broken_by="memory_open_does_not_fence")
@pytest.mark.goal("core.B14", part="fenced", broken_by="memory_open_does_not_fence")
async def test_a_topic_never_has_two_owners_that_acknowledge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hear_nothing(self: Broker, bundle: Bundle) -> None:
        """Stands for a lock that is believed in for too long."""

    monkeypatch.setattr(Broker, "_lost", hear_nothing)
    recorded = Recorded()
    async with several_brokers(2) as brokers:
        for member in brokers.members:
            monkeypatch.setattr(member.ownership, "on_lost", lambda bundle: None)
        old = brokers[0]
        await old.ownership.require(NAME)
        other = brokers[1]
        async with brokers.client(old) as first, Client(other.url) as second:
            early = await first.producer(TOPIC, name="early", batching=None)
            before = await recorded.send(1, early, 1)
            assert [topic.name for topic in old.broker.topics.all()] == [NAME]
            await old.lose_session()
            await other.ownership.require(NAME)
            await settle()
            late = await second.producer(TOPIC, name="late", batching=None)
            after = await recorded.send(2, late, 1)
            assert after > before, "the next owner has a ledger of its own"
            at_last = await recorded.send(1, early, 2)
            verdict = conclude(recorded.judge)
            assert broken_rules(verdict) == set(), verdict.as_text()
            assert at_last >= after
            assert other.broker.topics.all() != []
