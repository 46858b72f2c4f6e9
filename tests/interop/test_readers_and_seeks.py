"""Readers and seeks with the unmodified client, on our server and on Pulsar: the same happens."""

import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from anabranch.testing.planted import child_command
from anabranch.testing.servers import anabranch_standalone, pulsar_client, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone

READ_MS = 10_000
QUIET_MS = 300
BATCH = 10


@pytest.fixture(scope="module", params=["ours", pytest.param("pulsar", marks=pytest.mark.peer)])
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    if request.param == "ours":
        with anabranch_standalone(command=child_command("anabranch")) as running:
            yield running
    else:
        with pulsar_standalone() as running:
            yield running


@pytest.fixture
def client(server: Standalone) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=30) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"{request.node.originalname}-{time.monotonic_ns()}"


def publish(client: Any, topic: str, first: int, count: int) -> list[Any]:
    """Publish numbers one by one; return their ids."""
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number) for number in range(first, first + count)]
    producer.close()
    return ids


def publish_batch(client: Any, topic: str, first: int = 0) -> list[Any]:
    """Publish numbers as one entry; return their ids."""
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=10_000,
    )
    ids: list[Any] = []
    for number in range(first, first + BATCH):
        producer.send_async(b"%d" % number, lambda _, message_id: ids.append(message_id))
    producer.flush()
    producer.close()
    assert len({(each.ledger_id(), each.entry_id()) for each in ids}) == 1, "not one batch"
    return sorted(ids, key=lambda each: each.batch_index())


def read(reader: Any, count: int) -> list[int]:
    return [int(reader.read_next(READ_MS).data()) for _ in range(count)]


def receive(consumer: Any, count: int) -> list[int]:
    return [int(consumer.receive(READ_MS).data()) for _ in range(count)]


def divide(consumers: list[Any], count: int) -> list[int]:
    """Take messages from whichever consumer has one, and acknowledge them."""
    received: list[int] = []
    deadline_s = time.monotonic() + READ_MS / 1000
    while len(received) < count and time.monotonic() < deadline_s:
        for consumer in consumers:
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            received.append(int(message.data()))
    return received


def rest(reader: Any) -> list[int]:
    """Read for as long as the client says that there is more."""
    numbers = []
    while reader.has_message_available():
        numbers += read(reader, 1)
    return numbers


@pytest.mark.goal("core.B5", part="readers", broken_by="readers_start_at_the_end")
def test_readers_see_everything_and_take_nothing_from_each_other(client: Any, topic: str) -> None:
    publish(client, topic, 0, 20)
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(2)]
    assert [read(reader, 20) for reader in readers] == [list(range(20))] * 2
    publish(client, topic, 20, 5)
    assert [read(reader, 5) for reader in readers] == [list(range(20, 25))] * 2


@pytest.mark.goal("core.B5", part="start positions", broken_by="start_is_skipped")
@pytest.mark.parametrize("inclusive", [True, False], ids=["inclusive", "exclusive"])
def test_a_reader_starts_at_a_message_or_after_it(client: Any, topic: str, inclusive: bool) -> None:
    ids = publish(client, topic, 0, 10)
    reader = client.create_reader(topic, ids[4], start_message_id_inclusive=inclusive)
    assert rest(reader) == list(range(4 if inclusive else 5, 10))


@pytest.mark.goal("core.B5", part="start positions", broken_by="start_is_skipped")
@pytest.mark.parametrize("inclusive", [True, False], ids=["inclusive", "exclusive"])
def test_a_reader_starts_inside_a_batch(client: Any, topic: str, inclusive: bool) -> None:
    publish(client, topic, 0, 3)
    ids = publish_batch(client, topic, 3)
    publish(client, topic, 13, 2)
    reader = client.create_reader(topic, ids[6], start_message_id_inclusive=inclusive)
    assert rest(reader) == list(range(9 if inclusive else 10, 15))


@pytest.mark.goal("core.B5", part="start positions", broken_by="readers_start_at_the_front")
def test_a_reader_of_the_latest_sees_only_what_comes(client: Any, topic: str) -> None:
    publish(client, topic, 0, 5)
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    last = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert rest(last) == [4]
    publish(client, topic, 5, 2)
    assert read(latest, 2) == [5, 6]
    assert read(last, 2) == [5, 6]


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_goes_too_far")
@pytest.mark.parametrize("inclusive", [True, False], ids=["inclusive", "exclusive"])
def test_a_consumer_seeks_by_id(client: Any, topic: str, inclusive: bool) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=inclusive)
    passed = 0 if inclusive else 1
    ids = publish(client, topic, 0, 20)
    for _ in range(15):
        consumer.acknowledge(consumer.receive(READ_MS))
    consumer.seek(ids[3])
    assert receive(consumer, 17 - passed) == list(range(3 + passed, 20))
    consumer.seek(ids[18])
    assert receive(consumer, 2 - passed) == [18, 19][passed:]
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 20) == list(range(20))
    consumer.seek(pulsar.MessageId.latest)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)
    publish(client, topic, 20, 1)
    assert receive(consumer, 1) == [20]


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_goes_too_far")
def test_a_reader_seeks_by_id(client: Any, topic: str) -> None:
    ids = publish(client, topic, 0, 10)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, start_message_id_inclusive=True)
    assert read(reader, 10) == list(range(10))
    reader.seek(ids[7])
    assert rest(reader) == [7, 8, 9]
    reader.seek(ids[2])
    assert rest(reader) == list(range(2, 10))


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_goes_too_far")
def test_a_seek_into_a_batch_and_back_from_its_end(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = publish_batch(client, topic)
    for _ in range(BATCH):
        consumer.acknowledge(consumer.receive(READ_MS))
    consumer.seek(ids[6])
    assert receive(consumer, 4) == [6, 7, 8, 9]


@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_moves_one_alone")
def test_a_seek_moves_everybody_on_a_shared_subscription(client: Any, topic: str) -> None:
    consumers = [
        client.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            receiver_queue_size=5,
            start_message_id_inclusive=True,
        )
        for _ in range(2)
    ]
    ids = publish(client, topic, 0, 40)
    assert sorted(divide(consumers, 40)) == list(range(40))
    consumers[0].seek(ids[30])
    again = divide(consumers, 10)
    assert sorted(again) == list(range(30, 40))
    publish(client, topic, 40, 10)
    assert sorted(divide(consumers, 10)) == list(range(40, 50)), "both are attached again"


@pytest.mark.goal("core.B5", part="seek by time", broken_by="time_is_passed_over")
@pytest.mark.parametrize("kind", ["consumer", "reader"])
def test_a_seek_to_a_time_goes_on_with_the_first_message_of_it(
    client: Any, topic: str, kind: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(8):
        producer.send(b"%d" % number)
        time.sleep(0.005)
    if kind == "reader":
        reads = client.create_reader(topic, pulsar.MessageId.earliest)
        take = reads.read_next
    else:
        reads = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        take = reads.receive
    times = [take(READ_MS).publish_timestamp() for _ in range(8)]
    assert len(set(times)) == 8
    reads.seek(times[5])
    assert [int(take(READ_MS).data()) for _ in range(3)] == [5, 6, 7]
    reads.seek(times[2] + 1)
    assert [int(take(READ_MS).data()) for _ in range(5)] == [3, 4, 5, 6, 7]
    reads.seek(times[0] - 3_600_000)
    assert [int(take(READ_MS).data()) for _ in range(8)] == list(range(8))
    reads.seek(times[7] + 3_600_000)
    with pytest.raises(pulsar.Timeout):
        take(QUIET_MS)
    producer.send(b"8")
    assert int(take(READ_MS).data()) == 8


@pytest.mark.goal("core.B5", part="has-message-available", broken_by="mark_delete_is_left_out")
def test_whether_a_message_is_available(client: Any, topic: str) -> None:
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    earliest = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not latest.has_message_available(), "the topic is empty"
    assert not earliest.has_message_available()
    publish(client, topic, 0, 3)
    assert latest.has_message_available()
    assert earliest.has_message_available()
    assert [rest(latest), rest(earliest)] == [[0, 1, 2], [0, 1, 2]]
    newcomer = client.create_reader(topic, pulsar.MessageId.latest)
    assert not newcomer.has_message_available(), "all there is came before it"
    last = client.create_reader(topic, pulsar.MessageId.latest, start_message_id_inclusive=True)
    assert last.has_message_available(), "the last one counts for it"
    publish(client, topic, 3, 1)
    assert rest(newcomer) == [3]


@pytest.mark.goal("core.B5", part="has-message-available", broken_by="a_batch_ends_at_its_entry")
def test_the_last_message_of_a_batch_has_its_index(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = publish(client, topic, 0, 1)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (ids[0].ledger_id(), ids[0].entry_id())
    assert last.batch_index() == -1
    ids = publish_batch(client, topic)
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (ids[-1].ledger_id(), ids[-1].entry_id())
    assert last.batch_index() == BATCH - 1
    reader = client.create_reader(topic, ids[BATCH - 1])
    assert not reader.has_message_available(), "it has read the whole batch"
