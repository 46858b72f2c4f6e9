"""Policies at work: what expires, what is too much, what nobody uses, and whose word counts."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch import limits
from anabranch.broker import Broker
from anabranch.broker.throttling import Rate
from anabranch.broker.topic import Topic
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import TopicName
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.managed_ledger.retention import Retention
from anabranch.policies import (
    BacklogQuota,
    DispatchRate,
    InactiveTopics,
    NamespacePolicies,
    PublishRate,
    RetentionRule,
    TopicPolicies,
    encode,
    paths,
)
from anabranch.policies.effective import PolicyDefaults, resolve
from anabranch.wire import SendReceipt, ServerError, flow, payload_of, requests

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker(config=ManagedLedgerConfig(ledger_entries_max=3)) as running:
        yield running


@pytest.fixture
def clock(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A clock of the upkeep that a test moves."""
    times = {"wall_ms": NOW_MS, "monotonic_s": 1000.0}

    class Moved:
        def wall_ms(self) -> int:
            return int(times["wall_ms"])

        def monotonic_s(self) -> float:
            return times["monotonic_s"]

    monkeypatch.setattr(broker.upkeep, "_clock", Moved())
    return times


async def a_topic(
    broker: Broker, times: list[int], *, subscribed: bool = True
) -> tuple[Wire, Topic]:
    wire = await Wire(broker).connect()
    await wire.producer()
    if subscribed:
        await wire.subscribe()
    await wire.published(len(times), times)
    (topic,) = broker.topics.all()
    return wire, topic


def rule(topic: Topic, **policies: Any) -> None:
    topic.apply(replace(topic.policies, **policies))


@pytest.mark.goal("core.B11", part="ttl", broken_by="nothing_expires")
async def test_messages_expire_when_their_time_is_over(
    broker: Broker, clock: dict[str, float]
) -> None:
    times = [NOW_MS - 10_000, NOW_MS - 6_000, NOW_MS - 4_000, NOW_MS]
    wire, topic = await a_topic(broker, times)
    await broker.upkeep.look_after_all()
    assert topic.subscriptions["s"].cursor.backlog() == 4
    rule(topic, message_ttl_s=5)
    await broker.upkeep.look_after_all()
    assert topic.subscriptions["s"].cursor.backlog() == 2
    assert await wire.read(2) == [2, 3]


@pytest.mark.goal("core.B11", part="retention", broken_by="retention_is_not_applied")
async def test_retention_keeps_what_everybody_acknowledged(broker: Broker) -> None:
    _, topic = await a_topic(broker, [1] * 7)
    rule(topic, retention=RetentionRule(time_minutes=60, size_mb=-1))
    assert topic.ledger.retention == Retention(time_ms=3_600_000, size_bytes=-1)
    topic.subscriptions["s"].cursor.clear()
    await topic.ledger.trim()
    assert topic.ledger.entry_count == 7
    rule(topic, retention=RetentionRule())
    await topic.ledger.trim()
    assert topic.ledger.entry_count < 4
    rule(topic, retention=RetentionRule(time_minutes=0, size_mb=5))
    assert topic.ledger.retention == Retention(), "what contradicts itself changes nothing"


HOLD, EXCEPTION, EVICTION = (
    "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
)  # fmt: skip


@pytest.mark.goal("core.B11", part="backlog quotas", broken_by="quotas_are_not_looked_at")
@pytest.mark.parametrize(
    ("action", "code"),
    [
        (HOLD, ServerError.ProducerBlockedQuotaExceededError),
        (EXCEPTION, ServerError.ProducerBlockedQuotaExceededException),
    ],
)
@pytest.mark.parametrize("kind", ["size", "age"])
async def test_too_large_a_backlog_stops_producers(
    broker: Broker, clock: dict[str, float], action: str, code: int, kind: str
) -> None:
    wire, topic = await a_topic(broker, [NOW_MS - 60_000] * 5)
    await broker.upkeep.look_after_all()
    assert topic.producers
    if kind == "size":
        rule(topic, storage_quota=BacklogQuota(limit_size=100, policy=action))
    else:
        rule(topic, age_quota=BacklogQuota(limit_time=30, policy=action))
    await broker.upkeep.look_after_all()
    assert (await wire.next()).type == pb.BaseCommand.CLOSE_PRODUCER
    refused = await wire.ask(requests.producer(TOPIC, 2, 2))
    assert refused.error.error == code
    topic.subscriptions["s"].cursor.clear()
    await broker.upkeep.look_after_all()
    assert (await wire.ask(requests.producer(TOPIC, 3, 3))).type == pb.BaseCommand.PRODUCER_SUCCESS


@pytest.mark.goal("core.B11", part="backlog quotas", broken_by="nothing_is_evicted")
async def test_an_eviction_passes_over_the_oldest(broker: Broker, clock: dict[str, float]) -> None:
    old = [NOW_MS - 60_000] * 3
    wire, topic = await a_topic(broker, [*old, *[NOW_MS] * 7])
    rule(topic, age_quota=BacklogQuota(limit_time=30, policy=EVICTION))
    await broker.upkeep.look_after_all()
    assert topic.subscriptions["s"].cursor.backlog() == 7
    size = topic.ledger.size_bytes
    rule(topic, storage_quota=BacklogQuota(limit_size=size // 2, policy=EVICTION))
    await broker.upkeep.look_after_all()
    left = topic.subscriptions["s"].cursor.backlog()
    assert 3 <= left <= 5
    assert topic.producers
    assert await wire.read(left) == list(range(10 - left, 10))


@pytest.mark.goal("core.B11", part="inactive topics", broken_by="topics_in_use_are_deleted")
async def test_a_topic_that_nobody_uses_is_deleted_in_the_end(
    broker: Broker, clock: dict[str, float]
) -> None:
    wire, topic = await a_topic(broker, [1], subscribed=False)
    rules = InactiveTopics(
        delete_mode="delete_when_no_subscriptions", inactive_s_max=60, delete_while_inactive=True
    )
    rule(topic, inactive_topics=rules)

    async def looked_after_later() -> bool:
        await broker.upkeep.look_after_all()
        clock["monotonic_s"] += 61
        await broker.upkeep.look_after_all()
        return await broker.topics.exists(TopicName.parse(TOPIC))

    assert await looked_after_later(), "it has a producer"
    await wire.ask(requests.close_producer(1, 5))
    rule(topic, retention=RetentionRule(time_minutes=5, size_mb=5))
    assert await looked_after_later(), "what is in it is retained"
    rule(topic, retention=RetentionRule(), inactive_topics=InactiveTopics())
    assert await looked_after_later(), "it may stay"
    await wire.subscribe()
    rule(topic, inactive_topics=rules)
    await wire.ask(requests.close_consumer(1, 6))
    assert await looked_after_later(), "it has a subscription"
    caught_up = replace(rules, delete_mode="delete_when_subscriptions_caught_up")
    rule(topic, inactive_topics=caught_up)
    assert not await looked_after_later()


@pytest.mark.goal("core.B11", part="numbers of clients", broken_by="there_is_room_for_everybody")
async def test_no_more_clients_than_may_be(broker: Broker) -> None:
    wire, topic = await a_topic(broker, [1])
    rule(topic, producers_max=1, subscriptions_max=1, consumers_max=2)
    refused = await wire.ask(requests.producer(TOPIC, 2, 2))
    assert refused.error.error == ServerError.ProducerBusy
    other = await wire.ask(requests.subscribe(TOPIC, "t", 0, 3, 3))  # type: ignore[arg-type]
    assert other.error.error == ServerError.NotAllowedError
    rule(topic, subscriptions_max=0, consumers_max=1)
    busy = await wire.ask(requests.subscribe(TOPIC, "t", 1, 3, 3))  # type: ignore[arg-type]
    assert busy.error.error == ServerError.ConsumerBusy
    rule(topic, consumers_max=0, consumers_per_subscription_max=1)
    for number in (4, 5):
        answer = await wire.ask(requests.subscribe(TOPIC, "u", 1, number, number))  # type: ignore[arg-type]
    assert answer.error.error == ServerError.ConsumerBusy
    rule(topic, subscription_types=("Shared",))
    wrong = await wire.ask(requests.subscribe(TOPIC, "v", 0, 6, 6))  # type: ignore[arg-type]
    assert wrong.error.error == ServerError.NotAllowedError


@pytest.mark.goal("core.B11", part="message size", broken_by="topics_take_any_size")
async def test_a_topic_may_take_smaller_messages_than_its_broker(broker: Broker) -> None:
    wire, topic = await a_topic(broker, [])
    rule(topic, message_bytes_max=1000)
    wire.publish(0, b"x" * 1000)
    assert type(await wire.next()) is SendReceipt
    wire.publish(1, b"x" * (1001 + limits.ENTRY_OVERHEAD_BYTES))
    refused = await wire.next()
    assert type(refused) is not SendReceipt
    assert refused.send_error.error == ServerError.NotAllowedError
    rule(topic, message_bytes_max=0)
    wire.publish(2, b"x" * (1001 + limits.ENTRY_OVERHEAD_BYTES))
    assert type(await wire.next()) is SendReceipt


class Still:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.mark.goal("core.B11", part="rate limits", broken_by="everybody_publishes_at_once")
@pytest.mark.parametrize("rate", [PublishRate(messages=5), PublishRate(bytes=150)])
async def test_who_publishes_too_fast_is_not_read_from_for_a_while(
    broker: Broker, rate: PublishRate
) -> None:
    wire, topic = await a_topic(broker, [])
    rule(topic, publish_rate=rate)
    assert not wire.reading_paused
    for number in range(10):
        wire.publish(number, b"%d" % number)
    assert wire.reading_paused
    for _ in range(10):
        assert type(await wire.next()) is SendReceipt, "what was read is stored"
    for _ in range(1000):
        await asyncio.sleep(0.01 if wire.reading_paused else 0)
    assert not wire.reading_paused


@pytest.mark.goal("core.B11", part="rate limits", broken_by="everything_is_sent_at_once")
@pytest.mark.parametrize("level", ["dispatch_rate", "subscription_dispatch_rate"])
async def test_a_topic_sends_no_faster_than_it_may(broker: Broker, level: str) -> None:
    wire, topic = await a_topic(broker, [1] * 9)
    rule(topic, **{level: DispatchRate(messages=4)})
    throttle = topic.subscriptions["s"].throttle
    assert throttle is not None
    clock = Still()
    for each in throttle._throttles:
        each._clock = clock  # type: ignore[assignment]
    assert await wire.read(4) == [0, 1, 2, 3]
    wire.session.data_received(flow(1, 100))
    await wire.quiet()
    for expected in ([4, 5, 6, 7], [8]):
        clock.now_s += 1.01
        topic.subscriptions["s"].wake()
        assert await wire.read(0) == []
        assert [int(bytes(payload_of((await wire.next()).entry))) for _ in expected] == expected


def test_a_rate_has_a_second_in_hand_and_no_more() -> None:
    rate = Rate(10)
    assert (rate.in_hand(100.0), rate.wait_s(100.0)) == (10, 0)
    rate.charge(15, 100.0)
    assert rate.wait_s(100.0) == pytest.approx(0.6)
    assert rate.wait_s(101.0) == 0
    assert rate.in_hand(1000.0) == 10


@pytest.mark.goal("core.B11", part="levels", broken_by="topics_have_no_policies_of_their_own")
def test_a_topic_is_heard_before_its_namespace_and_that_before_the_broker() -> None:
    defaults = PolicyDefaults(message_ttl_s=1, producers_max=1)
    namespace = NamespacePolicies(
        message_ttl_s=2,
        backlog_quotas={"destination_storage": BacklogQuota(limit_size=2)},
        schema_compatibility_strategy="BACKWARD",
    )
    own = TopicPolicies(message_ttl_s=3, message_bytes_max=10)
    by_default = resolve(defaults, NamespacePolicies(), cluster="c")
    by_namespace = resolve(defaults, namespace, cluster="c")
    by_topic = resolve(defaults, namespace, own, cluster="c")
    assert [each.message_ttl_s for each in (by_default, by_namespace, by_topic)] == [1, 2, 3]
    assert {each.producers_max for each in (by_default, by_namespace, by_topic)} == {1}
    sizes = [each.storage_quota.bytes_max for each in (by_default, by_namespace, by_topic)]
    assert sizes == [-1, 2, 2]
    strategies = [each.schema_compatibility_strategy for each in (by_default, by_topic)]
    assert strategies == ["FULL", "BACKWARD"]
    assert (by_namespace.message_bytes_max, by_topic.message_bytes_max) == (0, 10)


@pytest.mark.goal("core.B11", part="levels", broken_by="changed_policies_are_not_heard_of")
async def test_open_topics_hear_of_changes(broker: Broker) -> None:
    wire, topic = await a_topic(broker, [1])
    store = broker.namespaces._store
    for number, (path, document) in enumerate([
        (paths.namespace_path("public/default"), NamespacePolicies(message_ttl_s=1)),
        (paths.topic_policies_path(topic.name), TopicPolicies(message_ttl_s=2)),
        (paths.topic_policies_path(topic.name), TopicPolicies(message_ttl_s=3)),
    ], start=1):  # fmt: skip
        await store.put(path, encode(document))
        for _ in range(100):
            await wire.quiet()
            if topic.policies.message_ttl_s == number:
                break
        assert topic.policies.message_ttl_s == number
    await store.put(paths.topic_policies_path(topic.name), b"nonsense")
    await wire.quiet()
    assert topic.policies.message_ttl_s == 3, "what cannot be read changes nothing"
