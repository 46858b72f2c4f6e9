"""Our SDK and the client from the package index read each other, on our server and on Pulsar."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pulsar
import pytest

from anabranch.client import Batching, Client
from anabranch.testing.servers import anabranch_standalone, pulsar_client, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone
from anabranch.wire.compression import COMPRESSIONS

RECEIVE_MS = 10_000
STOCK = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
VALUES = [b"message %d " % number * (number % 40) for number in range(200)]
"""Of many lengths; the first is empty."""
KEYS = [f"key-{number % 7}" for number in range(200)]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(
    scope="module", params=["anabranch", pytest.param("pulsar", marks=pytest.mark.peer)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    start = anabranch_standalone if request.param == "anabranch" else pulsar_standalone
    with start() as running:
        yield running


@pytest.fixture
def stock(server: Standalone) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=20) as connected:
        yield connected


@pytest.fixture
async def sdk(server: Standalone) -> AsyncIterator[Client]:
    async with await Client.connect(server.service_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/sdk-{time.monotonic_ns()}"


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_what_the_sdk_sends_the_stock_client_reads(
    sdk: Client, stock: Any, topic: str, compression: Any, batched: bool
) -> None:
    consumer = stock.subscribe(topic, "s")
    producer = await sdk.producer(
        topic, batching=Batching(messages_max=30) if batched else None, compression=compression
    )
    answers = [
        await producer.send_soon(
            value,
            key=key,
            ordering_key=b"o-" + key.encode(),
            properties={"über": key, "empty": ""},
            event_time_ms=1_700_000_000_000 + number,
        )
        for number, (value, key) in enumerate(zip(VALUES, KEYS, strict=True))
    ]
    await producer.flush()
    for number, answer in enumerate(answers):
        message = consumer.receive(RECEIVE_MS)
        assert message.data() == VALUES[number]
        assert message.partition_key() == KEYS[number]
        assert message.ordering_key() == "o-" + KEYS[number]
        assert message.properties() == {"über": KEYS[number], "empty": ""}
        assert message.event_timestamp() == 1_700_000_000_000 + number
        assert message.producer_name() == producer.name
        found, told = message.message_id(), answer.result()
        assert (found.ledger_id(), found.entry_id(), found.batch_index()) == (
            told.ledger_id,
            told.entry_id,
            told.batch_index,
        )
        consumer.acknowledge(message)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_what_the_stock_client_sends_the_sdk_reads(
    sdk: Client, stock: Any, topic: str, compression: str, batched: bool
) -> None:
    consumer = await sdk.consumer(topic, "s")
    producer = stock.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_messages=30,
        compression_type=STOCK[compression],
        block_if_queue_full=True,
    )
    told: list[Any] = []
    for number, (value, key) in enumerate(zip(VALUES, KEYS, strict=True)):
        producer.send_async(
            value,
            lambda result, message_id: told.append((result, message_id)),
            partition_key=key,
            ordering_key="o-" + key,
            properties={"über": key},
            event_timestamp=1_700_000_000_000 + number,
        )
    producer.flush()
    received = [await consumer.receive() for _ in VALUES]
    assert [message.value for message in received] == VALUES
    assert [message.key for message in received] == KEYS
    assert [message.ordering_key for message in received] == [b"o-" + k.encode() for k in KEYS]
    assert [message.properties for message in received] == [{"über": key} for key in KEYS]
    assert [m.event_time_ms for m in received] == [1_700_000_000_000 + n for n in range(200)]
    assert {message.producer_name for message in received} == {producer.producer_name()}
    assert [message.sequence_id for message in received] == list(range(200))
    assert [result for result, _ in told] == [pulsar.Result.Ok] * 200
    assert [(m.id.ledger_id, m.id.entry_id, m.id.batch_index) for m in received] == [
        (where.ledger_id(), where.entry_id(), where.batch_index()) for _, where in told
    ]
    assert any(message.id.batch_size > 1 for message in received) == batched


async def test_acknowledged_parts_of_a_batch_do_not_come_to_the_stock_client_either(
    sdk: Client, stock: Any, topic: str
) -> None:
    consumer = await sdk.consumer(topic, "s", subscription_type="shared")
    producer = await sdk.producer(topic, batching=Batching(messages_max=10, delay_s=1.0))
    for number in range(10):
        answer = await producer.send_soon(b"%d" % number)
    assert (await answer).batch_size == 10
    messages = [await consumer.receive() for _ in range(10)]
    for message in messages[::2]:
        await consumer.acknowledge(message, wait=True)
    await consumer.close()
    other = stock.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    left = range(1, 10, 2)
    assert [other.receive(RECEIVE_MS).data() for _ in left] == [b"%d" % number for number in left]
    with pytest.raises(pulsar.Timeout):
        other.receive(300)


@pytest.mark.parametrize("cumulative", [True, False], ids=["cumulative", "individual"])
async def test_no_part_of_a_batch_is_lost_by_an_acknowledgement(
    sdk: Client, topic: str, cumulative: bool
) -> None:
    producer = await sdk.producer(topic, batching=Batching(messages_max=5, delay_s=1.0))
    consumer = await sdk.consumer(topic, "s")
    for number in range(10):
        answer = await producer.send_soon(b"%d" % number)
    await answer
    messages = [await consumer.receive() for _ in range(10)]
    if cumulative:
        await consumer.acknowledge(messages[6], cumulative=True, wait=True)
    else:
        for message in messages[:7]:
            await consumer.acknowledge(message, wait=True)
    await consumer.close()
    again = await sdk.consumer(topic, "s")
    values = []
    while not values or values[-1] != b"9":
        values.append((await again.receive()).value)
    # A server that keeps no parts of a batch shows the whole of the second one again.
    assert values in ([b"7", b"8", b"9"], [b"5", b"6", b"7", b"8", b"9"])


async def test_a_refused_message_comes_again(sdk: Client, topic: str) -> None:
    consumer = await sdk.consumer(topic, "s", subscription_type="shared")
    producer = await sdk.producer(topic, batching=None)
    for number in range(3):
        await producer.send(b"%d" % number)
    messages = [await consumer.receive() for _ in range(3)]
    consumer.negative_acknowledge(messages[1], delay_s=0.1)
    await consumer.acknowledge(messages[0])
    await consumer.acknowledge(messages[2])
    again = await consumer.receive()
    assert (again.value, again.id, again.redelivery_count) == (b"1", messages[1].id, 1)


async def test_null_values_and_keys_of_bytes_arrive_as_such(
    sdk: Client, stock: Any, topic: str
) -> None:
    consumer = await sdk.consumer(topic, "s")
    other = stock.subscribe(topic, "t")
    for batching in (None, Batching()):
        producer = await sdk.producer(topic, batching=batching)
        await producer.send(None, key=b"\x00\xff")
        message = await consumer.receive()
        assert (message.is_null, message.value, message.key_bytes) == (True, b"", b"\x00\xff")
        assert other.receive(RECEIVE_MS).data() == b""


async def test_unsubscribe_forgets_what_was_acknowledged(sdk: Client, topic: str) -> None:
    producer = await sdk.producer(topic)
    keeper = await sdk.consumer(topic, "keeper")
    consumer = await sdk.consumer(topic, "s")
    await producer.send(b"one")
    await consumer.acknowledge(await consumer.receive(), wait=True)
    await consumer.unsubscribe()
    again = await sdk.consumer(topic, "s", initial_position="earliest")
    assert (await again.receive()).value == b"one"
    assert (await keeper.receive()).value == b"one"
