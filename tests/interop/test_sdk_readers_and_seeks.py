"""The SDK's readers and seeks, on our server and on Pulsar."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from anabranch.client import EARLIEST, LATEST, Batching, Client, Consumer, MessageId, Reader
from anabranch.testing.servers import anabranch_standalone, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 30
BATCHES = Batching(messages_max=5, delay_s=5.0)


@pytest.fixture(
    scope="module", params=["anabranch", pytest.param("pulsar", marks=pytest.mark.peer)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    start = anabranch_standalone if request.param == "anabranch" else pulsar_standalone
    with start() as running:
        yield running


@pytest.fixture
async def sdk(server: Standalone) -> AsyncIterator[Client]:
    async with await Client.connect(server.service_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/sdk-reader-{time.monotonic_ns()}"


async def publish(sdk: Client, topic: str, batching: Batching | None) -> list[MessageId]:
    """Ten messages, named by their numbers."""
    producer = await sdk.producer(topic, batching=batching)
    answers = [await producer.send_soon(b"%d" % number) for number in range(10)]
    await producer.flush()
    await producer.close()
    return [answer.result() for answer in answers]


async def read(source: Reader | Consumer, count: int) -> list[int]:
    numbers = []
    for _ in range(count):
        message = await source.read_next() if isinstance(source, Reader) else await source.receive()
        numbers.append(int(message.value))
    return numbers


batched = pytest.mark.parametrize("batching", [None, BATCHES], ids=["unbatched", "batched"])


@batched
async def test_a_reader_reads_from_the_first_message_to_the_last(
    sdk: Client, topic: str, batching: Batching | None
) -> None:
    await sdk.consumer(topic, "keeper")
    ids = await publish(sdk, topic, batching)
    reader = await sdk.reader(topic)
    found = []
    while await reader.has_message_available():
        found.append((await reader.read_next()).id)
    assert found == ids


@batched
@pytest.mark.parametrize("inclusive", [True, False], ids=["with it", "behind it"])
@pytest.mark.parametrize("number", [3, 4, 9])
async def test_a_reader_begins_at_a_message(
    sdk: Client, topic: str, batching: Batching | None, inclusive: bool, number: int
) -> None:
    await sdk.consumer(topic, "keeper")
    ids = await publish(sdk, topic, batching)
    reader = await sdk.reader(topic, start=ids[number], inclusive=inclusive)
    first = number if inclusive else number + 1
    assert await read(reader, 10 - first) == list(range(first, 10))
    assert not await reader.has_message_available()


async def test_a_reader_of_what_is_to_come(sdk: Client, topic: str) -> None:
    await publish(sdk, topic, None)
    reader = await sdk.reader(topic, start="latest")
    assert not await reader.has_message_available()
    producer = await sdk.producer(topic)
    await producer.send(b"10")
    assert await reader.has_message_available()
    assert await read(reader, 1) == [10]
    assert not await reader.has_message_available()


async def test_a_reader_of_an_empty_topic_has_nothing(sdk: Client, topic: str) -> None:
    reader = await sdk.reader(topic)
    assert not await reader.has_message_available()


async def test_a_reader_is_iterated_until_it_is_closed(sdk: Client, topic: str) -> None:
    await sdk.consumer(topic, "keeper")
    await publish(sdk, topic, None)
    reader = await sdk.reader(topic)
    numbers = []
    async for message in reader:
        numbers.append(int(message.value))
        if len(numbers) == 10:
            await reader.close()
    assert numbers == list(range(10))


@pytest.mark.goal("core.B23", part="reader", broken_by="sdk_reader_starts_over")
@batched
async def test_a_reader_goes_on_behind_what_it_read_after_a_lost_connection(
    sdk: Client, topic: str, batching: Batching | None
) -> None:
    await sdk.consumer(topic, "keeper")
    await publish(sdk, topic, batching)
    reader = await sdk.reader(topic)
    assert await read(reader, 7) == list(range(7))
    for connection in sdk.brokers.connections.values():
        connection.abort()
    assert await read(reader, 3) == [7, 8, 9]


@batched
async def test_a_reader_seeks(sdk: Client, topic: str, batching: Batching | None) -> None:
    await sdk.consumer(topic, "keeper")
    ids = await publish(sdk, topic, batching)
    reader = await sdk.reader(topic)
    assert await read(reader, 8) == list(range(8))
    await reader.seek(ids[2])
    assert await read(reader, 2) == [2, 3]
    await reader.seek(ids[6], inclusive=False)
    assert await read(reader, 3) == [7, 8, 9]
    await reader.seek(EARLIEST)
    assert await read(reader, 10) == list(range(10))
    await reader.seek(LATEST)
    assert not await reader.has_message_available()


@batched
async def test_a_subscription_seeks_to_a_message(
    sdk: Client, topic: str, batching: Batching | None
) -> None:
    consumer = await sdk.consumer(topic, "s")
    ids = await publish(sdk, topic, batching)
    assert await read(consumer, 10) == list(range(10))
    await consumer.seek(ids[3])
    assert await read(consumer, 7) == list(range(3, 10))
    await consumer.seek(EARLIEST)
    assert await read(consumer, 10) == list(range(10))


async def test_a_subscription_seeks_to_a_time(sdk: Client, topic: str) -> None:
    consumer = await sdk.consumer(topic, "s")
    producer = await sdk.producer(topic, batching=None)
    for number in range(5):
        await producer.send(b"%d" % number)
    await asyncio.sleep(0.05)
    received = [await consumer.receive() for _ in range(5)]
    later_ms = received[-1].publish_time_ms + 1
    for number in range(5, 10):
        await producer.send(b"%d" % number)
    assert await read(consumer, 5) == list(range(5, 10))
    await consumer.seek(later_ms)
    assert await read(consumer, 5) == list(range(5, 10))
