"""The SDK's consumer on a whole server in this process: batches, bounds, having things again."""

import asyncio
from typing import Any

import pytest
from served_client import TOPIC, served

from anabranch.client import Batching, BrokerRefused, Client, Consumer, Message, Schema
from anabranch.errors import AlreadyClosed, ConfigError, InputError, OutcomeUnknown, ProtocolError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.wire import build_entry, send_frame

FIVES = Batching(messages_max=5, delay_s=60)


async def publish(client: Client, count: int, batching: Batching | None = None) -> None:
    producer = await client.producer(TOPIC, batching=batching)
    answers = [await producer.send_soon(b"%d" % number) for number in range(count)]
    await producer.close()
    assert all(answer.exception() is None for answer in answers)


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.value) for message in messages]


async def receive(consumer: Consumer, count: int) -> list[Message]:
    return [await consumer.receive() for _ in range(count)]


async def is_quiet(consumer: Consumer) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await consumer.receive()
    except TimeoutError:
        return True
    return False


@pytest.mark.goal("core.B23", part="consumer", broken_by="sdk_acknowledges_a_batch_by_its_first")
async def test_an_entry_stays_until_all_its_messages_are_acknowledged() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await publish(client, 10, FIVES)
        messages = await receive(consumer, 10)
        for message in (messages[0], messages[2], *messages[5:]):
            await consumer.acknowledge(message, wait=True)
        consumer.redeliver()
        assert numbers(await receive(consumer, 3)) == [1, 3, 4]
        for message in (messages[1], messages[3], messages[4]):
            await consumer.acknowledge(message, wait=True)
        consumer.redeliver()
        assert await is_quiet(consumer)


async def test_acknowledgements_nobody_waits_for_arrive_together() -> None:
    async with served() as (server, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await publish(client, 10, FIVES)
        for message in await receive(consumer, 10):
            await consumer.acknowledge(message)
        (topic,) = server._broker.topics.all()
        subscription = topic.subscriptions["s"]
        for _ in range(200):
            if subscription.cursor.mark_delete.entry_id == 1:
                break
            await asyncio.sleep(0.01)
        assert subscription.cursor.mark_delete.entry_id == 1


async def test_closing_sends_the_acknowledgements_that_are_gathered() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        await publish(client, 4)
        messages = await receive(consumer, 4)
        await consumer.acknowledge(messages[2], cumulative=True)
        await consumer.close()
        again = await client.consumer(TOPIC, "s")
        assert numbers(await receive(again, 1)) == [3]


async def test_a_lost_connection_keeps_gathered_acknowledgements_and_brings_the_rest_again() -> (
    None
):
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await publish(client, 6)
        messages = await receive(consumer, 4)
        await consumer.acknowledge(messages[1])
        assert consumer.connection is not None
        consumer.connection.abort()
        assert consumer.queued_messages == 0, "what the broker gives to others is not handed out"
        with pytest.raises(OutcomeUnknown, match="not connected"):
            await consumer.acknowledge(messages[0], wait=True)
        assert numbers(await receive(consumer, 5)) == [0, 2, 3, 4, 5]
        assert consumer.attachments == 2


async def test_receive_many_takes_what_is_there() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        await publish(client, 20, FIVES)
        taken: list[Message] = []
        while len(taken) < 20:
            more = await consumer.receive_many(7)
            assert 1 <= len(more) <= 7
            taken += more
        assert numbers(taken) == list(range(20))
        with pytest.raises(InputError, match="messages_max"):
            await consumer.receive_many(0)


async def test_a_cancelled_receive_takes_no_message() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        producer = await client.producer(TOPIC, batching=None)
        got: list[int] = []
        for number in range(50):
            waiting = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            sending = asyncio.ensure_future(producer.send(b"%d" % number))
            for _ in range(number % 12):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await sending
            if not waiting.cancelled():
                got.append(int(waiting.result().value))
        while len(got) < 50:
            got.append(int((await consumer.receive()).value))
        assert got == list(range(50))


async def test_the_queue_is_bounded_by_bytes() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", queue_bytes=100_000)
        producer = await client.producer(TOPIC, batching=None)
        for _ in range(40):
            await producer.send(bytes(20_000))
        await asyncio.sleep(0.1)
        assert 1 <= consumer.queued_messages <= 6
        assert [len(m.value) for m in await receive(consumer, 40)] == [20_000] * 40


async def test_a_refused_message_comes_again_after_its_time() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await publish(client, 3)
        messages = await receive(consumer, 3)
        consumer.negative_acknowledge(messages[0], delay_s=1.0)
        consumer.negative_acknowledge(messages[1], delay_s=0.05)
        consumer.negative_acknowledge(messages[2], delay_s=0.05)
        await consumer.acknowledge(messages[2])
        again = await receive(consumer, 2)
        assert [(int(m.value), m.redelivery_count) for m in again] == [(1, 1), (0, 1)]
        for message in again:
            await consumer.acknowledge(message)
        assert await is_quiet(consumer)


async def test_a_refused_message_of_an_ordered_subscription_brings_all_again_in_order() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", negative_ack_delay_s=0.01)
        await publish(client, 10, FIVES)
        messages = await receive(consumer, 7)
        await consumer.acknowledge(messages[1], cumulative=True)
        consumer.negative_acknowledge(messages[6])
        for _ in range(10):  # in steps: a machine that stands still does not skip them
            await asyncio.sleep(0.02)
        assert numbers(await receive(consumer, 8)) == list(range(2, 10))


async def test_order_does_not_exist_on_a_shared_subscription() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await publish(client, 1)
        with pytest.raises(InputError, match="no order"):
            await consumer.acknowledge(await consumer.receive(), cumulative=True)


async def test_iterating_ends_when_the_consumer_is_closed() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        await publish(client, 3)
        seen = []
        async for message in consumer:
            seen.append(int(message.value))
            if len(seen) == 3:
                asyncio.get_running_loop().call_later(0.02, asyncio.ensure_future, consumer.close())
        assert seen == [0, 1, 2]
        with pytest.raises(AlreadyClosed):
            await consumer.receive()


async def test_a_damaged_entry_is_handed_out_and_can_be_acknowledged() -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        producer = await client.producer(TOPIC, batching=None)
        metadata = MessageMetadata(
            producer_name=producer.name, sequence_id=0, publish_time=1, num_messages_in_batch=3
        )
        assert producer.connection is not None
        entry = build_entry(metadata, b"no batch at all")
        producer.connection.write(send_frame(producer._id, 0, 3, entry))
        message = await consumer.receive()
        with pytest.raises(ProtocolError, match="batch of 3"):
            _ = message.value
        await consumer.acknowledge(message, wait=True)
        consumer.redeliver()
        await producer.send(b"5", sequence_id=5)
        assert numbers(await receive(consumer, 1)) == [5]


async def test_schemas_are_passed_on() -> None:
    async with served() as (_, client):
        json = Schema("Json", b'{"type":"record","name":"R","fields":[]}', name="R")
        producer = await client.producer(TOPIC, schema=json)
        consumer = await client.consumer(TOPIC, "s", schema=json, initial_position="earliest")
        await producer.send(b"{}")
        assert (await consumer.receive()).schema_version == bytes(8)
        with pytest.raises(BrokerRefused, match="IncompatibleSchema"):
            await client.producer(TOPIC, schema=Schema("Json", b'{"type":"string"}', name="R"))
        with pytest.raises(ConfigError, match="no schema kind 'XML'"):
            await client.producer(TOPIC, schema=Schema("XML"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"subscription_type": "both"}, "no subscription type 'both'"),
        ({"initial_position": "middle"}, "latest or earliest"),
        ({"queue_messages": 0}, "without room"),
    ],
)
async def test_wrong_settings_are_named(arguments: dict[str, Any], words: str) -> None:
    async with served() as (_, client):
        with pytest.raises(ConfigError, match=words):
            await client.consumer(TOPIC, "s", **arguments)
        with pytest.raises(InputError, match="subscription name"):
            await client.consumer(TOPIC, "")
        with pytest.raises(InputError, match="start is earliest, latest or a message id"):
            await client.reader(TOPIC, start="middle")  # type: ignore[arg-type]
