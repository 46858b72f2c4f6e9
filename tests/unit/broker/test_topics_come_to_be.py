"""How topics come to be: partitions, what namespaces allow, which there are."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import Broker, BrokerSettings
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.ids import TopicName
from anabranch.policies import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    NamespacePolicies,
    TopicPolicies,
    encode,
    paths,
)
from anabranch.policies.effective import PolicyDefaults
from anabranch.wire import ServerError, requests

NAMESPACE = "public/default"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker() as running:
        yield running


async def set_namespace(broker: Broker, **policies: Any) -> None:
    document = encode(NamespacePolicies(**policies))
    await broker.namespaces._store.put(paths.namespace_path(NAMESPACE), document)


async def ask_partitions(wire: Wire, topic: str = TOPIC, create: bool = True) -> Any:
    answer = await wire.ask(requests.partition_metadata(topic, 1, auto_create=create))
    return answer.partitionMetadataResponse


async def listed(wire: Wire, mode: int = 2, **options: Any) -> Any:
    command = pb.BaseCommand(
        type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(
            request_id=3, namespace=NAMESPACE, mode=mode, **options
        ),
    )
    return (await wire.ask(command)).getTopicsOfNamespaceResponse


@pytest.mark.goal("core.B8", part="auto-creation", broken_by="new_topics_are_never_partitioned")
async def test_a_namespace_decides_what_a_new_topic_is(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    assert (await ask_partitions(wire)).partitions == 0
    rule = AutoTopicCreation(allow=True, topic_type="partitioned", default_num_partitions=3)
    await set_namespace(broker, auto_topic_creation=rule)
    assert (await ask_partitions(wire)).partitions == 3
    assert (await ask_partitions(wire, create=False)).partitions == 3
    assert (await ask_partitions(wire, f"{TOPIC}-partition-1")).partitions == 0
    stored = await broker.policies.partitioned(TopicName.parse(TOPIC))
    assert stored is not None
    assert stored.partitions == 3
    refused = await wire.ask(requests.producer(f"{TOPIC}-partition-3", 1, 2))
    assert refused.error.error == ServerError.NotAllowedError


@pytest.mark.goal("core.B8", part="auto-creation", broken_by="topics_come_by_asking")
async def test_where_topics_are_not_created_by_asking_they_are_not_found(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    assert (await ask_partitions(wire, f"{TOPIC}-2", create=False)).error == (
        ServerError.TopicNotFound
    )
    await set_namespace(broker, auto_topic_creation=AutoTopicCreation(allow=False))
    assert (
        await ask_partitions(wire)
    ).response == pb.CommandPartitionedTopicMetadataResponse.Success
    assert (await ask_partitions(wire, f"{TOPIC}-2")).error == ServerError.TopicNotFound
    refused = await wire.ask(requests.producer(f"{TOPIC}-2", 2, 2))
    assert refused.error.error == ServerError.TopicNotFound
    # Partitions of a topic that an operator made are there for the asking.
    await broker.policies.create_partitioned(TopicName.parse(f"{TOPIC}-3"), 2)
    assert (await ask_partitions(wire, f"{TOPIC}-3")).partitions == 2
    answer = await wire.ask(requests.producer(f"{TOPIC}-3-partition-1", 3, 3))
    assert answer.type == pb.BaseCommand.PRODUCER_SUCCESS


async def test_the_brokers_own_setting_counts_last() -> None:
    never = PolicyDefaults(auto_topic_creation=AutoTopicCreation(allow=False))
    async with running_broker(BrokerSettings(policies=never)) as broker:
        wire = await Wire(broker).connect()
        assert (await ask_partitions(wire)).error == ServerError.TopicNotFound
        missing = await wire.ask(requests.producer("persistent://no/body/here", 1, 1))
        assert missing.error.error == ServerError.TopicNotFound


@pytest.mark.goal("core.B8", part="auto-creation", broken_by="subscriptions_come_by_asking")
async def test_subscriptions_may_be_left_to_operators(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    await set_namespace(broker, auto_subscription_creation=AutoSubscriptionCreation(allow=False))
    (topic,) = broker.topics.all()
    while topic.policies.auto_subscription_creation:
        await wire.quiet()
    refused = await wire.subscribe()
    assert refused.error.error == ServerError.SubscriptionNotFound
    own = TopicPolicies(auto_subscription_creation=AutoSubscriptionCreation(allow=True))
    await broker.namespaces._store.put(paths.topic_policies_path(topic.name), encode(own))
    while not topic.policies.auto_subscription_creation:
        await wire.quiet()
    assert (await wire.subscribe()).type == pb.BaseCommand.SUCCESS


@pytest.mark.goal("core.B8", part="topic lists", broken_by="topic_lists_are_stale")
async def test_a_namespace_is_listed_and_a_hash_says_that_nothing_changed(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    assert list((await listed(wire)).topics) == []
    await wire.ask(requests.producer(f"{TOPIC}-partition-0", 1, 1))
    await wire.ask(requests.producer(f"{TOPIC}/with a blank", 2, 2))
    await wire.ask(requests.producer(f"persistent://{NAMESPACE}/__change_events", 3, 3))
    answer = await listed(wire)
    assert list(answer.topics) == [f"{TOPIC}-partition-0", f"{TOPIC}/with a blank"]
    assert list((await listed(wire, mode=1)).topics) == []
    again = await listed(wire, mode=0, topics_hash=answer.topics_hash)
    assert not again.changed
    assert not list(again.topics)
    assert (await listed(wire, topics_hash="other")).changed


def watch(pattern: str, watcher: int = 1, **options: Any) -> pb.BaseCommand:
    return pb.BaseCommand(
        type=pb.BaseCommand.WATCH_TOPIC_LIST,
        watchTopicList=pb.CommandWatchTopicList(
            request_id=7,
            watcher_id=watcher,
            namespace=NAMESPACE,
            topics_pattern=pattern,
            **options,
        ),
    )


@pytest.mark.goal("core.B8", part="watchers", broken_by="deleted_topics_are_not_told")
async def test_watchers_are_told_of_topics_that_come_and_go(broker: Broker) -> None:
    wire, other = await Wire(broker).connect(), await Wire(broker).connect()
    await other.ask(requests.producer(f"{TOPIC}-1", 1, 1))
    begun = (await wire.ask(watch("persistent://public/default/orders-.*"))).watchTopicListSuccess
    assert list(begun.topic) == [f"{TOPIC}-1"]
    await other.ask(requests.producer("persistent://public/default/else", 2, 2))
    await other.ask(requests.producer(f"{TOPIC}-2-partition-0", 3, 3))
    news = (await wire.next()).watchTopicUpdate
    assert (list(news.new_topics), list(news.deleted_topics)) == ([f"{TOPIC}-2-partition-0"], [])
    await broker.topics.delete(TopicName.parse(f"{TOPIC}-1"), force=True)
    news = (await wire.next()).watchTopicUpdate
    assert (list(news.new_topics), list(news.deleted_topics)) == ([], [f"{TOPIC}-1"])
    again = (await wire.ask(watch("p.*", 2, topics_hash="x"))).watchTopicListSuccess
    assert len(again.topic) == 2
    for number in (1, 2):
        closed = await wire.ask(
            pb.BaseCommand(
                type=pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE,
                watchTopicListClose=pb.CommandWatchTopicListClose(request_id=9, watcher_id=number),
            )
        )
        assert closed.success.request_id == 9
    assert not broker.topic_watchers._namespaces


async def test_a_pattern_that_is_not_understood_is_refused(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    for pattern in ("(a", "x" * 51):
        refused = await wire.ask(watch(pattern))
        assert refused.error.error == ServerError.NotAllowedError
    assert not broker.topic_watchers._namespaces


async def test_two_who_delete_a_topic_at_once_delete_it_once(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    name = TopicName.parse(TOPIC)
    await broker.topics.unload(name)
    await asyncio.gather(*(broker.topics.delete(name, force=True) for _ in range(2)))
    assert not await broker.topics.exists(name)
