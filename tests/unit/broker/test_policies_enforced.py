"""Policies that bind clients: encryption, what may be unacknowledged, delays, how many topics.

The refusals are those that Apache Pulsar 5.0.0-M1 gave.
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import Broker
from anabranch.broker.topic import Topic
from anabranch.broker.topic_operations import remove_subscription
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import Position, TopicName
from anabranch.policies import (
    AutoTopicCreation,
    DelayedDelivery,
    NamespacePolicies,
    encode,
    paths,
)
from anabranch.wire import (
    AckedId,
    MessageMetadata,
    SendReceipt,
    ServerError,
    ack,
    build_entry,
    flow,
    payload_of,
    requests,
    send_frame,
)

SHARED = 1
NOW_MS = 1_700_000_000_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker() as running:
        yield running


def rule(topic: Topic, **policies: Any) -> None:
    topic.apply(replace(topic.policies, **policies))


def send(wire: Wire, number: int, metadata: MessageMetadata) -> None:
    parts = send_frame(number, metadata.sequence_id, 1, build_entry(metadata, b"x"))
    wire.session.data_received(b"".join(parts))


def message(sequence_id: int, **more: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1, **more)


@pytest.mark.goal("core.B11", part="encryption", broken_by="encryption_is_optional")
async def test_producers_and_messages_have_to_be_encrypted_where_that_is_required(
    broker: Broker,
) -> None:
    wire = await Wire(broker).connect()
    await wire.producer(1)
    await wire.producer(2, encrypted=True)
    (topic,) = broker.topics.all()
    rule(topic, encryption_required=True)
    closed = await wire.next()
    assert (closed.type, closed.close_producer.producer_id) == (pb.BaseCommand.CLOSE_PRODUCER, 1)
    refused = await wire.ask(requests.producer(TOPIC, 3, 3))
    assert refused.error.error == ServerError.MetadataError
    assert refused.error.message == f"Encryption is required in {TOPIC}"
    send(wire, 2, message(0))
    error = await wire.next()
    assert isinstance(error, pb.BaseCommand), error
    assert error.send_error.error == ServerError.MetadataError
    assert error.send_error.message == "Messages must be encrypted"
    sealed = message(1)
    sealed.encryption_keys.add(key="k", value=b"v")
    send(wire, 2, sealed)
    assert type(await wire.next()) is SendReceipt


@pytest.mark.goal("core.B11", part="unacknowledged", broken_by="nobody_has_to_acknowledge")
@pytest.mark.parametrize("whose", ["consumer", "subscription"])
async def test_nothing_is_sent_while_too_much_is_unacknowledged(broker: Broker, whose: str) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    await wire.subscribe(sub_type=SHARED)
    (topic,) = broker.topics.all()
    rule(topic, **{f"unacked_per_{whose}_max": 4})
    positions = await wire.published(10)
    assert await wire.read(4) == [0, 1, 2, 3]
    wire.session.data_received(flow(1, 6))
    await wire.quiet()
    subscription = topic.subscriptions["s"]
    blocked = {
        "consumer": subscription.consumers[0].is_blocked,
        "subscription": subscription.is_blocked,
    }
    assert blocked[whose]
    acknowledge(wire, positions[:2])
    assert await wire.read(0) == []
    assert [int(await payload(wire)) for _ in range(2)] == [4, 5]
    await wire.quiet()
    rule(topic, **{f"unacked_per_{whose}_max": 0})
    assert [int(await payload(wire)) for _ in range(4)] == [6, 7, 8, 9]


async def payload(wire: Wire) -> bytes:
    return bytes(payload_of((await wire.next()).entry))


def acknowledge(wire: Wire, positions: list[Position]) -> None:
    ids = [AckedId(*each, None, None) for each in positions]
    wire.session.data_received(ack(1, 0, ids))


@pytest.mark.goal("core.B11", part="delays", broken_by="delays_cannot_be_turned_off")
async def test_delays_are_for_where_they_are_allowed(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    await wire.subscribe(sub_type=SHARED)
    (topic,) = broker.topics.all()
    later_ms = broker.clock.wall_ms() + 3_600_000
    send(wire, 1, message(0, deliver_at_time=later_ms))
    assert type(await wire.next()) is SendReceipt
    wire.session.data_received(flow(1, 10))
    await wire.quiet()
    assert topic.subscriptions["s"].delayed == 1
    rule(topic, delayed_delivery=DelayedDelivery(active=False))
    send(wire, 1, message(1, deliver_at_time=later_ms))
    found = [type(await wire.next()).__name__ for _ in range(2)]
    assert sorted(found) == ["Message", "SendReceipt"]
    rule(topic, delayed_delivery=DelayedDelivery(active=True, delay_ms_max=1000))
    send(wire, 1, message(2, deliver_at_time=later_ms))
    error = await wire.next()
    assert isinstance(error, pb.BaseCommand), error
    assert error.send_error.error == ServerError.NotAllowedError
    assert error.send_error.message == "Exceeds max allowed delivery delay of 1000 milliseconds"


@pytest.mark.goal("core.B11", part="numbers of topics", broken_by="namespaces_are_bottomless")
async def test_a_namespace_has_room_for_so_many_topics(broker: Broker) -> None:
    store = broker._metadata
    wire = await Wire(broker).connect()
    await wire.producer()
    path = paths.namespace_path("public/default")
    await store.put(path, encode(NamespacePolicies(topics_per_namespace_max=2)))
    broker.policies._namespaces.invalidate(path)
    assert (await wire.ask(requests.producer(f"{TOPIC}-2", 2, 2))).HasField("producer_success")
    refused = await wire.ask(requests.producer(f"{TOPIC}-3", 3, 3))
    assert refused.error.error == ServerError.NotAllowedError
    assert refused.error.message == "Exceed maximum number of topics in namespace."
    inner = await wire.ask(requests.producer("persistent://public/default/__inner", 4, 4))
    assert inner.HasField("producer_success"), "what the system needs is not counted"
    more = AutoTopicCreation(allow=True, topic_type="partitioned", default_num_partitions=2)
    document = NamespacePolicies(topics_per_namespace_max=3, auto_topic_creation=more)
    await store.put(path, encode(document))
    broker.policies._namespaces.invalidate(path)
    name = TopicName.parse(f"{TOPIC}-p")
    with pytest.raises(Exception, match="Exceed maximum"):
        await broker.namespaces.creates_partitions(name)
    assert await broker.policies.partitioned(name) is None


async def test_a_subscription_that_was_used_between_two_looks_stays(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await Wire(broker).connect()
    await wire.subscribe()
    await wire.ask(requests.close_consumer(1, 50))
    (topic,) = broker.topics.all()
    await topic.create_subscription("renewed", initial="earliest", properties={})
    rule(topic, subscription_expiration_minutes=5)
    now = {"s": 1000.0}

    class Moved:
        def monotonic_s(self) -> float:
            return now["s"]

    monkeypatch.setattr(broker.upkeep._idle, "_clock", Moved())
    await broker.upkeep.look_after_all()
    now["s"] += 290
    await wire.subscribe()
    await wire.ask(requests.close_consumer(1, 51))
    await remove_subscription(topic, "renewed", force=False)
    await topic.create_subscription("renewed", initial="earliest", properties={})
    now["s"] += 20
    await broker.upkeep.look_after_all()
    assert set(topic.subscriptions) == {"s", "renewed"}, "neither was idle for so long"
    now["s"] += 301
    await broker.upkeep.look_after_all()
    assert not topic.subscriptions


@pytest.mark.goal("core.B11", part="idle subscriptions", broken_by="subscriptions_never_expire")
async def test_subscriptions_that_nobody_uses_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    await wire.subscribe()
    (topic,) = broker.topics.all()
    await topic.create_subscription("idle", initial="earliest", properties={})
    topic.read_from("reader", "earliest")
    now = {"s": 1000.0}
    clock = broker.upkeep._idle._clock

    class Moved:
        wall_ms = clock.wall_ms

        def monotonic_s(self) -> float:
            return now["s"]

    monkeypatch.setattr(broker.upkeep._idle, "_clock", Moved())
    await broker.upkeep.look_after_all()
    now["s"] += 3600
    await broker.upkeep.look_after_all()
    assert set(topic.subscriptions) == {"s", "idle", "reader"}, "no policy, no end"
    rule(topic, subscription_expiration_minutes=5)
    await broker.upkeep.look_after_all()
    now["s"] += 299
    await broker.upkeep.look_after_all()
    assert "idle" in topic.subscriptions
    now["s"] += 2
    await broker.upkeep.look_after_all()
    assert set(topic.subscriptions) == {"s", "reader"}
    assert "idle" not in topic.ledger.cursors
