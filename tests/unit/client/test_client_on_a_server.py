"""The asyncio client on a whole server in the same process: its books, its limits, its closing."""

import asyncio
from typing import Any

import pytest
from served_client import TOPIC, served

from anabranch.client import BrokerRefused, Client
from anabranch.errors import AlreadyClosed, InputError
from anabranch.runtime.real import real_runtime
from anabranch.wire import NO_REQUEST_ID, ServerError, encode, replies


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


class Unfriendly:
    """A broker that wants nobody."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = replies.error(NO_REQUEST_ID, ServerError.AuthenticationError, "who are you?")
        self._transport.write(encode(answer))
        self._transport.close()

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


async def test_a_broker_that_refuses_the_handshake_is_heard() -> None:
    listener = await real_runtime().network.listen("127.0.0.1", 0, Unfriendly)
    url = f"pulsar://127.0.0.1:{listener.port}"
    try:
        async with asyncio.timeout(10):
            with pytest.raises(BrokerRefused, match="who are you"):
                await Client.connect(url)
            async with Client(url) as client:
                with pytest.raises(BrokerRefused, match="who are you"):
                    await client.producer(TOPIC)
    finally:
        await listener.close()
