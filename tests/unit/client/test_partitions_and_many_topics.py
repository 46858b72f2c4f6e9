"""Producers and consumers of partitioned topics, of several topics, and of a pattern's."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from served_client import served_with_web

from anabranch.client import EARLIEST, Client, Consumer, MessageId, partitioned_producer
from anabranch.client.admin import AdminClient
from anabranch.client.routing import Routes
from anabranch.client.topic_sets import MatchingTopics
from anabranch.errors import AlreadyClosed, ConfigError, InputError
from anabranch.ids import TopicName
from anabranch.wire.key_hash import java_string_hash

HERE = "persistent://public/default/"


class Cluster(NamedTuple):
    client: Client
    admin: AdminClient


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    failures: list[BaseException] = []
    async with (
        served_with_web() as server,
        AdminClient(server.web_url) as admin,
        Client(server.service_url, on_failure=lambda _, e: failures.append(e)) as client,
    ):
        yield Cluster(client, admin)
    assert not failures, failures


async def receive(consumer: Consumer, count: int) -> list[Any]:
    return [await consumer.receive() for _ in range(count)]


@pytest.mark.goal("core.B23", part="partitions", broken_by="sdk_scatters_keys")
async def test_keys_stay_in_their_partition_and_come_in_order(cluster: Cluster) -> None:
    client, admin = cluster
    await admin.topics.create_partitioned("many", 3)
    assert await client.partitions("many") == 3
    consumer = await client.consumer("many", "s")
    producer = await client.producer("many")
    keys = [f"key-{number % 7}" for number in range(70)]
    answers = [await producer.send_soon(b"%d" % number, key=key) for number, key in enumerate(keys)]
    await producer.flush()
    ids = [answer.result() for answer in answers]
    messages = await receive(consumer, 70)
    where = {(message.key, message.id.partition) for message in messages}
    assert len(where) == 7, "every key has one partition"
    assert len({partition for _, partition in where}) > 1
    for key in set(keys):
        numbers = [int(message.value) for message in messages if message.key == key]
        assert numbers == sorted(numbers)
    assert {message.id for message in messages} == set(ids)
    for message in messages[:35]:
        await consumer.acknowledge(message)
    for message in messages[35:]:
        await consumer.acknowledge(message.id, wait=True)  # the id says which partition
    stats = await admin.topics.partitioned_stats("many")
    assert stats.subscriptions["s"].messages_backlog == 0
    await consumer.close()
    with pytest.raises(AlreadyClosed):
        await consumer.receive()
    await producer.close()
    assert not client._open


async def test_messages_without_keys_go_around(cluster: Cluster) -> None:
    client, admin = cluster
    await admin.topics.create_partitioned("many", 3)
    in_turn = await client.producer("many", batching=None)
    spread = Counter([(await in_turn.send(b"x")).partition for _ in range(9)])
    assert spread == {0: 3, 1: 3, 2: 3}
    together = await client.producer("many")
    answers = [await together.send_soon(b"x") for _ in range(5)]
    assert len({(await answer).partition for answer in answers}) == 1, "one batch"
    single = await client.producer("many", routing="single", batching=None)
    assert len({(await single.send(b"x")).partition for _ in range(5)}) == 1
    chosen = await client.producer("many", routing=lambda key, count: count - 1)
    assert (await chosen.send(b"x")).partition == 2
    wrong = await client.producer("many", routing=lambda key, count: count)
    with pytest.raises(InputError, match="no partition 3"):
        await wrong.send(b"x")
    with pytest.raises(ConfigError, match="round_robin"):
        await client.producer("many", routing="random")  # type: ignore[arg-type]


async def test_new_partitions_are_noticed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, admin = cluster
    monkeypatch.setattr(partitioned_producer, "PARTITIONS_REFRESH_S", 0.05)
    await admin.topics.create_partitioned("many", 1)
    consumer = await client.consumer("many", "s", refresh_s=0.05, initial_position="earliest")
    producer = await client.producer("many", batching=None)
    assert (await producer.send(b"0")).partition == 0
    await admin.topics.add_partitions("many", 2)
    async with asyncio.timeout(10):
        while (await producer.send(b"0")).partition == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        while (await consumer.receive()).id.partition == 0:
            pass


async def test_readers_read_all_partitions(cluster: Cluster) -> None:
    client, admin = cluster
    await admin.topics.create_partitioned("many", 2)
    producer = await client.producer("many", batching=None)
    ids = [await producer.send(b"%d" % number) for number in range(6)]
    reader = await client.reader("many")
    values = set()
    while await reader.has_message_available():
        values.add((await reader.read_next()).value)
    assert values == {b"%d" % number for number in range(6)}
    await reader.seek(EARLIEST)
    assert await reader.has_message_available()
    await reader.close()
    with pytest.raises(InputError, match="has partitions"):
        await client.reader("many", start=ids[0])


async def test_several_topics_and_seeks_together(cluster: Cluster) -> None:
    client, _ = cluster
    consumer = await client.consumer(["a", "b", "a"], "s")
    producers = [await client.producer(name, batching=None) for name in ("a", "b")]
    sent = [await producers[number % 2].send(b"%d" % number) for number in range(6)]
    messages = await receive(consumer, 6)
    assert {(m.topic, m.value) for m in messages} == {
        (f"{HERE}{'ab'[number % 2]}", b"%d" % number) for number in range(6)
    }
    with pytest.raises(InputError, match="give the message itself"):
        await consumer.acknowledge(sent[0])
    with pytest.raises(InputError, match="no last message"):
        await consumer.last_message_id()
    for message in messages:
        await consumer.acknowledge(message, wait=True)
    await consumer.seek(EARLIEST)
    assert len(await receive(consumer, 6)) == 6
    consumer.redeliver()
    assert len(await receive(consumer, 6)) == 6
    await consumer.seek(0)
    again = await receive(consumer, 6)
    await consumer.acknowledge(again[0], cumulative=True, wait=True)
    assert consumer.is_connected
    await consumer.unsubscribe()
    await client.consumer(["a", "b"], "s")


@pytest.mark.goal("core.B23", part="partitions", broken_by="sdk_sees_no_new_topics")
async def test_a_pattern_is_followed(cluster: Cluster) -> None:
    client, admin = cluster
    await admin.topics.create("orders-1")
    await admin.topics.create("other")
    await admin.topics.create_partitioned("orders-many", 2)
    consumer = await client.consumer(
        re.compile("public/default/orders-.*"), "s", refresh_s=0.05, initial_position="earliest"
    )
    assert consumer.topics == [  # type: ignore[attr-defined]
        f"{HERE}orders-1", f"{HERE}orders-many-partition-0", f"{HERE}orders-many-partition-1",
    ]  # fmt: skip
    late = await client.producer("orders-2")
    await late.send(b"late")
    async with asyncio.timeout(10):
        message = await consumer.receive()
    assert (message.topic, message.value) == (f"{HERE}orders-2", b"late")
    await admin.topics.delete("orders-1", force=True)
    async with asyncio.timeout(10):
        while f"{HERE}orders-1" in consumer.topics:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert await receive(consumer, 0) == []


def test_patterns_say_their_namespace() -> None:
    any_domain = MatchingTopics(re.compile("a/b/x.*"))
    assert any_domain.matches(TopicName.parse("persistent://a/b/xy"))
    assert not any_domain.matches(TopicName.parse("persistent://a/b/y"))
    assert not any_domain.matches(TopicName.parse("non-persistent://a/b/x"))
    given = MatchingTopics(re.compile("non-persistent://a/b/x.*"))
    assert given.matches(TopicName.parse("non-persistent://a/b/x"))
    for wrong in ("x.*", "a/.*", ".*/b/c", "a/.*/c"):
        with pytest.raises(ConfigError, match="begin with a namespace"):
            MatchingTopics(re.compile(wrong))


def test_hashes_are_those_of_other_clients() -> None:
    # Of Java: "hello".hashCode() & 0x7fffffff, and so on.
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == 0
    routes = Routes("round_robin", "java_string", 0)
    assert routes.choose("hello", 10, stay=False) == 2
    assert Routes("single", "murmur3", 5).choose(b"\x01", 2**31, stay=False) == (
        Routes("single", "murmur3", 0).choose("AQ==", 2**31, stay=False)
    )
    with pytest.raises(ConfigError, match="no hash of keys"):
        Routes("single", "md5", 0)  # type: ignore[arg-type]


async def test_a_topic_that_cannot_be_had_does_not_hold_up_the_others(cluster: Cluster) -> None:
    client, admin = cluster
    await admin.topics.create("orders-1")
    consumer: Any = await client.consumer(
        re.compile("public/default/orders-.*"), "s", refresh_s=0.05, initial_position="earliest"
    )
    taken = await client.consumer("orders-2", "s")
    await (await client.producer("orders-3")).send(b"late")
    async with asyncio.timeout(10):
        message = await consumer.receive()
    assert (message.topic, message.value) == (f"{HERE}orders-3", b"late")
    assert f"{HERE}orders-2" not in consumer.topics
    await taken.close()
    async with asyncio.timeout(10):
        while f"{HERE}orders-2" not in consumer.topics:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_opening_takes_all_or_nothing(cluster: Cluster) -> None:
    client, _ = cluster
    await client.consumer("b", "s", name="first")
    from anabranch.client import BrokerRefused

    with pytest.raises(BrokerRefused, match="ConsumerBusy"):
        await client.consumer(["a", "b"], "s")
    await client.consumer("a", "s")
    assert MessageId(1, 2) < MessageId(1, 3)
