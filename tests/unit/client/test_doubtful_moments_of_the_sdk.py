"""What a client must not get wrong: bad values, lost answers, cancelled opens, words taken back."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from served_client import TOPIC, served

from anabranch.client import EARLIEST, Batching, BrokerRefused, packing
from anabranch.client.connection import BrokerConnection
from anabranch.client.consumer import TopicConsumer
from anabranch.client.producer import TopicProducer
from anabranch.client.settings import ProducerSettings
from anabranch.errors import AlreadyClosed, ConfigError, InputError, OutcomeUnknown
from anabranch.generated.pulsar_api_pb2 import CommandProducerSuccess, ServerError
from anabranch.ids import TopicName


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_time_ms": time.time()},
        {"event_time_ms": -1},
        {"key": "\ud800"},
        {"key": 7},
        {"ordering_key": "text"},
        {"properties": {"a": 1}},
        {"properties": {"\ud800": "b"}},
    ],
)
async def test_a_bad_message_is_refused_and_its_batch_goes_on(wrong: dict[str, Any]) -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(delay_s=0.01))
        first = await producer.send_soon(b"before")
        with pytest.raises(InputError):
            await producer.send_soon(b"wrong", **wrong)
        assert (await producer.send(b"after")).position == (await first).position


async def test_unreadable_batches_do_not_use_up_the_permits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (_, client):
        batching = Batching(messages_max=10, delay_s=1)
        producer = await client.producer(TOPIC, batching=batching, compression="zlib")
        for _ in range(100):
            await producer.send_soon(b"x")
        await producer.flush()

        def unknown(_number: int, _data: Any, _size: int) -> bytes:
            raise ConfigError("this codec is not installed")

        monkeypatch.setattr(packing, "decompress", unknown)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest", queue_messages=20)
        for _ in range(10):
            message = await consumer.receive()
            with pytest.raises(ConfigError):
                _ = message.value
            await consumer.acknowledge(message)


async def test_a_refused_message_comes_again_though_its_neighbour_is_done() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=Batching(messages_max=2, delay_s=1))
        consumer = await client.consumer(TOPIC, "s", subscription_type="shared")
        await asyncio.gather(*[await producer.send_soon(value) for value in (b"0", b"1")])
        first, second = await consumer.receive(), await consumer.receive()
        consumer.negative_acknowledge(first, delay_s=0.05)
        await consumer.acknowledge(second)
        assert (await consumer.receive()).value == b"0"


async def test_a_refusal_taken_back_moves_nothing() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s")
        for number in range(3):
            await producer.send(b"%d" % number)
        first, _ = await consumer.receive(), await consumer.receive()
        consumer.negative_acknowledge(first, delay_s=0.05)
        await consumer.acknowledge(first)
        await asyncio.sleep(0.1)
        assert (await consumer.receive()).value == b"2"


async def test_a_cumulative_acknowledgement_does_not_go_back() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s")
        for number in range(6):
            await producer.send(b"%d" % number)
        seen = [await consumer.receive() for _ in range(6)]
        await consumer.acknowledge(seen[4], cumulative=True)
        await consumer.acknowledge(seen[1], cumulative=True)
        await consumer.close()
        again = await client.consumer(TOPIC, "s")
        assert (await again.receive()).value == b"5"


async def test_a_copy_that_is_refused_says_nothing_of_the_first() -> None:
    async with served() as (_, client):
        producer = await client.producer(TOPIC, batching=None)
        producer.on_receipt = lambda *_: None  # type: ignore[method-assign]
        answer = await producer.send_soon(b"stored")
        await asyncio.sleep(0.05)
        assert producer.connection is not None
        producer.connection.abort()
        while producer.connection is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        producer.on_send_error(0, ServerError.NotAllowedError, "not any more")
        with pytest.raises(OutcomeUnknown, match="sent 2 times"):
            await answer
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        assert (await consumer.receive()).value == b"stored"


async def test_an_open_cancelled_as_it_succeeds_leaves_nothing_attached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancel: list[Callable[[], object]] = []
    attach = TopicConsumer.attach

    async def attach_and_cancel(self: TopicConsumer, connection: Any) -> None:
        await attach(self, connection)
        asyncio.get_running_loop().call_soon(cancel[0])

    async with served() as (_, client):
        monkeypatch.setattr(TopicConsumer, "attach", attach_and_cancel)
        opening = asyncio.ensure_future(client.consumer(TOPIC, "s"))
        cancel.append(opening.cancel)
        with pytest.raises(asyncio.CancelledError):
            await opening
        monkeypatch.setattr(TopicConsumer, "attach", attach)
        await client.consumer(TOPIC, "s")


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_a_refused_seek_loses_nothing(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s", subscription_type=kind)
        producer = await client.producer(TOPIC, batching=None)
        for number in range(3):
            await producer.send(b"%d" % number)
        while consumer.queued_messages < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

        async def refuse(*_: Any) -> None:
            raise BrokerRefused(ServerError.NotAllowedError, "not here")

        with monkeypatch.context() as patched:
            patched.setattr(BrokerConnection, "request", refuse)
            with pytest.raises(BrokerRefused):
                await consumer.seek(EARLIEST)
        assert [(await consumer.receive()).value for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_seek_whose_answer_is_late_begins_where_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker may close the consumer, and serve it again, before it answers."""
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        producer = await client.producer(TOPIC, batching=Batching(messages_max=5, delay_s=5.0))
        sent = [await producer.send_soon(b"%d" % number) for number in range(5)]
        ids = [await each for each in sent]
        assert [(await consumer.receive()).value for _ in range(5)] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        ask = BrokerConnection.request
        asked: list[int] = []

        async def late(self: BrokerConnection, number: int, sent: Any) -> Any:
            asked.append(number)
            answer = await ask(self, number, sent)
            while number == asked[0] and not consumer.queued_messages:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return answer

        monkeypatch.setattr(BrokerConnection, "request", late)
        await consumer.seek(ids[3])
        assert [(await consumer.receive()).value for _ in range(2)] == [b"3", b"4"]


async def test_a_cancelled_unsubscribe_closes() -> None:
    """The broker may have forgotten the subscription: nothing would ever come."""
    async with served() as (_, client):
        consumer = await client.consumer(TOPIC, "s")
        leaving = asyncio.ensure_future(consumer.unsubscribe())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(AlreadyClosed):
            await consumer.receive()
        await client.consumer(TOPIC, "s")


class LoadingBroker:
    """A connection whose first answer is lost; the next says what the broker has stored."""

    closed = False
    writable = True

    def __init__(self) -> None:
        self.producers: dict[int, TopicProducer] = {}
        self.requests = 0

    def new_request_id(self) -> int:
        return self.requests

    def write(self, _parts: list[bytes]) -> None:
        """What may be open is closed; nobody waits for an answer."""

    async def request(self, _number: int, _parts: list[bytes], *, may_take_long: bool) -> Any:
        assert not may_take_long
        self.requests += 1
        if self.requests == 1:
            raise OutcomeUnknown("the connection was lost")
        return CommandProducerSuccess(
            request_id=1, producer_name="p", last_sequence_id=41, schema_version=b""
        )


async def test_sequence_ids_go_on_although_the_first_attempt_failed() -> None:
    client, broker = SimpleNamespace(new_id=lambda: 1), LoadingBroker()
    producer = TopicProducer(
        cast("Any", client), TopicName.parse(TOPIC), ProducerSettings(name="p")
    )
    with pytest.raises(OutcomeUnknown):
        await producer.attach(cast("Any", broker))
    await producer.attach(cast("Any", broker))
    assert producer.next_sequence_id == 42
