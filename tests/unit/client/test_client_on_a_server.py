"""The asyncio client on a whole server in the same process: its books, its limits, its closing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.client import BrokerRefused, Client
from anabranch.errors import AlreadyClosed, InputError, ProtocolError
from anabranch.ids import Position
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.settings import Settings
from anabranch.wire import SendReceipt, ServerError

TOPIC = "persistent://public/default/t"


@asynccontextmanager
async def served(max_message_bytes: int = 1024 * 1024) -> AsyncIterator[tuple[Standalone, Client]]:
    """A server in memory and a client of it; a failed task of either fails the test."""
    failures: list[BaseException] = []
    settings = Settings(
        port=0,
        web_port=0,
        metadata_url="memory:",
        ledgers_url="memory:",
        max_message_bytes=max_message_bytes,
    )
    server = Standalone(real_runtime(), settings)
    await server.start()
    client = Client(
        server.service_url, real_runtime(), on_failure=lambda _, error: failures.append(error)
    )
    try:
        async with asyncio.timeout(20):
            yield server, client
            await client.close()
    finally:
        await server.close()
    assert not failures, failures


async def test_asking_for_redelivery_again_and_again_gives_no_extra_permits() -> None:
    async with served() as (server, client):
        consumer = await client.subscribe(TOPIC, "s", queue_messages=10)
        producer = await client.producer(TOPIC)
        for _ in range(20):
            consumer.redeliver()
        for _ in range(50):
            await producer.send(b"x")
        await asyncio.sleep(0.05)
        (topic,) = server._broker.topics.all()
        (attached,) = topic.subscriptions["s"].consumers
        assert attached.permits + len(consumer._queue) <= 10
        positions = [(await consumer.receive()).position for _ in range(50)]
        assert positions == sorted(set(positions))


async def test_a_message_the_broker_would_not_take_is_refused_here() -> None:
    async with served(max_message_bytes=2048) as (_, client):
        producer = await client.producer(TOPIC)
        with pytest.raises(InputError, match="too large"):
            await producer.send(bytes(2048))
        assert (await producer.send(bytes(1900))).entry_id == 0
        assert producer.attachments == 1


async def test_the_largest_message_that_can_be_set_arrives() -> None:
    async with served(max_message_bytes=8 * 1024 * 1024) as (_, client):
        consumer = await client.subscribe(TOPIC, "s")
        producer = await client.producer(TOPIC)
        payload = bytes(8 * 1024 * 1024 - 200)
        await producer.send(payload)
        assert (await consumer.receive()).payload == payload


async def test_a_refusal_that_overtakes_receipts_fails_its_own_message_only() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC)
        connection, producer.connection = producer.connection, None  # nothing goes out
        answers = [await producer.send_soon(b"x") for _ in range(3)]
        producer.connection = connection
        producer.on_send_error(1, ServerError.ChecksumError, "damaged")
        producer.on_receipt(SendReceipt(1, 0, 7, 0, None))
        producer.on_receipt(SendReceipt(1, 2, 7, 1, None))
        assert [answers[0].result(), answers[2].result()] == [Position(7, 0), Position(7, 1)]
        assert isinstance(answers[1].exception(), BrokerRefused)


async def test_a_receipt_out_of_order_is_the_brokers_mistake() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC)
        connection, producer.connection = producer.connection, None
        await producer.send_soon(b"x")
        producer.connection = connection
        with pytest.raises(ProtocolError, match="before"):
            producer.on_receipt(SendReceipt(1, 5, 7, 0, None))


async def test_closing_while_opening_leaves_nobody_waiting_and_nothing_open() -> None:
    async with served() as (server, client):
        await (await client.producer(TOPIC)).close()  # connected, and the topic is open
        opening = asyncio.ensure_future(client.subscribe(TOPIC, "s"))
        (topic,) = server._broker.topics.all()
        assert topic is not None
        for _ in range(1000):
            if any(subscription.consumers for subscription in topic.subscriptions.values()):
                break
            await asyncio.sleep(0)
        assert not opening.done()
        await client._open[-1].close()
        with pytest.raises(AlreadyClosed):
            await opening
        for _ in range(500):
            if not topic.subscriptions["s"].consumers:
                return
            await asyncio.sleep(0.01)
        pytest.fail("the consumer is still attached")
