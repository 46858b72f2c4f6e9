"""The SDK's producer on a whole server in this process: outcomes, order, bounds, cancellation."""

import asyncio
from typing import Any

import pytest
from served_client import TOPIC, served

from anabranch.client import Batching, BrokerRefused, Client, MessageId, Producer
from anabranch.client.packing import Outgoing, PackedBatch
from anabranch.client.producer import TopicProducer
from anabranch.errors import (
    AlreadyClosed,
    ConfigError,
    InputError,
    OutcomeUnknown,
    Terminated,
    Unreachable,
)
from anabranch.testing.servers import free_port
from anabranch.wire import ServerError, SingleMessageMetadata, batch_part


def silence(producer: Producer) -> Any:
    """Keep everything from the broker, as a connection that hangs does."""
    connection = producer.connection
    assert connection is not None
    connection.writable = False
    return connection


async def values_of(client: Client, count: int, subscription: str = "s") -> list[bytes]:
    consumer = await client.consumer(TOPIC, subscription, initial_position="earliest")
    return [(await consumer.receive()).value for _ in range(count)]


async def test_a_batch_leaves_at_its_first_bound() -> None:
    async with served() as (_, client):
        by_count = await client.producer(TOPIC, batching=Batching(messages_max=3, delay_s=60))
        ids = await asyncio.gather(*[by_count.send(b"x") for _ in range(3)])
        assert [(i.batch_index, i.batch_size) for i in ids] == [(0, 3), (1, 3), (2, 3)]
        assert len({i.position for i in ids}) == 1
        by_bytes = await client.producer(TOPIC, batching=Batching(bytes_max=1000, delay_s=60))
        first = await by_bytes.send_soon(bytes(600))
        await by_bytes.send_soon(bytes(600))
        assert (await first).batch_size == 1
        by_time = await client.producer(TOPIC, batching=Batching(delay_s=0.01))
        assert (await by_time.send(b"x")).batch_size == 1
        by_turn = await client.producer(TOPIC, batching=Batching(delay_s=0))
        answers = [await by_turn.send_soon(b"x") for _ in range(7)]
        assert {(await answer).batch_size for answer in answers} == {7}


def numbered(*numbers: int) -> list[Outgoing]:
    return [Outgoing(b"%d" % n, "key", None, None, None, n) for n in numbers]


async def test_messages_sent_together_are_one_entry_with_one_answer() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(messages_max=2, delay_s=60))
        assert isinstance(producer, TopicProducer)
        before = await producer.send_soon(b"before")
        together = await producer.send_together(numbered(3, 5, 9))
        assert producer.next_sequence_id == 10
        after = await producer.send_soon(b"after")
        await producer.flush()
        places = [(await answer).position.entry_id for answer in (before, together, after)]
        assert places == [0, 1, 2]
        assert (await together).batch_size == 3
        assert await values_of(client, 5) == [b"before", b"3", b"5", b"9", b"after"]


async def test_what_cannot_go_together_is_refused_and_nothing_is_sent() -> None:
    async with served(max_message_bytes=20_000) as (_, client):
        producer = await client.producer(TOPIC, pending_messages_max=4)
        assert isinstance(producer, TopicProducer)
        wrong = [
            [],
            numbered(1, 1),
            numbered(2, 1),
            [*numbered(1), Outgoing(b"", None, None, None, -5, 2)],
            [*numbered(1), Outgoing(b"", None, None, None, None, 2, deliver_at_ms=5)],
            [Outgoing(bytes(9_000), None, None, None, None, n) for n in range(3)],
        ]
        for messages in wrong:
            with pytest.raises(InputError):
                await producer.send_together(messages)
            assert producer.next_sequence_id == 0
        # All the room is there again.
        async with asyncio.timeout(5):
            await (await producer.send_together(numbered(0, 1, 2, 3)))
        assert await values_of(client, 4) == [b"0", b"1", b"2", b"3"]


async def test_what_the_caller_has_packed_is_one_entry_between_the_others() -> None:
    async with served(max_message_bytes=20_000) as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(messages_max=9, delay_s=60))
        assert isinstance(producer, TopicProducer)
        before = await producer.send_soon(b"before")
        parts = [batch_part(SingleMessageMetadata(payload_size=1), b"%d" % n) for n in (3, 5)]
        packed = PackedBatch(b"".join(parts), 2, 3, 5, 100, "key")
        together = await producer.send_packed(packed)
        for wrong in (
            packed,
            packed._replace(messages=0, first_sequence_id=9),
            packed._replace(size=20_000, first_sequence_id=9),
        ):
            with pytest.raises(InputError):
                await producer.send_packed(wrong)
        assert producer.next_sequence_id == 6
        await producer.flush()
        assert (await before).position.entry_id == 0
        assert (await together).position.entry_id == 1
        assert (await together).batch_size == 2
        assert await values_of(client, 3) == [b"before", b"3", b"5"]


async def test_messages_sent_together_wait_for_room_and_fail_together() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, pending_messages_max=5, send_timeout_s=0.2)
        assert isinstance(producer, TopicProducer)
        silence(producer)
        first = await producer.send_together(numbered(0, 1, 2))
        second = asyncio.ensure_future(producer.send_together(numbered(3, 4, 5)))
        await asyncio.sleep(0.05)
        assert not second.done(), "six messages have no room where five may wait"
        with pytest.raises(Unreachable):
            await first
        with pytest.raises(Unreachable):
            await (await second)


async def test_a_message_beyond_the_bytes_of_a_batch_goes_alone_and_in_its_place() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(bytes_max=500, delay_s=60))
        values = [b"a", b"b" * 2000, b"c"]
        answers = [await producer.send_soon(value) for value in values]
        await producer.flush()
        assert [answer.result().batch_size for answer in answers] == [1, 0, 1]
        assert await values_of(client, 3) == values


async def test_compression_decides_what_is_too_large() -> None:
    async with served(max_message_bytes=4096) as (_, client):
        plain = await client.producer(TOPIC, batching=None)
        with pytest.raises(InputError, match="too large"):
            await plain.send(bytes(100_000))
        packed = await client.producer(TOPIC, compression="zstd")
        await packed.send(bytes(100_000))
        with pytest.raises(InputError, match="too large"):
            await packed.send(client.runtime.entropy.token_hex(10_000).encode())
        await packed.send(b"after")
        assert await values_of(client, 2) == [bytes(100_000), b"after"]


async def test_sequence_ids_rise_and_may_be_chosen() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, name="p")
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        await producer.send(b"a")
        await producer.send(b"b", sequence_id=10)
        with pytest.raises(InputError, match="10 is not above the last one, 10"):
            await producer.send(b"c", sequence_id=10)
        await producer.send(b"d")
        received = [await consumer.receive() for _ in range(3)]
        assert [(m.value, m.sequence_id) for m in received] == [(b"a", 0), (b"b", 10), (b"d", 11)]


@pytest.mark.goal("core.B23", part="producer", broken_by="sdk_calls_unknown_unsent")
async def test_no_answer_in_time_is_an_unknown_outcome_and_no_try_a_known_one() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None, send_timeout_s=0.2)
        assert producer.connection is not None
        real, producer.connection.producers[1] = producer.connection.producers[1], Deaf()  # type: ignore[assignment]
        with pytest.raises(OutcomeUnknown, match=r"no receipt within 0\.2 s"):
            await producer.send(b"stored, but nobody says so")
        producer.connection.producers[1] = real
        connection = silence(producer)
        with pytest.raises(Unreachable, match=r"not sent within 0\.2 s"):
            await producer.send(b"never sent")
        connection.resume_writing()
        await producer.send(b"after")
        assert await values_of(client, 2) == [b"stored, but nobody says so", b"after"]


class Deaf:
    """Hears nothing."""

    def on_receipt(self, receipt: object) -> None: ...

    def on_writable(self) -> None: ...

    def on_connection_lost(self) -> None: ...


@pytest.mark.goal("core.B23", part="producer", broken_by="sdk_sends_again_behind_the_rest")
async def test_a_lost_connection_costs_nothing_and_changes_no_order() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(messages_max=4))
        answers = []
        for number in range(60):
            answers.append(await producer.send_soon(b"%d" % number))
            if number % 20 == 10:  # some on their way, some gathered, the rest to come
                assert producer.connection is not None
                producer.connection.abort()
            elif number % 20 == 19:
                await producer.flush()
        assert producer.attachments == 4
        assert all(answer.exception() is None for answer in answers)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        seen: list[int] = []
        while not seen or seen[-1] != 59:
            seen.append(int((await consumer.receive()).value))
        first_seen = list(dict.fromkeys(seen))
        assert first_seen == list(range(60)), "what came twice came again in order"


@pytest.mark.goal("core.B23", part="producer", broken_by="sdk_waits_for_no_room")
async def test_too_many_messages_wait_and_memory_is_bounded() -> None:
    async with served() as (_, client):
        producer = await client.producer(
            TOPIC, batching=Batching(messages_max=4), pending_messages_max=10, name="p"
        )
        connection = silence(producer)
        sending = [asyncio.ensure_future(producer.send(b"%d" % n)) for n in range(100)]
        await asyncio.sleep(0.05)
        assert producer._room.messages == 10
        assert sum(op.count for op in producer._in_flight._unsent) + len(producer._batch) == 10
        connection.resume_writing()
        ids = await asyncio.gather(*sending)
        assert ids == sorted(ids)
        assert (producer._room.messages, producer._room.bytes) == (0, 0)
        assert await values_of(client, 100) == [b"%d" % number for number in range(100)]


async def test_bytes_are_bounded_too() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None, pending_bytes_max=10_000)
        connection = silence(producer)
        sending = [asyncio.ensure_future(producer.send(bytes(3000))) for _ in range(10)]
        await asyncio.sleep(0.05)
        assert producer._room.messages == 3
        connection.resume_writing()
        await asyncio.gather(*sending)


async def test_a_send_cancelled_without_room_sends_nothing_and_one_with_room_is_sent() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, pending_messages_max=2)
        connection = silence(producer)
        sending = [asyncio.ensure_future(producer.send(b"%d" % n)) for n in range(6)]
        await asyncio.sleep(0.01)
        for number in (1, 3, 4):
            sending[number].cancel()
        await asyncio.sleep(0.01)
        connection.resume_writing()
        answered = await asyncio.gather(*sending, return_exceptions=True)
        assert [isinstance(a, MessageId) for a in answered] == [
            True,
            False,
            True,
            False,
            False,
            True,
        ]
        # 1 had room: nobody heard the answer, but it is in its place.
        assert await values_of(client, 4) == [b"0", b"1", b"2", b"5"]


async def test_flush_waits_for_what_was_sent_before_it_and_no_longer() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(delay_s=60))
        await producer.flush()
        answers = [await producer.send_soon(b"x") for _ in range(5)]
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        late = await producer.send_soon(b"late")
        await flushing
        assert all(answer.done() for answer in answers)
        assert not late.done()


async def test_closing_sends_what_is_gathered() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(delay_s=60))
        answer = await producer.send_soon(b"last words")
        await producer.close()
        assert answer.result().entry_id == 0
        with pytest.raises(AlreadyClosed):
            await producer.send(b"too late")
        assert producer not in client._open


async def test_closing_in_vain_leaves_unknown_outcomes_and_known_ones() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None, send_timeout_s=None)
        assert producer.connection is not None
        producer.connection.producers[1] = Deaf()  # type: ignore[assignment]
        sent = await producer.send_soon(b"sent")
        await asyncio.sleep(0.01)
        silence(producer)
        unsent = await producer.send_soon(b"unsent")
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.wait([closing])
        assert isinstance(sent.exception(), OutcomeUnknown)
        assert isinstance(unsent.exception(), AlreadyClosed)


async def test_what_the_broker_refuses_fails_alone_and_what_it_cannot_say_is_sent_again() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None)
        answers = [await producer.send_soon(b"%d" % number) for number in range(3)]
        producer.on_send_error(1, ServerError.NotAllowedError, "no")
        producer.on_send_error(2, ServerError.PersistenceError, "the disk failed")
        assert (await answers[0]).entry_id >= 0
        with pytest.raises(BrokerRefused, match="no"):
            await answers[1]
        assert (await answers[2]).entry_id >= 0
        assert producer.attachments == 2


async def test_an_ended_topic_ends_the_producer() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(delay_s=60))
        gathered = await producer.send_soon(b"x")
        producer.on_send_error(0, ServerError.TopicTerminatedError, "over")
        with pytest.raises(Terminated):
            await gathered
        with pytest.raises(AlreadyClosed, match="was ended: over"):
            await producer.send(b"x")


async def test_nobody_at_the_address_is_said_at_once() -> None:
    url = f"pulsar://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match="nothing answers at 127"):
        await Client.connect(url)
    async with Client(url, open_timeout_s=0.2) as client:
        with pytest.raises(
            Unreachable, match=r"could not be opened within 0\.2 s: nothing answers"
        ):
            await client.producer(TOPIC)
        assert not client._open


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"compression": "gzip"}, "no compression 'gzip'"),
        ({"pending_messages_max": 0}, "no room"),
        ({"send_timeout_s": 0}, "send_timeout_s"),
    ],
)
async def test_wrong_settings_are_named(arguments: dict[str, Any], words: str) -> None:
    async with served() as (_, client):
        with pytest.raises(ConfigError, match=words):
            await client.producer(TOPIC, **arguments)
    with pytest.raises(ConfigError, match="positive"):
        Batching(messages_max=0)
    for url in ("http://x", "pulsar://", "pulsar://x:y"):
        with pytest.raises(ConfigError):
            Client(url)


async def test_opening_can_be_cancelled() -> None:
    async with served() as (server, client):
        await client.producer(TOPIC)
        opening = asyncio.ensure_future(client.producer(TOPIC, name="p"))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        for _ in range(500):
            try:
                again = await client.producer(TOPIC, name="p")
            except BrokerRefused:
                await asyncio.sleep(0.01)  # the broker is still hearing of the cancelled one
            else:
                break
        await again.send(b"x")
        (topic,) = server._broker.topics.all()
        assert len(topic.producers) == 2
