"""What the SDK can do beyond sending and receiving: on our server and on Pulsar."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pulsar
import pytest

from anabranch.client import EARLIEST, BrokerRefused, Client, DeadLetters
from anabranch.client.admin import AdminClient, AdminConflict, AdminNotFound
from anabranch.client.admin import namespace_policies as policies
from anabranch.client.schemas import AvroSchema, JsonSchema, Reading
from anabranch.errors import OutcomeUnknown
from anabranch.policies import RetentionRule
from anabranch.testing.servers import anabranch_standalone, pulsar_client, pulsar_standalone
from anabranch.testing.servers.standalone import Standalone
from anabranch.wire.key_hash import murmur3

RECEIVE_MS = 10_000
NAMESPACE = "public/default"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(
    scope="module", params=["anabranch", pytest.param("pulsar", marks=pytest.mark.peer)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Standalone]:
    start = anabranch_standalone if request.param == "anabranch" else pulsar_standalone
    with start() as running:
        yield running


@pytest.fixture
async def sdk(server: Standalone) -> AsyncIterator[Client]:
    async with asyncio.timeout(60), await Client.connect(server.service_url) as client:
        yield client


@pytest.fixture
async def admin(server: Standalone) -> AsyncIterator[AdminClient]:
    async with AdminClient(server.web_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/both-{time.monotonic_ns()}"


async def test_partitions_are_shared_with_the_stock_client(
    sdk: Client, admin: AdminClient, server: Standalone, topic: str
) -> None:
    await admin.topics.create_partitioned(topic, 5)
    consumer = await sdk.consumer(topic, "s")
    producer = await sdk.producer(topic)
    keys = [f"key-{number}-ü" for number in range(30)]
    where = {key: (await producer.send(b"sdk", key=key)).partition for key in keys}
    assert where == {key: murmur3(key.encode()) % 5 for key in keys}
    with pulsar_client(server.service_url) as stock:
        other = stock.create_producer(topic)
        for key in keys:
            other.send(b"stock", partition_key=key)
        theirs = stock.subscribe(topic, "t", initial_position=pulsar.InitialPosition.Earliest)
        read = [theirs.receive(RECEIVE_MS) for _ in range(60)]
    seen = [await consumer.receive() for _ in range(60)]
    assert {(m.key, m.id.partition) for m in seen if m.value == b"sdk"} == set(where.items())
    assert sorted((m.key, m.value, m.id.partition) for m in seen) == sorted(
        (m.partition_key(), m.data(), m.message_id().partition()) for m in read
    )
    await consumer.seek(EARLIEST)
    assert len([await consumer.receive() for _ in range(60)]) == 60
    assert len((await admin.topics.partitioned_stats(topic)).partitions) == 5


async def test_letters(sdk: Client, topic: str) -> None:
    consumer = await sdk.consumer(
        topic, "s", subscription_type="shared", dead_letters=DeadLetters(1),
        negative_ack_delay_s=0.1,
    )  # fmt: skip
    dead = await sdk.consumer(f"{topic}-s-DLQ", "found")
    producer = await sdk.producer(topic)
    await producer.send(b"refused")
    for _ in range(2):
        consumer.negative_acknowledge(await consumer.receive())
    assert (await dead.receive()).properties["REAL_TOPIC"] == topic
    await producer.send(b"later")
    for times in ("1", "2"):
        message = await consumer.receive()
        await consumer.reconsume_later(message, delay_s=0.2)
        if times == "2":
            assert message.properties["RECONSUMETIMES"] == "1"
    buried = await dead.receive()
    assert (buried.value, buried.properties["RECONSUMETIMES"]) == (b"later", "2")


async def test_chunks_go_both_ways(sdk: Client, server: Standalone, topic: str) -> None:
    large = random.Random(1).randbytes(6_000_000)
    with pulsar_client(server.service_url) as stock:
        theirs = stock.subscribe(topic, "theirs")
        ours = await sdk.consumer(topic, "ours")
        producer = await sdk.producer(topic, batching=None, chunking=True)
        sent = await producer.send(large)
        digest = sha256(large).digest()  # a difference of megabytes is nothing to look at
        assert sha256(theirs.receive(RECEIVE_MS).data()).digest() == digest
        message = await ours.receive()
        assert (sha256(message.value).digest(), message.id) == (digest, sent)
        await ours.acknowledge(message, wait=True)
        if server.name == "anabranch":  # the bookie of this Pulsar takes none of the stock size
            other = stock.create_producer(topic, batching_enabled=False, chunking_enabled=True)
            await asyncio.to_thread(other.send, large)
            again = await ours.receive()
            assert sha256(again.value).digest() == digest
            await ours.acknowledge(again, wait=True)
        await ours.seek(sent)
        assert sha256((await ours.receive()).value).digest() == digest


async def test_owners_delays_and_patterns(sdk: Client, server: Standalone, topic: str) -> None:
    name = topic.removeprefix("persistent://")
    owner = await sdk.producer(topic, access_mode="exclusive")
    async with Client(server.service_url) as other:
        with pytest.raises(BrokerRefused, match=r"ProducerFenced|ProducerBusy"):
            await other.producer(topic, access_mode="exclusive")
        waiting = asyncio.ensure_future(
            other.producer(topic, access_mode="wait_for_exclusive", send_timeout_s=3)
        )
        await asyncio.sleep(0.2)
        assert not waiting.done()
        consumer = await sdk.consumer(re.compile(f"{name}.*"), "s", subscription_type="shared")
        await owner.send(b"late", deliver_after_s=3)  # Pulsar takes a second for nothing
        await owner.send(b"now")
        assert [(await consumer.receive()).value for _ in range(2)] == [b"now", b"late"]
        await owner.close()
        heir = await waiting
        await heir.send(b"mine")
        taker = await sdk.producer(topic, access_mode="exclusive_with_fencing")
        with pytest.raises((BrokerRefused, OutcomeUnknown)):
            await heir.send(b"not mine any more")
        await taker.send(b"taken")


async def test_schemas_and_their_versions(sdk: Client, admin: AdminClient, topic: str) -> None:
    def records() -> tuple[Any, Any]:
        @dataclass
        class Order:
            name: str

        first = AvroSchema(Order)

        @dataclass
        class Order:  # type: ignore[no-redef]
            name: str
            count: int = 1

        return first, AvroSchema(Order)

    old, new = records()
    consumer = await sdk.consumer(topic, "s")
    for codec in (old, new):
        producer = await sdk.producer(topic, schema=codec.schema)
        await producer.send(codec.encode(codec._kind("tea")))
        await producer.close()
    reading = Reading(sdk, new)
    found = [await reading.value_of(await consumer.receive()) for _ in range(2)]
    assert found == [new._kind("tea", 1)] * 2
    assert [each.version for each in await admin.schemas.versions(topic)] == [0, 1]
    assert (await admin.schemas.get_newest(topic)).type == "AVRO"

    @dataclass
    class Other:
        other: int

    assert not await admin.schemas.is_compatible(topic, AvroSchema(Other).schema)
    with pytest.raises(BrokerRefused, match="IncompatibleSchema"):
        await sdk.producer(topic, schema=JsonSchema(Other).schema)


async def test_administration(sdk: Client, admin: AdminClient, topic: str) -> None:
    tenant = f"t{time.monotonic_ns()}"
    (cluster,) = await admin.clusters.names()
    await admin.tenants.create(tenant, clusters=[cluster], admin_roles=["boss"])
    with pytest.raises(AdminConflict):
        await admin.tenants.create(tenant, clusters=[cluster])
    await admin.namespaces.create(f"{tenant}/n", bundles=2)
    spaces, space = admin.namespaces, f"{tenant}/n"
    rule = RetentionRule(time_minutes=10, size_mb=5)
    await spaces.set_policy(space, policies.RETENTION, rule)
    assert await spaces.policy(space, policies.RETENTION) == rule
    await spaces.set_policy(space, policies.MESSAGE_TTL_S, 60)
    await spaces.clear_policy(space, policies.MESSAGE_TTL_S)
    assert await spaces.policy(space, policies.MESSAGE_TTL_S) is None
    await spaces.grant(space, "clerk", ["produce"])
    assert (await spaces.permissions(space))["clerk"] == ["produce"]
    await admin.topics.create(f"{space}/a")
    assert await admin.topics.names(space) == [f"persistent://{space}/a"]
    await admin.subscriptions.create(f"{space}/a", "s", at=EARLIEST)
    producer = await sdk.producer(f"{space}/a", batching=None)
    ids = [
        await producer.send(b"%d" % number, key="k", properties={"P 1": "ü"}) for number in range(3)
    ]
    assert (await admin.topics.last_message_id(f"{space}/a")).position == ids[-1].position
    peeked = await admin.subscriptions.peek(f"{space}/a", "s")
    assert (peeked.id, peeked.data) == (str(ids[0].position), b"0")
    assert (peeked.key, peeked.properties) == ("k", {"P 1": "ü"})
    await admin.subscriptions.skip(f"{space}/a", "s", 1)
    stats = await admin.topics.stats(f"{space}/a")
    assert stats.subscriptions["s"].messages_backlog == 2
    assert [each.producer_name for each in stats.publishers] == [producer.name]
    await producer.close()
    await admin.subscriptions.delete(f"{space}/a", "s")
    assert (await admin.topics.terminate(f"{space}/a")).position == ids[-1].position
    await admin.topics.delete(f"{space}/a", force=True)
    with pytest.raises(AdminNotFound):
        await admin.topics.stats(f"{space}/a")
    await admin.namespaces.delete(space)
    await admin.tenants.delete(tenant)
