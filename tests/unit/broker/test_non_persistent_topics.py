"""Topics that store nothing: passed on to who can take it, dropped for who cannot."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from wire_peer import Wire, running_broker

from anabranch.broker import Broker
from anabranch.broker.non_persistent import NonPersistentSubscription
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import TopicName
from anabranch.wire import (
    Message,
    MessageMetadata,
    SendReceipt,
    ServerError,
    build_entry,
    flow,
    payload_of,
    requests,
    send_frame,
)

TOPIC = "non-persistent://public/default/passing"
_, SHARED, FAILOVER, KEY_SHARED = range(4)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker() as running:
        yield running


async def opened(broker: Broker) -> Wire:
    wire = await Wire(broker).connect()
    answer = await wire.ask(requests.producer(TOPIC, 1, 1))
    assert answer.type == pb.BaseCommand.PRODUCER_SUCCESS, answer
    return wire


async def consuming(broker: Broker, permits: int, sub_type: int = 0, name: str = "s") -> Wire:
    wire = await Wire(broker).connect()
    wire.send(requests.subscribe(TOPIC, name, sub_type, 1, 2))  # type: ignore[arg-type]
    answers = [(await wire.next()).type for _ in range(2 if sub_type == FAILOVER else 1)]
    assert pb.BaseCommand.SUCCESS in answers
    if permits:
        wire.session.data_received(flow(1, permits))
    return wire


async def send(wire: Wire, number: int, key: str = "") -> None:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=number, publish_time=1, partition_key=key or None
    )
    entry = build_entry(metadata, b"%d" % number)
    wire.session.data_received(b"".join(send_frame(1, number, 1, entry)))
    assert type(await wire.next()) is SendReceipt


async def taken(wire: Wire) -> int:
    message: Any = await wire.next()
    assert type(message) is Message, message
    return int(bytes(payload_of(message.entry)))


def subscription(broker: Broker, name: str = "s") -> NonPersistentSubscription:
    topic = broker.topics.get(TopicName.parse(TOPIC))
    assert topic is not None
    found = topic.subscriptions[name]
    assert isinstance(found, NonPersistentSubscription)
    return found


@pytest.mark.goal("core.B9", broken_by="what_nobody_takes_is_kept")
async def test_what_nobody_can_take_is_dropped(broker: Broker) -> None:
    producer = await opened(broker)
    await send(producer, 0)
    consumer = await consuming(broker, permits=2)
    for number in range(1, 5):
        await send(producer, number)
    assert [await taken(consumer), await taken(consumer)] == [1, 2]
    assert subscription(broker).dropped == 2
    consumer.session.data_received(flow(1, 5))
    await consumer.quiet()
    await send(producer, 5)
    assert await taken(consumer) == 5


@pytest.mark.goal("core.B9", broken_by="only_one_subscription_gets_it")
async def test_every_subscription_gets_it(broker: Broker) -> None:
    producer = await opened(broker)
    consumers = [await consuming(broker, 10, name=name) for name in ("one", "two")]
    await send(producer, 7)
    assert [await taken(each) for each in consumers] == [7, 7]
    assert not broker.topics.get(TopicName.parse(TOPIC)).holds_messages  # type: ignore[union-attr]


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED], ids=["shared", "key-shared"])
@pytest.mark.goal("core.B9", broken_by="what_passes_is_held")
async def test_consumers_share_without_acknowledging(broker: Broker, sub_type: int) -> None:
    producer = await opened(broker)
    consumers = [await consuming(broker, 100, sub_type) for _ in range(2)]
    for number in range(40):
        await send(producer, number, key=str(number))
    got: list[list[int]] = [[], []]
    for mine, wire in zip(got, consumers, strict=True):
        while not wire._received.empty():
            mine.append(await taken(wire))
    assert sorted(got[0] + got[1]) == list(range(40))
    assert all(got)
    attached = subscription(broker).consumers
    assert not any(each.pending or each.unacked_messages for each in attached)


async def test_failover_and_exclusive_have_one_consumer(broker: Broker) -> None:
    producer = await opened(broker)
    consumer = await consuming(broker, 5, FAILOVER)
    await send(producer, 3)
    assert await taken(consumer) == 3
    other = await Wire(broker).connect()
    refused = await other.ask(requests.subscribe(TOPIC, "s", SHARED, 1, 2))  # type: ignore[arg-type]
    assert refused.error.error == ServerError.ConsumerBusy


async def test_there_is_no_past_to_seek_in_or_to_find(broker: Broker) -> None:
    producer = await opened(broker)
    consumer = await consuming(broker, 0)
    await send(producer, 0)
    refused = await consumer.ask(requests.seek_to_time(1, 9, 0))
    assert refused.error.error == ServerError.NotAllowedError
    last = await consumer.ask(requests.last_message_id(1, 10))
    assert last.getLastMessageIdResponse.last_message_id.entryId == 2**64 - 1
    left = await consumer.ask(requests.unsubscribe(1, 11))
    assert left.type == pb.BaseCommand.SUCCESS
    assert await broker.topic_lists.of_namespace("public/default", 1) == [TOPIC]
    assert await broker.topic_lists.of_namespace("public/default", 0) == []
