"""The unmodified client from the package index, against a standalone server of ours."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from anabranch import limits
from anabranch.testing.planted import child_command
from anabranch.testing.servers import anabranch_standalone, pulsar_client
from anabranch.testing.servers.standalone import Standalone

RECEIVE_MS = 10_000
COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone() as running:
        yield running


@pytest.fixture
def client(server: Standalone) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=10) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('[', '-').replace(']', '')}-{time.monotonic_ns()}"


def publish(producer: Any, payloads: list[bytes]) -> None:
    failed: list[Any] = []
    for payload in payloads:
        producer.send_async(payload, lambda result, _: failed.append(result))
    producer.flush()
    assert set(failed) <= {pulsar.Result.Ok}


def drain(consumer: Any, count: int) -> list[bytes]:
    received = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        received.append(message.data())
        consumer.acknowledge(message)
    return received


@pytest.mark.goal("core.B2", part="batching and compression", broken_by="entries_go_out_backwards")
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_publish_and_consume(client: Any, topic: str, compression: str, batched: bool) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic,
        batching_enabled=batched,
        compression_type=COMPRESSIONS[compression],
        block_if_queue_full=True,
    )
    payloads = [b"message %d " % number * 20 for number in range(300)]
    publish(producer, payloads)
    assert drain(consumer, 300) == payloads


@pytest.mark.goal("core.B4", part="shared", broken_by="first_consumer_gets_all")
def test_a_shared_subscription_divides_the_messages(client: Any, topic: str) -> None:
    consumers = [
        client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10
        )
        for _ in range(2)
    ]
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, [b"%d" % number for number in range(100)])
    received: list[list[bytes]] = [[], []]
    deadline = time.monotonic() + 20
    while sum(map(len, received)) < 100 and time.monotonic() < deadline:
        for mine, consumer in zip(received, consumers, strict=True):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            mine.append(message.data())
            consumer.acknowledge(message)
    assert sorted(received[0] + received[1], key=int) == [b"%d" % n for n in range(100)]
    assert received[0]
    assert received[1]


@pytest.mark.goal("core.B6", part="negative acks", broken_by="redeliveries_are_not_counted")
def test_a_negative_ack_brings_the_message_again(client: Any, topic: str) -> None:
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
    )
    client.create_producer(topic).send(b"again and again")
    for count in range(3):
        message = consumer.receive(RECEIVE_MS)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(RECEIVE_MS))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)


@pytest.mark.goal("core.B6", part="individual and cumulative", broken_by="single_acks_are_dropped")
@pytest.mark.parametrize("cumulative", [True, False], ids=["cumulative", "individual"])
def test_acknowledged_messages_do_not_come_back(client: Any, topic: str, cumulative: bool) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, [b"%d" % number for number in range(10)])
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    if cumulative:
        consumer.acknowledge_cumulative(messages[4])
        left = messages[5:]
    else:
        for message in messages[::2]:
            consumer.acknowledge(message)
        left = messages[1::2]
    consumer.close()
    again = client.subscribe(topic, "s")
    assert drain(again, 5) == [message.data() for message in left]


def test_a_second_exclusive_consumer_is_refused_at_once(client: Any, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_unsubscribe_forgets_the_position(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"one")
    consumer.unsubscribe()
    again = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Latest)
    producer.send(b"two")
    assert again.receive(RECEIVE_MS).data() == b"two"


@pytest.mark.goal("core.B10", part="stored or refused", broken_by="any_schema_is_compatible")
def test_a_schema_is_kept_and_another_is_refused(client: Any, topic: str) -> None:
    class Order(pulsar.schema.Record):  # type: ignore[misc]
        number = pulsar.schema.Integer()

    class Invoice(pulsar.schema.Record):  # type: ignore[misc]
        text = pulsar.schema.String()

    producer = client.create_producer(topic, schema=pulsar.schema.JsonSchema(Order))
    producer.send(Order(number=7))
    consumer = client.subscribe(
        topic,
        "s",
        schema=pulsar.schema.JsonSchema(Order),
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert consumer.receive(RECEIVE_MS).value().number == 7
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.JsonSchema(Invoice))


def test_a_namespace_that_does_not_exist(client: Any) -> None:
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("persistent://nobody/nowhere/t")


@pytest.mark.goal("core.B21", part="kill -9", broken_by="crash_empties_the_open_ledger")
def test_after_kill_9_the_script_goes_on_where_it_was() -> None:
    """Published, half acknowledged, killed, started again: the same client objects go on."""
    with (
        anabranch_standalone(command=child_command("anabranch")) as server,
        pulsar_client(server.service_url) as client,
    ):
        consumer = client.subscribe("t", "s", unacked_messages_timeout_ms=None)
        producer = client.create_producer("t", batching_enabled=False, send_timeout_millis=60_000)
        publish(producer, [b"%d" % number for number in range(100)])
        for expected in range(50):
            message = consumer.receive(RECEIVE_MS)
            assert message.data() == b"%d" % expected
            consumer.acknowledge_cumulative(message)
        time.sleep(2.5)  # acknowledgements without a receipt are durable within a second
        server.kill()
        server.start()
        publish(producer, [b"%d" % number for number in range(100, 150)])
        received: list[int] = []
        while not received or received[-1] != 149:
            message = consumer.receive(60_000)
            received.append(int(message.data()))
            consumer.acknowledge(message)
        assert received[0] >= 50
        assert set(received) == set(range(50, 150))


@pytest.mark.goal("core.B2", part="chunking", broken_by="large_entries_are_left_out")
def test_a_message_in_chunks_of_the_largest_size(client: Any, topic: str) -> None:
    """The client fills every chunk but the last one up to the limit that it was told."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=False, chunking_enabled=True, send_timeout_millis=8000
    )
    payload = random.Random(1).randbytes(2 * limits.MESSAGE_BYTES_MAX + 4711)
    producer.send(payload)
    assert drain(consumer, 1) == [payload]
