"""What happens to a topic's owner and policies while it is being opened, and who may open one."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.broker import Broker, BrokerSettings
from anabranch.broker.deduplication import Deduplication
from anabranch.broker.refusals import Refused
from anabranch.broker.subscription_names import DEDUPLICATION_CURSOR
from anabranch.broker.topic import Topic
from anabranch.errors import AlreadyClosed, Fenced
from anabranch.ids import TopicName
from anabranch.policies import AutoTopicCreation, NamespacePolicies, encode, paths
from anabranch.policies.effective import PolicyDefaults
from anabranch.wire import ServerError, requests

NAME = TopicName.parse(TOPIC)
DEDUPLICATED = BrokerSettings(policies=PolicyDefaults(deduplication_enabled=True))
NO_CREATION = BrokerSettings(
    policies=PolicyDefaults(auto_topic_creation=AutoTopicCreation(allow=False))
)


class Held:
    """Holds the preparation of topics up until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        prepare = Topic.prepare

        async def held(topic: Topic) -> None:
            self.topic = topic
            self.begun.set()
            await self.go_on.wait()
            await prepare(topic)

        monkeypatch.setattr(Topic, "prepare", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


async def set_namespace(broker: Broker, **policies: Any) -> None:
    document = encode(NamespacePolicies(**policies))
    await broker.namespaces._store.put(paths.namespace_path("public/default"), document)


async def test_policies_that_change_while_a_topic_is_opened_count(held: Held) -> None:
    async with running_broker() as broker:
        opening = asyncio.ensure_future(broker.topics.open(NAME, create=True))
        await held.begun.wait()
        await set_namespace(broker, message_ttl_s=77, deduplication_enabled=True)
        await asyncio.sleep(0.05)
        held.go_on.set()
        topic = await opening
        assert topic.policies.message_ttl_s == 77
        assert topic.deduplication is not None


async def test_a_topic_that_is_lost_while_it_is_opened_is_not_served(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(DEDUPLICATED) as broker:
        opening = asyncio.ensure_future(broker.topics.open(NAME, create=True))
        await held.begun.wait()
        with monkeypatch.context() as patched:
            patched.setattr(broker.ownership, "owns", lambda topic: False, raising=False)
            held.go_on.set()
            with pytest.raises(Fenced, match="another broker"):
                await opening
        assert broker.topics.all() == []
        lost = held.topic.ledger
        assert not lost.is_usable, "nothing is held any more"
        again = await broker.topics.open(NAME, create=True)
        assert again.ledger is not lost


async def test_a_topic_that_fails_while_it_is_opened_is_not_served(held: Held) -> None:
    async with running_broker() as broker:
        opening = asyncio.ensure_future(broker.topics.open(NAME, create=True))
        await held.begun.wait()
        held.topic.fail(Fenced("somebody else writes"))
        held.go_on.set()
        with pytest.raises(AlreadyClosed):
            await opening
        assert not (await broker.topics.open(NAME, create=True)).closed


async def test_nothing_is_held_if_a_topic_cannot_be_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuses(ledger: object) -> None:
        raise Fenced("not now")

    async with running_broker(DEDUPLICATED) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(Deduplication, "open", refuses)
            with pytest.raises(Fenced, match="not now"):
                await broker.topics.open(NAME, create=True)
        assert not broker.topics._managed_ledgers._open
        await broker.topics.open(NAME, create=False)


async def test_an_operator_creates_nothing_that_this_broker_does_not_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def not_here(topic: TopicName) -> None:
        raise Refused(ServerError.ServiceNotReady, f"{topic} is not served by this instance")

    async with running_broker() as broker:
        with monkeypatch.context() as patched:
            patched.setattr(broker.ownership, "require", not_here, raising=False)
            with pytest.raises(Refused, match="not served by this instance"):
                await broker.topics.create(NAME)
        assert not await broker.topics.exists(NAME), "neither opened nor created"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_an_operator_creates_what_clients_may_not(domain: str) -> None:
    name = replace(NAME, domain=domain)
    async with running_broker(NO_CREATION) as broker:
        finding = asyncio.ensure_future(broker.topics.open(name, create=True))
        await asyncio.sleep(0)
        made = await broker.topics.create(name)
        with pytest.raises(Refused):
            await finding
        assert await broker.topics.open(name, create=False) is made


async def test_an_operator_creates_no_partition_beyond_the_last() -> None:
    async with running_broker() as broker:
        await broker.policies.create_partitioned(NAME, 2)
        beyond = replace(NAME, local=f"{NAME.local}-partition-2")
        with pytest.raises(Refused):
            await broker.topics.create(beyond)
        assert not await broker.topics.exists(beyond)


async def test_partitions_that_nobody_declared_come_by_asking_where_topics_do() -> None:
    name = replace(NAME, domain="non-persistent")
    partition = replace(name, local=f"{name.local}-partition-0")
    async with running_broker(NO_CREATION) as broker:
        for create in (True, False):
            with pytest.raises(Refused, match="does not exist"):
                await broker.topics.open(partition, create=create)
        await broker.policies.create_partitioned(name, 1)
        await broker.topics.open(partition, create=False)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_no_subscription_takes_the_name_that_deduplication_needs(domain: str) -> None:
    topic = str(replace(NAME, domain=domain))
    async with running_broker() as broker:
        wire = await Wire(broker).connect()
        request = requests.producer(topic, 1, 2, initial_subscription=DEDUPLICATION_CURSOR)
        assert (await wire.ask(request)).error.error == ServerError.ProducerBusy
        opened = await broker.topics.open(TopicName.parse(topic), create=True)
        for create in (opened.subscribe, opened.create_subscription):
            with pytest.raises(Refused, match="reserved"):
                await create(DEDUPLICATION_CURSOR, initial="latest", properties={})
        assert not opened.subscriptions
