"""A reader that was told where it is goes on there, though it lost its connection unread."""

import asyncio
import time
from typing import Any

import pytest
from served_client import TOPIC, served

from anabranch.client import EARLIEST, LATEST, Client, Consumer, Reader
from anabranch.client.connection import BrokerConnection
from anabranch.errors import OutcomeUnknown


async def publish(client: Client) -> int:
    """Ten messages named by their numbers; returns a time between the fifth and the sixth."""
    producer = await client.producer(TOPIC, batching=None)
    for number in range(5):
        await producer.send(b"%d" % number)
    await asyncio.sleep(0.005)
    between_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.005)
    for number in range(5, 10):
        await producer.send(b"%d" % number)
    await producer.close()
    return between_ms


async def lose_connection(source: Reader | Consumer) -> None:
    """Cut the connection and wait until another one has taken its place."""
    consumer = source.parts[0] if isinstance(source, Reader) else source
    before = consumer.attachments
    assert consumer.connection is not None
    consumer.connection.abort()
    while consumer.attachments == before:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("losses", [1, 2])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_reader_goes_on_at_the_time_it_sought(start: Any, losses: int) -> None:
    async with served() as (_, client):
        between_ms = await publish(client)
        reader = await client.reader(TOPIC, start=start)
        await reader.seek(between_ms)
        for _ in range(losses):
            await lose_connection(reader)
        assert await reader.has_message_available()
        numbers = [int((await reader.read_next()).value) for _ in range(5)]
        assert numbers == [5, 6, 7, 8, 9]
        assert not await reader.has_message_available()


async def test_the_last_of_several_seeks_counts() -> None:
    async with served() as (_, client):
        between_ms = await publish(client)
        reader = await client.reader(TOPIC)
        await reader.seek(between_ms)
        await reader.seek(EARLIEST)
        await lose_connection(reader)
        assert (await reader.read_next()).value == b"0"
        await reader.seek(0)
        await reader.seek(between_ms)
        await lose_connection(reader)
        assert (await reader.read_next()).value == b"5"


async def test_a_connection_lost_in_the_middle_of_a_seek_does_not_move_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker said yes, and was gone before the reader was attached again."""
    async with served() as (_, client):
        between_ms = await publish(client)
        reader = await client.reader(TOPIC, start="latest")
        request = BrokerConnection.request
        cut: list[BrokerConnection] = []

        async def request_and_cut(self: BrokerConnection, number: int, parts: Any) -> Any:
            answer = await request(self, number, parts)
            if not cut:
                cut.append(self)
                self.abort()
            return answer

        monkeypatch.setattr(BrokerConnection, "request", request_and_cut)
        await reader.seek(between_ms)
        assert cut
        assert (await reader.read_next()).value == b"5"


@pytest.mark.parametrize("by_seek", [False, True], ids=["opened", "sought"])
async def test_a_reader_of_what_comes_misses_nothing_that_came(by_seek: bool) -> None:
    async with served() as (_, client):
        await publish(client)
        reader = await client.reader(TOPIC, start="earliest" if by_seek else "latest")
        if by_seek:
            await reader.seek(LATEST)
        assert not await reader.has_message_available()
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"10")
        await lose_connection(reader)
        assert await reader.has_message_available()
        assert (await reader.read_next()).value == b"10"


async def test_a_reader_of_an_empty_topic_misses_nothing_that_came() -> None:
    async with served() as (_, client):
        reader = await client.reader(TOPIC, start="latest")
        producer = await client.producer(TOPIC, batching=None)
        await producer.send(b"0")
        await lose_connection(reader)
        assert (await reader.read_next()).value == b"0"


async def test_a_consumer_goes_on_at_the_time_it_sought() -> None:
    async with served() as (_, client):
        between_ms = await publish(client)
        consumer = await client.consumer(TOPIC, "s")
        await consumer.seek(between_ms)
        await lose_connection(consumer)
        assert (await consumer.receive()).value == b"5"


async def test_a_seek_without_an_answer_leaves_the_reader_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (_, client):
        between_ms = await publish(client)
        reader = await client.reader(TOPIC)

        async def lost(self: BrokerConnection, _number: int, _parts: Any) -> Any:
            monkeypatch.undo()
            self.abort()
            raise OutcomeUnknown("the connection was lost")

        monkeypatch.setattr(BrokerConnection, "request", lost)
        with pytest.raises(OutcomeUnknown):
            await reader.seek(between_ms)
        assert (await reader.read_next()).value == b"0"
