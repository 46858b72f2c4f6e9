"""Topics of every kind with the unmodified client from the package index."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from anabranch.ids import TopicName
from anabranch.policies import AutoTopicCreation, NamespacePolicies, encode, paths
from anabranch.testing.servers import pulsar_client
from anabranch.testing.standalone_in_thread import StandaloneInThread, standalone_in_thread

RECEIVE_MS = 10_000


@pytest.fixture(scope="module")
def server() -> Iterator[StandaloneInThread]:
    with standalone_in_thread() as running:
        yield running


@pytest.fixture
def client(server: StandaloneInThread) -> Iterator[Any]:
    with pulsar_client(server.service_url, operation_timeout_seconds=10) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"stock-{time.monotonic_ns()}"


def full(topic: str) -> TopicName:
    return TopicName.parse(topic)


@pytest.mark.goal("core.B8", part="partitioned", broken_by="partitioned_topics_are_not_seen")
def test_producers_and_consumers_span_the_partitions(
    server: StandaloneInThread, client: Any, topic: str
) -> None:
    server.run(server.broker.policies.create_partitioned(full(topic), 3))
    assert client.get_topic_partitions(topic) == [
        f"{full(topic)}-partition-{number}" for number in range(3)
    ]
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    sent = [b"%d" % number for number in range(30)]
    for payload in sent:
        producer.send(payload)
    received, partitions = [], set()
    for _ in sent:
        message = consumer.receive(RECEIVE_MS)
        received.append(message.data())
        partitions.add(message.message_id().partition())
        consumer.acknowledge(message)
    assert sorted(received, key=int) == sent
    assert partitions == {0, 1, 2}
    opened = [each for each in server.broker.topics.all() if str(full(topic)) in str(each.name)]
    assert len(opened) == 3


@pytest.mark.goal("core.B8", part="patterns", broken_by="topic_lists_are_stale")
def test_a_pattern_finds_topics_partitions_and_what_is_not_stored(
    server: StandaloneInThread, client: Any, topic: str
) -> None:
    server.run(server.broker.policies.create_partitioned(full(f"{topic}-p"), 2))
    names = [f"persistent://public/default/{topic}-{name}" for name in ("a", "b", "p")]
    producers = [client.create_producer(name, batching_enabled=False) for name in names]
    other = client.create_producer(f"other-{topic}")
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-.*"), "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )  # fmt: skip
    other.send(b"not wanted")
    for number, producer in enumerate(producers):
        producer.send(b"%d" % number)
    assert sorted(consumer.receive(RECEIVE_MS).data() for _ in names) == [b"0", b"1", b"2"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    passing = f"non-persistent://public/default/{topic}-n"
    from_there = client.subscribe(passing, "t")
    everything = client.subscribe(
        re.compile(f"non-persistent://public/default/{topic}-.*"), "u",
        regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly,
    )  # fmt: skip
    client.create_producer(passing).send(b"passing")
    assert everything.receive(RECEIVE_MS).data() == b"passing"
    assert from_there.receive(RECEIVE_MS).data() == b"passing"


@pytest.mark.goal("core.B8", part="auto-creation", broken_by="new_topics_are_never_partitioned")
def test_a_namespace_whose_new_topics_have_partitions(
    server: StandaloneInThread, client: Any
) -> None:
    wanted = AutoTopicCreation(allow=True, topic_type="partitioned", default_num_partitions=3)
    rules = NamespacePolicies(auto_topic_creation=wanted)
    store = server.broker.namespaces._store
    server.run(store.put(paths.namespace_path("public/wide"), encode(rules)))
    client.create_producer("public/wide/new").send(b"in")
    whole = "persistent://public/wide/new"
    assert client.get_topic_partitions("public/wide/new") == [
        f"{whole}-partition-{number}" for number in range(3)
    ]


@pytest.mark.goal("core.B8", part="auto-creation", broken_by="topics_come_by_asking")
def test_a_namespace_that_wants_no_new_topics(server: StandaloneInThread, client: Any) -> None:
    broker = server.broker
    rules = NamespacePolicies(auto_topic_creation=AutoTopicCreation(allow=False))
    store = broker.namespaces._store
    server.run(store.put(paths.namespace_path("public/closed"), encode(rules)))
    server.run(broker.policies.create_partitioned(full("public/closed/made"), 2))
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("public/closed/new")
    producer = client.create_producer("public/closed/made", batching_enabled=False)
    consumer = client.subscribe("public/closed/made", "s")
    producer.send(b"in")
    assert consumer.receive(RECEIVE_MS).data() == b"in"


@pytest.mark.goal("core.B9", broken_by="only_one_subscription_gets_it")
def test_a_topic_that_stores_nothing(client: Any, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    producer = client.create_producer(name, batching_enabled=False)
    producer.send(b"for nobody")
    shared = [
        client.subscribe(name, "shared", consumer_type=pulsar.ConsumerType.Shared) for _ in range(2)
    ]
    alone = client.subscribe(name, "alone")
    sent = [b"%d" % number for number in range(20)]
    for payload in sent:
        producer.send(payload)
    received = []
    for _ in sent:
        message = alone.receive(RECEIVE_MS)
        received.append(message.data())
        alone.acknowledge(message)
    assert received == sent
    divided = [each.receive(RECEIVE_MS).data() for each in shared for _ in range(10)]
    assert sorted(divided, key=int) == sent


class First(Record):  # type: ignore[misc]
    a = Integer()


class Second(Record):  # type: ignore[misc]
    a = Integer()
    b = String(required_default=True)


class Wrong(Record):  # type: ignore[misc]
    a = String(required=True)


@pytest.mark.goal("core.B10", part="compatibility strategies", broken_by="any_schema_is_compatible")
def test_a_schema_grows_and_old_messages_stay_readable(
    server: StandaloneInThread, client: Any, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", schema=JsonSchema(First))
    client.create_producer(topic, schema=JsonSchema(First)).send(First(a=1))
    client.create_producer(topic, schema=JsonSchema(Second)).send(Second(a=2, b="two"))
    versions = [consumer.receive(RECEIVE_MS) for _ in range(2)]
    assert [message.value().a for message in versions] == [1, 2]
    stored = server.run(server.broker.schemas.versions(full(topic)))
    assert [each.version for each in stored] == [0, 1]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=JsonSchema(Wrong))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "t", schema=JsonSchema(Wrong))
