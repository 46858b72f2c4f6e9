"""Topics that Pulsar and our server take over from each other, on one ZooKeeper and three bookies.

Pulsar writes a topic and stops; ours serves it, writes one of its own and stops; Pulsar serves
both and is killed; ours serves both. Each finds the entries, exactly what is unacknowledged, and
every version of the schemas, and adds another one.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import (
    PulsarBrokers,
    anabranch_standalone,
    bookkeeper,
    free_port,
    pulsar_brokers,
    pulsar_client,
    set_up_cluster,
    zookeeper,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

NAMESPACE = "public/default"
THEIRS, OURS = "theirs", "ours"
TYPED = ("typed-theirs", "typed-ours")
PULSAR_SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerMaxEntriesPerLedger": "9",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "metadataStoreSessionTimeoutMillis": "6000",
    "schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE",
    "brokerEntryMetadataInterceptors": ",".join(
        f"org.apache.pulsar.common.intercept.Append{name}MetadataInterceptor"
        for name in ("BrokerTimestamp", "Index")
    ),
}
OUR_OPTIONS = (
    *("--cluster", "test", "--ledgers-url", "bookkeeper:?ensemble=3&write=3&ack=2"),
    *("--schema-compatibility", "ALWAYS_COMPATIBLE"),
)
BATCH = 6
SETTLED_S = 2.0
"""Acknowledgements travel in groups, and both brokers store them once a second."""
Place = tuple[int, int, int]
"""Ledger, entry, and index in the batch."""


class Order(Record):  # type: ignore[misc]
    item = String()


class Counted(Record):  # type: ignore[misc]
    item = String()
    count = Integer()


class Priced(Record):  # type: ignore[misc]
    item = String()
    count = Integer()
    price = Integer()


@dataclass
class Topic:
    """What was published, and what each subscription has acknowledged, by name of the payload."""

    name: str
    places: dict[str, Place] = field(default_factory=dict)
    producers: list[str] = field(default_factory=list)
    """Names that brokers gave."""
    acknowledged: dict[str, set[str]] = field(
        default_factory=lambda: {"shared": set(), "exclusive": set()}
    )

    def rest(self, subscription: str) -> list[str]:
        return [text for text in self.places if text not in self.acknowledged[subscription]]


def place_of(message_id: Any) -> Place:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def subscribe(client: Any, topic: Topic, name: str) -> Any:
    kind = pulsar.ConsumerType.Shared if name == "shared" else pulsar.ConsumerType.Exclusive
    return client.subscribe(topic.name, name, kind, batch_index_ack_enabled=True)


def publish(client: Any, topic: Topic, prefix: str) -> None:
    """Single messages, then two batches, plain and compressed."""
    compressions = (pulsar.CompressionType.NONE, pulsar.CompressionType.ZLib)
    for kind, compression in enumerate(compressions):
        single = client.create_producer(
            topic.name, batching_enabled=False, compression_type=compression
        )
        topic.producers.append(single.producer_name())
        for number in range(6):
            text = f"{prefix} single {kind} {number}"
            topic.places[text] = place_of(single.send(text.encode() * 20))
        single.close()
        batched = client.create_producer(
            topic.name, batching_enabled=True, batching_max_publish_delay_ms=5000,
            batching_max_messages=BATCH, compression_type=compression,
        )  # fmt: skip
        for number in range(2 * BATCH):
            text = f"{prefix} batched {kind} {number}"
            topic.places[text] = (-1, -1, -1)

            def sent(result: Any, message_id: Any, text: str = text) -> None:
                assert str(result) == "Result.Ok", result
                topic.places[text] = place_of(message_id)

            batched.send_async(text.encode() * 20, sent)
        batched.flush()
        batched.close()


def text_of(message: Any) -> str:
    data: bytes = message.data()
    assert data == data[: len(data) // 20] * 20
    return data[: len(data) // 20].decode()


def received(consumer: Any, count: int) -> dict[str, Any]:
    """Exactly so many messages, and no more."""
    found = {}
    for _ in range(count):
        message = consumer.receive(timeout_millis=30_000)
        found[text_of(message)] = message
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=700)
    return found


def check_rest(client: Any, topic: Topic, prefix: str) -> None:
    """Consume exactly the rest of both subscriptions, and acknowledge more, with gaps."""
    for name in ("shared", "exclusive"):
        consumer = subscribe(client, topic, name)
        rest = topic.rest(name)
        found = received(consumer, len(rest))
        if name == "exclusive":
            assert list(found) == rest
        assert sorted(found) == sorted(rest)
        assert {t: place_of(m.message_id()) for t, m in found.items()} == {
            text: topic.places[text] for text in rest
        }
        if name == "shared":
            chosen = {t for t in rest if t.startswith(prefix) and int(t.split()[-1]) in (1, 2, 4)}
            for text in chosen:
                consumer.acknowledge(found[text])
        else:
            last = next(n for n, text in enumerate(rest) if text == f"{prefix} batched 0 8")
            chosen = set(rest[: last + 1])
            consumer.acknowledge_cumulative(found[rest[last]])
        topic.acknowledged[name] |= chosen
        time.sleep(SETTLED_S / 2)
        consumer.close()


def fill(client: Any, topic: Topic, prefix: str) -> None:
    for name in topic.acknowledged:
        subscribe(client, topic, name).close()
    publish(client, topic, prefix)
    check_rest(client, topic, prefix)


def check_entries(client: Any, topic: Topic) -> None:
    """All of it from its beginning, as far as it is kept."""
    reader = client.create_reader(topic.name, pulsar.MessageId.earliest)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=20_000)
        found[text_of(message)] = place_of(message.message_id())
    reader.close()
    assert found == topic.places
    assert len(set(topic.producers)) == len(topic.producers), "no name was given twice"


def asked(web_port: int, path: str) -> Any:
    connection = HTTPConnection("127.0.0.1", web_port, timeout=30)
    try:
        connection.request("GET", f"/admin/v2/{path}")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def internals(brokers: PulsarBrokers, topic: str) -> Any:
    return asked(brokers.web_ports[0], f"persistent/{NAMESPACE}/{topic}/internalStats")


def schemas(web_port: int, topic: str) -> list[dict[str, Any]]:
    """Every version of a topic's schema, as the broker at a port says it."""
    said = asked(web_port, f"schemas/{NAMESPACE}/{topic}/schemas")["getSchemaResponses"]
    versions: list[dict[str, Any]] = sorted(said, key=lambda schema: schema["version"])
    return versions


def evolve(client: Any, topic: str, *values: Any) -> None:
    """Send a message of each value's schema, which is stored if it is a new one."""
    for value in values:
        producer = client.create_producer(topic, schema=JsonSchema(type(value)))
        producer.send(value)
        producer.close()


def check_typed(client: Any, topic: str, items: list[str]) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=JsonSchema(Order))
    assert [reader.read_next(20_000).value().item for _ in items] == items
    reader.close()


def checked(url: str) -> Any:
    """What `anabranch managed-ledger verify` finds, with nobody serving the topics."""
    words = ["managed-ledger", "verify", "--metadata", url, "--ledgers", "bookkeeper:"]
    done = CliRunner().invoke(app, [*words, "--output", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def check_shown(url: str, topic: Topic) -> None:
    """The chain as `anabranch managed-ledger show` reads it has the entries that were sent."""
    words = ["managed-ledger", "show", topic.name, "--metadata", url, "--ledgers", "bookkeeper:"]
    done = CliRunner().invoke(app, [*words, "--output", "json"])
    assert done.exit_code == 0, done.output
    chain = json.loads(done.stdout)
    places = {(ledger, entry) for ledger, entry, _ in topic.places.values()}
    held = {row["ledger"]: row["entries"] for row in chain["ledgers"]}
    assert chain["entries"] == len(places)
    assert held == {i: sum(1 for p in places if p[0] == i) for i in held}
    assert sorted(chain["cursors"]) == ["exclusive", "shared"]


async def _until_no_broker(url: str) -> None:
    """A broker that was killed is registered until its session ends."""
    store = await open_store(url, real_runtime())
    try:
        for _ in range(300):
            if not await store.children("/loadbalance/brokers"):
                return
            await asyncio.sleep(0.2)
        raise TimeoutError("a broker is still registered")
    finally:
        await store.close()


def shown(url: str, topic: str) -> Any:
    """The cursors as `anabranch managed-ledger` reads them, with nobody serving the topic."""
    words = ["managed-ledger", "cursors", topic, "--metadata", url, "--ledgers", "bookkeeper:"]
    done = CliRunner().invoke(app, [*words, "--output", "json"])
    assert done.exit_code == 0, done.output
    return {row["cursor"]: row for row in json.loads(done.stdout)}


def pending_bits(topic: Topic, subscription: str) -> dict[str, list[int]]:
    """Of each batch that is acknowledged in part what is pending, by its position."""
    bits: dict[str, int] = {}
    acknowledged = topic.acknowledged[subscription]
    for text, (ledger, entry, index) in topic.places.items():
        if index >= 0:
            key = f"{ledger}:{entry}"
            bits[key] = bits.get(key, 0) | (text not in acknowledged) << index
    return {key: [found] for key, found in bits.items() if 0 < found < (1 << BATCH) - 1}


def check_cursors(url: str, topic: Topic, said: Any) -> None:
    """What is stored is what Pulsar said, and of batches, of which it says nothing, what was done.

    A mark may stand behind a batch that is acknowledged in part: of that one bits are kept too.
    """
    rows = shown(url, topic.name)
    for name in ("shared", "exclusive"):
        cursor = said["cursors"][name]
        assert rows[name]["mark_delete"] == cursor["markDeletePosition"]
        ranges = [f"({i}:{first - 1}..{i}:{last}]" for i, first, last in rows[name]["ranges"]]
        assert f"[{','.join(ranges)}]" == cursor["individuallyDeletedMessages"]
        assert rows[name]["batches"] == pending_bits(topic, name)
        assert rows[name]["batches"], "there is something to compare"


async def _forget_namespaces(url: str) -> None:
    store = await open_store(url, real_runtime())
    try:
        for path in (
            f"/admin/local-policies/{NAMESPACE}",
            f"/admin/policies/{NAMESPACE}",
            "/admin/policies/public",
        ):
            await store.delete(path)
    finally:
        await store.close()


@contextmanager
def pulsar_broker(url: str) -> Iterator[PulsarBrokers]:
    with pulsar_brokers(url, settings=PULSAR_SETTINGS) as brokers:
        yield brokers


@pytest.mark.goal("core.L5", part="Pulsar reads ours")
@pytest.mark.goal("core.L5", part="we read Pulsar's")
@pytest.mark.goal("core.L8", part="Pulsar's topic served by ours")
@pytest.mark.goal("core.L8", part="our topic served by Pulsar")
@pytest.mark.goal("core.L9", part="read by Pulsar")
@pytest.mark.goal("core.L9", part="Pulsar's read")
def test_topics_change_hands_and_back() -> None:
    theirs, ours = Topic(THEIRS), Topic(OURS)
    typed_theirs, typed_ours = TYPED
    first, second, third = Order(item="tea"), Counted(item="rice", count=2), Priced(item="oil")
    with zookeeper() as ensemble:
        url = ensemble.url
        set_up_cluster(url, port=free_port(), web_port=free_port())
        our_options = ("--metadata-url", url, *OUR_OPTIONS)
        with bookkeeper(url, 3):
            with (
                pulsar_broker(url) as brokers,
                pulsar_client(brokers.service_url) as client,
            ):
                fill(client, theirs, "first")
                evolve(client, typed_theirs, first, second)
                said = internals(brokers, THEIRS)
                known = {typed_theirs: schemas(brokers.web_ports[0], typed_theirs)}
            check_cursors(url, theirs, said)
            check_shown(url, theirs)
            # Ours makes the tenant and the namespace, and Pulsar goes on with what ours made.
            asyncio.run(_forget_namespaces(url))
            with (
                anabranch_standalone(options=our_options) as server,
                pulsar_client(server.service_url) as client,
            ):
                check_entries(client, theirs)
                publish(client, theirs, "second")
                check_rest(client, theirs, "second")
                fill(client, ours, "third")
                assert schemas(server.place.web_port, typed_theirs) == known[typed_theirs]
                check_typed(client, typed_theirs, ["tea", "rice"])
                evolve(client, typed_theirs, third, first)
                evolve(client, typed_ours, first, second, first)
                known = {topic: schemas(server.place.web_port, topic) for topic in TYPED}
                assert [len(known[topic]) for topic in TYPED] == [3, 2]
            found = checked(url)
            assert (found["managed_ledgers"] >= 4, found["findings"]) == (True, [])
            check_shown(url, ours)
            with (
                pulsar_broker(url) as brokers,
                pulsar_client(brokers.service_url) as client,
            ):
                for topic, prefix in ((ours, "fourth"), (theirs, "fifth")):
                    check_entries(client, topic)
                    publish(client, topic, prefix)
                    check_rest(client, topic, prefix)
                assert {t: schemas(brokers.web_ports[0], t) for t in TYPED} == known
                check_typed(client, typed_theirs, ["tea", "rice", "oil", "tea"])
                check_typed(client, typed_ours, ["tea", "rice", "tea"])
                evolve(client, typed_ours, second, third)
                known = {t: schemas(brokers.web_ports[0], t) for t in TYPED}
                assert [len(known[topic]) for topic in TYPED] == [3, 3]
                brokers.members[0].kill()
            asyncio.run(_until_no_broker(url))
            with (
                anabranch_standalone(options=our_options) as server,
                pulsar_client(server.service_url) as client,
            ):
                for topic, prefix in ((ours, "sixth"), (theirs, "seventh")):
                    check_entries(client, topic)
                    publish(client, topic, prefix)
                    check_rest(client, topic, prefix)
                assert {t: schemas(server.place.web_port, t) for t in TYPED} == known
                check_typed(client, typed_ours, ["tea", "rice", "tea", "rice", "oil"])
