"""Statistics of topics: what is counted, how fast it went, and what is told of clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from wire_peer import TOPIC, Wire, running_broker

from anabranch.admin import WebInterface
from anabranch.broker import Broker
from anabranch.broker.limits import TOPICS_PER_SLICE
from anabranch.broker.publish_latency import PublishLatency
from anabranch.broker.traffic import Rates, Traffic
from anabranch.generated.pulsar_api_pb2 import KeySharedMeta, KeySharedMode
from anabranch.ids import TopicName
from anabranch.managed_ledger.storage_figures import StorageFigures
from anabranch.runtime.real import real_runtime
from anabranch.testing.web_call import call
from anabranch.wire import AckedId, BaseCommand, ServerError, ack, flow, requests

SHARED = 1
EXCLUSIVE, WAIT = 1, 2
PATH = "/admin/v2/persistent/public/default"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with running_broker() as running:
        yield running


async def ask(broker: Broker, page: str, method: str = "GET", body: object = None) -> Any:
    served = SimpleNamespace(
        cluster="standalone",
        web_url="http://127.0.0.1:1",
        web_url_tls="",
        broker=broker,
        metadata=broker._metadata,
        authentication=None,
        authorization=None,
        why_not_ready=lambda: None,
    )
    app = WebInterface(served)  # type: ignore[arg-type]
    data = b"" if body is None else json.dumps(body).encode()
    answer = await call(app, f"{PATH}/{page}", method=method, body=data)
    assert answer.status < 300, answer.body
    return json.loads(answer.body) if answer.body else None


async def measured_after(broker: Broker, seconds: float) -> None:
    """End an interval of so many seconds."""
    broker.rates._measured_s = broker.clock.monotonic_s() - seconds
    await broker.rates.measure(broker.topics.all())


@pytest.mark.goal("core.B16", part="rates", broken_by="rates_are_not_measured")
@pytest.mark.goal("core.B16", part="rates", broken_by="deliveries_are_not_counted")
async def test_what_goes_through_is_counted_and_measured(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer()
    await wire.subscribe(sub_type=SHARED)
    positions = await wire.published(6)
    assert await wire.read(4) == [0, 1, 2, 3]
    wire.session.data_received(ack(1, 0, [AckedId(*positions[0], None, None)]))
    await measured_after(broker, 2.0)
    stats = await ask(broker, "orders/stats")
    (producer,), subscription = stats["publishers"], stats["subscriptions"]["s"]
    (consumer,) = subscription["consumers"]
    assert (stats["msgInCounter"], stats["msgOutCounter"]) == (6, 4)
    assert stats["bytesInCounter"] == stats["storageSize"]
    assert stats["bytesOutCounter"] == stats["bytesInCounter"] * 4 // 6
    for shown in (stats, producer):
        assert shown["msgRateIn"] == pytest.approx(3.0, rel=0.1)
        assert shown["msgThroughputIn"] == pytest.approx(stats["bytesInCounter"] / 2, rel=0.1)
        assert shown["averageMsgSize"] == pytest.approx(stats["bytesInCounter"] / 6)
    for shown in (stats, subscription, consumer):
        assert shown["msgRateOut"] == pytest.approx(2.0, rel=0.1)
        assert shown["msgThroughputOut"] == pytest.approx(stats["bytesOutCounter"] / 2, rel=0.1)
    for shown in (subscription, consumer):
        assert (shown["msgOutCounter"], shown["unackedMessages"]) == (4, 3)
        assert shown["messageAckRate"] == pytest.approx(0.5, rel=0.1)
        assert shown["msgRateRedeliver"] == 0
        assert shown["lastConsumedTimestamp"] > 0
    for noted in ("lastAckedTimestamp", "lastConsumedFlowTimestamp"):
        assert subscription[noted] > 0
    assert stats["lastPublishTimeStamp"] > 0
    wire.send(requests.redeliver(1))
    assert await wire.read(3) == [1, 2, 3]
    await measured_after(broker, 1.0)
    again = await ask(broker, "orders/stats")
    assert again["msgRateIn"] == 0
    assert again["subscriptions"]["s"]["msgRateRedeliver"] == pytest.approx(3.0, rel=0.1)
    assert again["msgOutCounter"] == 7
    wire.close()
    await wire.quiet()
    gone = await ask(broker, "orders/stats")
    assert (gone["publishers"], gone["subscriptions"]["s"]["consumers"]) == ([], [])
    assert (gone["msgInCounter"], gone["msgOutCounter"]) == (6, 7)
    assert gone["subscriptions"]["s"]["msgBacklog"] == 5


async def test_what_is_told_of_clients(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    await wire.producer(1, access_mode=EXCLUSIVE)
    wire.send(requests.producer(TOPIC, 2, 2, access_mode=WAIT))
    assert not (await wire.next()).producer_success.producer_ready
    await wire.subscribe(sub_type=SHARED)
    wire.session.data_received(flow(1, 7))
    (topic,) = broker.topics.all()
    await topic.follow(replace(topic.policies, deduplication_enabled=True))
    stats = await ask(broker, "orders/stats")
    (producer,) = stats["publishers"]
    assert producer["accessMode"] == "Exclusive"
    assert producer["address"] == "/192.0.2.1:4711"
    assert producer["connectedSince"].endswith("Z")
    assert (stats["waitingPublishers"], stats["deduplicationStatus"]) == (1, "Enabled")
    (consumer,) = stats["subscriptions"]["s"]["consumers"]
    assert (consumer["availablePermits"], consumer["blockedConsumerOnUnackedMsgs"]) == (7, False)
    assert stats["subscriptions"]["s"]["type"] == "Shared"


@pytest.mark.goal("core.B16", part="rates", broken_by="partitions_are_not_added_up")
async def test_the_figures_of_partitions_are_added_up(broker: Broker) -> None:
    await ask(broker, "orders/partitions", "PUT", 2)
    await ask(broker, "orders/subscription/s", "PUT")
    wire = await Wire(broker).connect()
    for number in (1, 2):
        name = f"{TOPIC}-partition-{number - 1}"
        opened = await wire.ask(requests.producer(name, number, number))
        assert opened.HasField("producer_success")
        for n in range(number):
            wire.publish(n, b"x", number)
            await wire.next()
    await measured_after(broker, 1.0)
    whole = await ask(broker, "orders/partitioned-stats")
    assert (whole["msgInCounter"], whole["subscriptions"]["s"]["msgBacklog"]) == (3, 3)
    assert whole["msgRateIn"] == pytest.approx(3.0, rel=0.1)
    assert whole["averageMsgSize"] == pytest.approx(whole["bytesInCounter"] / 3)
    assert len(whole["publishers"]) == 2
    each = whole["partitions"]
    assert [each[name]["msgInCounter"] for name in sorted(each)] == [1, 2]
    assert all(TopicName.parse(name).partition >= 0 for name in each)


async def test_rates_of_many_topics_keep_nobody_waiting() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    clock = real_runtime().clock
    topics = [
        SimpleNamespace(
            traffic=Traffic(),
            producers={},
            subscriptions={},
            ledger=SimpleNamespace(figures=StorageFigures(clock)),
        )
        for _ in range(10 * TOPICS_PER_SLICE)
    ]
    for topic in topics:
        topic.traffic.messages = 1
        topic.ledger.figures.wrote(100, clock.monotonic_s())
    others = asyncio.create_task(count_turns())
    await Rates(clock, PublishLatency(clock)).measure(topics)  # type: ignore[arg-type]
    others.cancel()
    assert turns >= 9
    assert all(topic.traffic.per_second[0] > 0 for topic in topics)
    assert all(topic.ledger.figures.shown.writes_per_s > 0 for topic in topics)


async def test_what_clients_say_of_themselves_is_not_kept_at_any_length(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    fits, too_long = {"k": "x" * 1023}, {"k": "x" * 1024}
    refused = await wire.subscribe(properties=too_long)
    assert refused.error.error == ServerError.MetadataError
    assert "1024" in refused.error.message
    assert (await wire.subscribe(properties=fits)).type == BaseCommand.SUCCESS
    await wire.producer(1, properties=too_long)
    await wire.producer(2, properties=fits)
    stats = await ask(broker, "orders/stats")
    assert sorted(len(each["metadata"]) for each in stats["publishers"]) == [0, 1]
    assert stats["subscriptions"]["s"]["consumers"][0]["metadata"] == fits


async def test_how_a_subscription_is_shared_by_key_is_told(broker: Broker) -> None:
    wire = await Wire(broker).connect()
    sharing = KeySharedMeta(keySharedMode=KeySharedMode.STICKY, allowOutOfOrderDelivery=True)
    sharing.hashRanges.add(start=0, end=65535)
    await wire.subscribe(sub_type=3, key_shared=sharing)
    found = (await ask(broker, "orders/stats"))["subscriptions"]["s"]
    assert (found["keySharedMode"], found["allowOutOfOrderDelivery"]) == ("STICKY", True)
    wire.close()
    other = await Wire(broker).connect()
    await other.subscribe(sub_type=SHARED)
    found = (await ask(broker, "orders/stats"))["subscriptions"]["s"]
    assert "keySharedMode" not in found
    assert found["allowOutOfOrderDelivery"] is False
