"""Messages that are too large for one frame travel in chunks, and chunks get lost."""

import asyncio
import random
from typing import Any

import pytest
from served_client import TOPIC, backlog_of, served

from anabranch.client import MessageId
from anabranch.client.chunks import Assembly, cut
from anabranch.client.packing import Packer
from anabranch.errors import ConfigError, InputError
from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.ids import Position
from anabranch.wire import parse_entry

SHARED: Any = {"subscription_type": "shared", "initial_position": "earliest"}


@pytest.mark.goal("core.B23", part="chunks", broken_by="sdk_loses_a_chunk")
@pytest.mark.parametrize("compression", ["none", "zlib"])
async def test_large_messages_travel_in_chunks(compression: Any) -> None:
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **SHARED, negative_ack_delay_s=0.01)
        producer = await client.producer(
            TOPIC, batching=None, chunking=True, compression=compression
        )
        large = random.Random(1).randbytes(30_000)
        ids = [await producer.send(value) for value in (b"small", large, b"after")]
        messages = [await consumer.receive() for _ in range(3)]
        assert [message.value for message in messages] == [b"small", large, b"after"]
        assert [message.id for message in messages] == ids
        assert ids[1].first_position < ids[1].position
        assert ids[0].first_position == ids[0].position
        consumer.negative_acknowledge(messages[1])
        assert (await consumer.receive()).value == large
        for message in messages:
            await consumer.acknowledge(message, wait=True)
        assert await backlog_of(server, TOPIC) == 0, "all chunks are acknowledged"
        await consumer.seek(ids[1])
        assert (await consumer.receive()).value == large


async def test_chunks_that_found_no_room_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.client.consumer.CHUNKS_AGAIN_S", 0.1)
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **SHARED)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        with monkeypatch.context() as patched:
            patched.setattr("anabranch.client.chunks.CHUNKED_MESSAGES_MAX", 0)
            await producer.send(bytes(30_000))
            await asyncio.sleep(0.05)
            assert consumer.queued_messages == 0
        async with asyncio.timeout(30):
            message = await consumer.receive()
        assert message.value == bytes(30_000)
        await consumer.acknowledge(message, wait=True)
        assert await backlog_of(server, TOPIC) == 0


async def test_chunks_without_their_beginning_are_done_with_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.client.consumer.CHUNKS_AGAIN_S", 0.02)
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **SHARED)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        await producer.send(bytes(12_000))
        message = await consumer.receive()
        await consumer.acknowledge(MessageId(*message.id.first_position), wait=True)
        await consumer.close()
        consumer = await client.consumer(TOPIC, "s", **SHARED)
        async with asyncio.timeout(10):
            while await backlog_of(server, TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert consumer.queued_messages == 0, "nobody is given half a message"
        assert await backlog_of(server, TOPIC) == 0


IN_ORDER: Any = {"initial_position": "earliest"}


async def test_where_there_is_an_order_chunks_without_room_come_before_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.client.consumer.CHUNKS_AGAIN_S", 0.1)
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **IN_ORDER)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        with monkeypatch.context() as patched:
            patched.setattr("anabranch.client.chunks.CHUNKED_MESSAGES_MAX", 0)
            await producer.send(b"before")
            await producer.send(bytes(30_000))
            await producer.send(b"after")
            before = await consumer.receive()
            for _ in range(200):
                if consumer._chunks.lacks_room:  # type: ignore[attr-defined]
                    break
                await asyncio.sleep(0.01)
        await consumer.acknowledge(before, cumulative=True)
        async with asyncio.timeout(10):
            large, after = await consumer.receive(), await consumer.receive()
        assert (before.value, large.value, after.value) == (b"before", bytes(30_000), b"after")
        await consumer.acknowledge(after, cumulative=True, wait=True)
        assert await backlog_of(server, TOPIC) == 0


@pytest.mark.parametrize("count", [6, 12])
async def test_where_there_is_an_order_those_who_died_midway_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("anabranch.client.consumer.CHUNKS_AGAIN_S", 0.3)
    monkeypatch.setattr("anabranch.client.chunks.CHUNKED_MESSAGES_MAX", 5)
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **IN_ORDER)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        begin = asyncio.get_running_loop().time()
        whole = Packer.chunks
        monkeypatch.setattr(Packer, "chunks", lambda *given: whole(*given)[:1])
        for _ in range(count):
            await producer.send(bytes(6000))
        await producer.send(b"after")
        async with asyncio.timeout(30):
            after = await consumer.receive()
        assert after.value == b"after"
        assert 0.3 <= asyncio.get_running_loop().time() - begin < 10, "they were asked for once"
        await consumer.acknowledge(after, wait=True)
        assert await backlog_of(server, TOPIC) == 5, "these may still be gone on with"


@pytest.mark.parametrize("mode", [SHARED, IN_ORDER], ids=["shared", "in order"])
async def test_a_message_that_can_never_be_put_together_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    monkeypatch.setattr("anabranch.client.chunks.CHUNKED_BYTES_MAX", 20_000)
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **mode)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        for value in (bytes(20_001), bytes(20_000), b"after"):
            await producer.send(value)
        async with asyncio.timeout(30):
            messages = [await consumer.receive() for _ in range(2)]
        assert [len(message.value) for message in messages] == [20_000, 5]
        for message in messages:
            await consumer.acknowledge(message, wait=True)
        assert await backlog_of(server, TOPIC) == 0


def test_what_is_lost_in_chunks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.client.chunks.CHUNKED_BYTES_MAX", 1000)
    assembly = Assembly(in_order=True)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    for entry, data in enumerate(cut(metadata, bytes(1001), "a", 500)):
        assert assembly.add(*parse_entry(memoryview(data)), Position(1, entry)) is None
        done, again, losses = assembly.parted(Position(1, entry), 0)
        assert (done, again, len(losses)) == ([Position(1, entry)], [], entry == 0)
        if losses:
            assert "at 1:0 has at least 1001 bytes" in losses[0]
    metadata = MessageMetadata(uuid="b", chunk_id=0, num_chunks_from_msg=3)  # says no size
    assert assembly.add(metadata, bytes(600), Position(2, 0)) is None
    metadata.chunk_id = 1
    assert assembly.add(metadata, bytes(600), Position(2, 1)) is None
    done, again, (loss,) = assembly.parted(Position(2, 1), 0)
    assert (done, again) == ([Position(2, 0), Position(2, 1)], [])
    assert "at 2:0 has at least 1200 bytes" in loss


async def test_where_there_is_an_order_chunks_without_beginning_are_done_with() -> None:
    async with served(max_message_bytes=4096) as (server, client):
        consumer = await client.consumer(TOPIC, "s", **IN_ORDER)
        producer = await client.producer(TOPIC, batching=None, chunking=True)
        await producer.send(bytes(12_000))
        message = await consumer.receive()
        await consumer.acknowledge(MessageId(*message.id.first_position), wait=True)
        await consumer.close()
        consumer = await client.consumer(TOPIC, "s", **IN_ORDER)
        async with asyncio.timeout(10):
            while await backlog_of(server, TOPIC):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert consumer.queued_messages == 0, "nobody is given half a message"
        assert await backlog_of(server, TOPIC) == 0


def test_chunks_that_are_of_no_use_are_named() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    entries = [parse_entry(memoryview(entry)) for entry in cut(metadata, b"a" * 900, "a", 300)]
    assembly = Assembly()
    assert assembly.add(*entries[1], Position(1, 1)) is None
    assert assembly.take_spare() == ([], [Position(1, 1)], []), "its beginning is not here"
    for entry in (2, 2, 3):
        assert assembly.add(*entries[0], Position(1, entry)) is None
    assert assembly.take_spare() == ([Position(1, 2)], [], []), "sent, not only delivered, twice"
    assert assembly.add(*entries[1], Position(1, 4)) is None
    assert assembly.add(*entries[1], Position(1, 5)) is None
    assert assembly.take_spare() == ([Position(1, 5)], [], []), "a copy"
    assert assembly.add(*entries[3], Position(1, 6)) is None
    assert assembly.take_spare() == ([], [Position(1, 3), Position(1, 4), Position(1, 6)], [])


def test_what_was_acknowledged_with_others_is_forgotten() -> None:
    assembly = Assembly()
    for number in range(3):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        for index, entry in enumerate(cut(metadata, b"a" * 900, str(number), 300)):
            assembly.add(*parse_entry(memoryview(entry)), Position(number, index))
    last = Position(1, index)
    assert len(assembly.done_with(last, cumulative=True)) == index + 1
    assert [len(assembly.places(Position(each, index))) for each in range(3)] == [0, 0, index + 1]


async def test_chunks_and_batches_exclude_each_other() -> None:
    async with served() as (_, client):
        with pytest.raises(ConfigError, match="exclude each other"):
            await client.producer(TOPIC, chunking=True)


def test_chunks_of_several_messages_in_any_mixture() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    a = cut(metadata, b"a" * 900, "a", 200)
    b = cut(metadata, b"b" * 900, "b", 200)
    assembly = Assembly()
    place = iter(Position(1, entry) for entry in range(100))

    def add(entry: bytes) -> Any:
        return assembly.add(*parse_entry(memoryview(entry)), next(place))

    assert [add(entry) for entry in (*a[:2], *b[:2])] == [None] * 4
    assert add(b[1]) is None, "a copy"
    for entry in b[2:-1]:
        assert add(entry) is None
    assert add(b[-1])[0] == b"b" * 900
    assert add(a[-1]) is None, "some are missing: it is given up"
    assert add(a[2]) is None
    found = [add(entry) for entry in a]
    assert found[-1][0] == b"a" * 900
    assert len(assembly.places(found[-1][1])) == 0
    with pytest.raises(InputError, match="too large"):
        cut(metadata, bytes(100), "a", 20)
