"""Subscription types, redelivery and delays, as the client from the package index sees them."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pulsar
import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_client
from anabranch.testing.servers.standalone import Standalone

RECEIVE_MS = 10_000
ACK_TIMEOUT_MS = 10_000
"""The shortest that the client takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with anabranch_standalone() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Standalone) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=10) as connected:
        yield connected


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('[', '-').replace(']', '')}-{time.monotonic_ns()}"


@pytest.fixture(scope="module", autouse=True)
def neglected(client: Any) -> tuple[Any, float]:
    """A consumer that got a message at the beginning and did not acknowledge it; and when."""
    consumer = client.subscribe(
        "neglected",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        unacked_messages_timeout_ms=ACK_TIMEOUT_MS,
    )
    client.create_producer("neglected").send(b"first")
    assert consumer.receive(RECEIVE_MS).data() == b"first"
    return consumer, time.monotonic()


def send_all(client: Any, topic: str, keyed: list[tuple[str, bytes]], **options: Any) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    for key, payload in keyed:
        producer.send_async(payload, None, partition_key=key)
    producer.flush()
    producer.close()


def taken(consumer: Any, at_least: int = 0, wait_ms: int = 500) -> list[Any]:
    """All that a consumer gets until nothing comes for a while; so many are waited for longer."""
    messages = []
    try:
        while True:
            messages.append(consumer.receive(RECEIVE_MS if len(messages) < at_least else wait_ms))
    except pulsar.Timeout:
        return messages


# --- failover --------------------------------------------------------------------------------


@pytest.mark.goal("core.B4", part="failover", broken_by="standby_consumers_share")
def test_failover_goes_on_in_order_with_what_is_not_acknowledged(client: Any, topic: str) -> None:
    consumers = {
        name: client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name=name
        )
        for name in ("a", "b")
    }
    time.sleep(2.5)  # the second one may take over after a second
    send_all(client, topic, [("", b"%d" % number) for number in range(20)])
    got: dict[str, list[Any]] = {name: [] for name in consumers}
    deadline = time.monotonic() + RECEIVE_MS / 1000
    while sum(map(len, got.values())) < 20 and time.monotonic() < deadline:
        for name, consumer in consumers.items():
            got[name] += taken(consumer, wait_ms=200)
    having = [name for name, messages in got.items() if messages]
    assert len(having) == 1, "one gets all, the other nothing"
    (active,) = having
    (standby,) = {"a", "b"} - {active}
    assert [int(message.data()) for message in got[active]] == list(range(20))
    consumers[active].acknowledge_cumulative(got[active][4])
    consumers[active].acknowledge(got[active][9])
    consumers[active].close()
    rest = [int(message.data()) for message in taken(consumers[standby], at_least=14)]
    assert rest == [number for number in range(5, 20) if number != 9]
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)


# --- key_shared ------------------------------------------------------------------------------


def shared_by_key(client: Any, topic: str, name: str, policy: Any = None) -> Any:
    return client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.KeyShared,
        consumer_name=name,
        key_shared_policy=policy,
        receiver_queue_size=20,
    )


KEYED = [(f"key-{number % 10}", b"%d" % number) for number in range(200)]


@pytest.mark.goal("core.B4", part="key_shared", broken_by="keys_go_to_the_first_consumer")
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched by key"])
def test_a_key_belongs_to_one_consumer(client: Any, topic: str, batched: bool) -> None:
    consumers = [shared_by_key(client, topic, f"c{number}") for number in range(2)]
    send_all(
        client,
        topic,
        KEYED,
        batching_enabled=batched,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=1,
    )
    owners: dict[str, set[int]] = {}
    values: dict[str, list[int]] = {}
    deadline = time.monotonic() + 20
    while sum(map(len, values.values())) < len(KEYED) and time.monotonic() < deadline:
        for number, consumer in enumerate(consumers):
            for message in taken(consumer, wait_ms=50):
                owners.setdefault(message.partition_key(), set()).add(number)
                values.setdefault(message.partition_key(), []).append(int(message.data()))
                consumer.acknowledge(message)
    assert all(values[f"key-{key}"] == list(range(key, 200, 10)) for key in range(10))
    assert all(len(having) == 1 for having in owners.values())
    assert set().union(*owners.values()) == {0, 1}


@pytest.mark.goal("core.B4", part="key_shared order", broken_by="hashes_move_undrained")
def test_the_order_of_a_key_outlives_consumers(client: Any, topic: str) -> None:
    """One holds unacknowledged messages while another joins; then the first one leaves."""
    first = shared_by_key(client, topic, "first")
    send_all(client, topic, KEYED[:20])
    held = taken(first, at_least=20)
    assert [int(message.data()) for message in held] == list(range(20))
    second = shared_by_key(client, topic, "second")
    send_all(client, topic, KEYED[20:60])
    early = taken(second)
    assert early == [], "every key has messages that the first one holds"
    for message in held[:10]:
        first.acknowledge(message)
    first.close()
    values: dict[str, list[int]] = {}
    for message in taken(second, at_least=50):
        values.setdefault(message.partition_key(), []).append(int(message.data()))
        second.acknowledge(message)
    assert values == {f"key-{key}": list(range(10 + key, 60, 10)) for key in range(10)}


@pytest.mark.goal("core.B4", part="key_shared sticky", broken_by="ranges_may_overlap")
def test_sticky_ranges(client: Any, topic: str) -> None:
    def sticky(*ranges: tuple[int, int]) -> Any:
        return pulsar.ConsumerKeySharedPolicy(
            key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges)
        )

    low = shared_by_key(client, topic, "low", sticky((0, 32_767)))
    with pytest.raises(pulsar.ConsumerAssignError):
        shared_by_key(client, topic, "clash", sticky((30_000, 65_535)))
    with pytest.raises(pulsar.ConsumerBusy):
        shared_by_key(client, topic, "divided")
    send_all(client, topic, KEYED[:20])
    of_low = taken(low, at_least=1)
    high = shared_by_key(client, topic, "high", sticky((32_768, 65_535)))
    mine = {message.partition_key() for message in of_low}
    others = {message.partition_key() for message in taken(high, at_least=20 - len(of_low))}
    assert mine
    assert others
    assert mine | others == {f"key-{key}" for key in range(10)}
    assert not mine & others


# --- acknowledging and again -----------------------------------------------------------------


@pytest.mark.goal("core.B6", part="dead letters", broken_by="redeliveries_are_not_counted")
def test_what_fails_too_often_becomes_a_dead_letter(client: Any, topic: str) -> None:
    dead = client.subscribe(f"{topic}-dead", "d")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "kept"),
    )
    send_all(client, topic, [("", b"good"), ("", b"bad")], batching_enabled=False)
    seen = []
    for _ in range(4):
        message = consumer.receive(RECEIVE_MS)
        seen.append((message.data(), message.redelivery_count()))
        if message.data() == b"good":
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    assert sorted(seen) == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    letter = dead.receive(RECEIVE_MS)
    assert letter.data() == b"bad"
    kept = client.subscribe(f"{topic}-dead", "kept")
    assert kept.receive(RECEIVE_MS).data() == b"bad", "the initial subscription has it too"
    assert taken(consumer) == []


@pytest.mark.goal("core.B6", part="batch index", broken_by="parts_of_batches_are_dropped")
def test_messages_of_a_batch_are_acknowledged_one_by_one(client: Any, topic: str) -> None:
    def subscribed() -> Any:
        return client.subscribe(
            topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
        )

    consumer = subscribed()
    send_all(
        client,
        topic,
        [("", b"%d" % number) for number in range(10)],
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
    )
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    assert len({message.message_id().entry_id() for message in messages}) == 1
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.close()
    again = subscribed()
    left = taken(again, at_least=5)
    assert [int(message.data()) for message in left] == [1, 3, 5, 7, 9]
    for message in left:
        again.acknowledge(message)
    again.close()
    assert taken(subscribed()) == [], "the whole entry is done"


# --- later -----------------------------------------------------------------------------------


@pytest.mark.goal("core.B7", part="exact within one tick", broken_by="delays_do_not_count")
def test_a_delayed_message_comes_at_its_time(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    sent = time.monotonic()
    producer.send(b"later", deliver_after=timedelta(seconds=1))
    producer.send(b"now")
    assert consumer.receive(RECEIVE_MS).data() == b"now"
    assert consumer.receive(RECEIVE_MS).data() == b"later"
    assert time.monotonic() - sent >= 0.99


@pytest.mark.goal("core.B6", part="ack timeouts", broken_by="redeliveries_are_ignored")
def test_what_is_not_acknowledged_in_time_comes_again(neglected: tuple[Any, float]) -> None:
    consumer, received = neglected
    again = consumer.receive(2 * ACK_TIMEOUT_MS)
    assert time.monotonic() - received >= ACK_TIMEOUT_MS / 1000 - 1
    assert (again.data(), again.redelivery_count()) == (b"first", 1)
