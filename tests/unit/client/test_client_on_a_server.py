"""The asyncio client on a whole server in the same process: its books, its limits, its closing."""

import asyncio

import pytest
from served_client import TOPIC, served

from anabranch.errors import AlreadyClosed, InputError


async def test_asking_for_redelivery_again_and_again_gives_no_extra_permits() -> None:
    async with served() as (server, client):
        consumer = await client.consumer(TOPIC, "s", queue_messages=10)
        producer = await client.producer(TOPIC, batching=None)
        for _ in range(20):
            consumer.redeliver()
        for _ in range(50):
            await producer.send(b"x")
        await asyncio.sleep(0.05)
        (topic,) = server._broker.topics.all()
        (attached,) = topic.subscriptions["s"].consumers
        assert attached.permits + len(consumer._queue) <= 10
        positions = [(await consumer.receive()).id for _ in range(50)]
        assert positions == sorted(set(positions))


async def test_a_message_the_broker_would_not_take_is_refused_here() -> None:
    async with served(max_message_bytes=2048) as (_, client):
        producer = await client.producer(TOPIC, batching=None)
        with pytest.raises(InputError, match="too large"):
            await producer.send(bytes(2048))
        assert (await producer.send(bytes(1900))).entry_id == 0
        assert producer.attachments == 1


async def test_the_largest_message_that_can_be_set_arrives() -> None:
    async with served(max_message_bytes=8 * 1024 * 1024) as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        producer = await client.producer(TOPIC, batching=None)
        payload = bytes(8 * 1024 * 1024 - 200)
        await producer.send(payload)
        assert (await consumer.receive()).value == payload


async def test_closing_while_opening_leaves_nobody_waiting_and_nothing_open() -> None:
    async with served() as (server, client):
        await (await client.producer(TOPIC)).close()  # connected, and the topic is open
        opening = asyncio.ensure_future(client.consumer(TOPIC, "s"))
        (topic,) = server._broker.topics.all()
        assert topic is not None
        for _ in range(1000):
            if any(subscription.consumers for subscription in topic.subscriptions.values()):
                break
            await asyncio.sleep(0)
        assert not opening.done()
        await list(client._open.values())[-1]()
        with pytest.raises(AlreadyClosed):
            await opening
        for _ in range(500):
            if not topic.subscriptions["s"].consumers:
                return
            await asyncio.sleep(0.01)
        pytest.fail("the consumer is still attached")
