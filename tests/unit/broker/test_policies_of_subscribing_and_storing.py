"""Policies of how often consumers subscribe, when producers are noted, where entries are stored."""

from dataclasses import replace
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, eventually, memory_stores, running_broker

from anabranch.broker import BrokerSettings
from anabranch.broker.deduplication import Deduplication
from anabranch.broker.limits import SUBSCRIBERS_COUNTED_MAX
from anabranch.broker.policies.storing import quorums_of
from anabranch.broker.policies.subscribe_rates import Subscriber, SubscribeRates
from anabranch.broker.refusals import Refused
from anabranch.broker.topic import Topic
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import TopicName
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerQuorums
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.policies import NamespacePolicies, Persistence, SubscribeRate, TopicPolicies
from anabranch.policies.effective import PolicyDefaults, resolve
from anabranch.wire import ServerError, requests

ONE_IN_A_MINUTE = SubscribeRate(per_consumer=1, period_s=60)


def rule(topic: Topic, **policies: Any) -> None:
    topic.apply(replace(topic.policies, **policies))


def test_each_consumer_has_its_own_count_and_period() -> None:
    rates, one = SubscribeRates(), Subscriber("h", "c", 1)
    for _ in range(3):
        rates.admit(one, 0.0)  # nobody is counted where there is no rate
    rates.follow(SubscribeRate(per_consumer=2, period_s=10))
    rates.admit(one, 100.0)
    rates.admit(one, 101.0)
    for other in (Subscriber("i", "c", 1), Subscriber("h", "d", 1), Subscriber("h", "c", 2)):
        rates.admit(other, 101.0)
    with pytest.raises(Refused, match="Subscribe limited"):
        rates.admit(one, 109.9)
    rates.admit(one, 110.0)
    rates.follow(ONE_IN_A_MINUTE)
    rates.admit(one, 110.0)
    rates.follow(replace(ONE_IN_A_MINUTE))  # the same rate does not begin anew
    with pytest.raises(Refused):
        rates.admit(one, 110.0)


def test_names_without_end_are_not_all_remembered() -> None:
    rates = SubscribeRates()
    rates.follow(ONE_IN_A_MINUTE)
    for number in range(SUBSCRIBERS_COUNTED_MAX + 5):
        rates.admit(Subscriber("h", f"c{number}", 1), 0.0)
    assert len(rates._counted) == SUBSCRIBERS_COUNTED_MAX
    with pytest.raises(Refused):
        rates.admit(Subscriber("h", f"c{SUBSCRIBERS_COUNTED_MAX}", 1), 1.0)


@pytest.mark.goal("core.B11", part="rate limits", broken_by="everybody_subscribes_again_and_again")
async def test_a_consumer_that_subscribes_too_often_is_refused() -> None:
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        rule(topic, subscribe_rate=ONE_IN_A_MINUTE)
        first = await wire.subscribe(consumer_name="c")
        assert first.type == pb.BaseCommand.SUCCESS
        await wire.ask(requests.close_consumer(1, 5))
        again = await wire.subscribe(consumer_name="c")
        assert again.type == pb.BaseCommand.ERROR
        assert again.error.error == ServerError.NotAllowedError
        assert again.error.message == "Subscribe limited by subscribe rate limit per consumer."
        assert not topic.subscriptions["s"].consumers
        other = await wire.subscribe(consumer_name="d")
        assert other.type == pb.BaseCommand.SUCCESS


@pytest.mark.goal("core.B11", part="levels", broken_by="snapshots_have_their_own_time")
async def test_what_is_known_of_producers_is_stored_as_often_as_policies_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    due: list[float] = []

    def later(self: Deduplication) -> None:
        due.append(self._snapshot_s)

    monkeypatch.setattr(Deduplication, "_snapshot_later", later)
    settings = BrokerSettings(
        policies=PolicyDefaults(deduplication_enabled=True, deduplication_snapshot_s=7)
    )
    async with running_broker(settings) as broker:
        topic = await broker.topics.open(TopicName.parse(TOPIC), create=True)
        assert due == [7]
        rule(topic, message_ttl_s=5)
        assert due == [7], "nothing changed"
        rule(topic, deduplication_snapshot_s=3)
        assert due == [7, 3]
        assert topic.deduplication is not None
        topic.deduplication._tick()
        assert due == [7, 3, 3], "again and again"


async def test_at_an_interval_of_zero_nothing_is_stored_by_time() -> None:
    settings = BrokerSettings(
        policies=PolicyDefaults(deduplication_enabled=True, deduplication_snapshot_s=9)
    )
    async with running_broker(settings) as broker:
        topic = await broker.topics.open(TopicName.parse(TOPIC), create=True)
        assert topic.deduplication is not None
        assert topic.deduplication._timer is not None
        rule(topic, deduplication_snapshot_s=0)
        assert topic.deduplication._timer is None


class QuorumsNoted(MemoryLedgerStore):
    """Knows how many servers each ledger was asked to be on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[LedgerQuorums | None] = []

    async def create(
        self, ledger_id: int, *, quorums: LedgerQuorums | None = None, **more: Any
    ) -> Any:
        self.asked.append(quorums)
        return await super().create(ledger_id, quorums=quorums, **more)


@pytest.mark.goal("core.B11", part="levels", broken_by="persistence_is_only_stored")
async def test_new_ledgers_have_the_quorums_of_the_policies() -> None:
    metadata, _ = await memory_stores()
    ledgers = QuorumsNoted()
    config = ManagedLedgerConfig(ledger_entries_max=1)
    async with running_broker(stores=(metadata, ledgers), config=config) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        assert ledgers.asked == [None]
        rule(
            topic,
            persistence=Persistence(
                bookkeeper_ensemble=5, bookkeeper_write_quorum=3, bookkeeper_ack_quorum=2
            ),
        )
        await wire.published(1)
        await eventually(lambda: len(ledgers.asked) > 1)
        assert ledgers.asked[1] == (5, 3, 2)


async def test_a_stored_ensemble_that_no_store_has_is_cut_and_the_next_ledger_begun(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata, _ = await memory_stores()
    ledgers = QuorumsNoted()
    config = ManagedLedgerConfig(ledger_entries_max=1)
    async with running_broker(stores=(metadata, ledgers), config=config) as broker:
        wire = await Wire(broker).connect()
        await wire.producer()
        (topic,) = broker.topics.all()
        rule(topic, persistence=Persistence(bookkeeper_ensemble=1001))
        await wire.published(1)
        await eventually(lambda: len(ledgers.asked) > 1)
    assert ledgers.asked[1] == (1000, 2, 2)
    assert [each.message for each in caplog.records].count("persistence_cut") == 1


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        ((1000, 1000, 1000), (1000, 1000, 1000)),
        ((5000, 4000, 3000), (1000, 1000, 1000)),
        ((5000, 4000, 3), (1000, 1000, 3)),
        ((1500, 2000, 2), None),
    ],
)
def test_stored_quorums_are_cut_to_what_a_ledger_may_have(
    stored: tuple[int, int, int], used: tuple[int, int, int] | None
) -> None:
    ensemble, write, ack = stored
    persistence = Persistence(
        bookkeeper_ensemble=ensemble, bookkeeper_write_quorum=write, bookkeeper_ack_quorum=ack
    )
    assert quorums_of(persistence) == used


def test_who_says_what_of_quorums_rates_and_intervals() -> None:
    of_namespace = NamespacePolicies(
        persistence=Persistence(),
        cluster_subscribe_rate={"here": ONE_IN_A_MINUTE},
        deduplication_snapshot_s=5,
    )
    plain = resolve(PolicyDefaults(), NamespacePolicies(), cluster="here")
    assert (plain.persistence, plain.deduplication_snapshot_s) == (None, 120)
    assert plain.subscribe_rate.per_consumer <= 0
    found = resolve(PolicyDefaults(), of_namespace, cluster="here")
    assert quorums_of(found.persistence) == (2, 2, 2)
    assert (found.subscribe_rate, found.deduplication_snapshot_s) == (ONE_IN_A_MINUTE, 5)
    own = TopicPolicies(
        persistence=Persistence(bookkeeper_ensemble=4),
        subscribe_rate=SubscribeRate(per_consumer=9),
        deduplication_snapshot_s=0,
    )
    found = resolve(PolicyDefaults(), of_namespace, own, cluster="here")
    assert quorums_of(found.persistence) == (4, 2, 2)
    assert (found.subscribe_rate.per_consumer, found.deduplication_snapshot_s) == (9, 0)
    impossible = Persistence(bookkeeper_ensemble=1)
    assert quorums_of(impossible) is None
