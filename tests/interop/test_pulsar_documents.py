"""What a real Pulsar keeps of topics and cursors is read by us, and what we write of them by it.

One cluster, two brokers one after the other. The first compresses its nodes in two ways and the
second in the two others; in between, with no broker running, every node is read, held against
what the broker said of its topics, and written again as we write it.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String
from typer.testing import CliRunner

from anabranch.cli.main import app
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.managed_ledger import DocumentCompression
from anabranch.managed_ledger.acknowledged import Acknowledged
from anabranch.managed_ledger.chain import Chain
from anabranch.managed_ledger.formats import (
    decode_chain,
    decode_cursor,
    encode_chain,
    encode_cursor,
    restore_acknowledged,
)
from anabranch.managed_ledger.schema_formats import decode_locator, encode_locator
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import (
    PulsarBrokers,
    bookkeeper,
    free_port,
    pulsar_brokers,
    pulsar_client,
    set_up_cluster,
    zookeeper,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
NAMESPACE = "public/default"
TOPIC = f"persistent://{NAMESPACE}/jobs"
ENDED = f"persistent://{NAMESPACE}/ended"
ORDERS = f"persistent://{NAMESPACE}/orders"
CHAINS = f"/managed-ledgers/{NAMESPACE}/persistent"
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "7",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerInfoCompressionThresholdInBytes": "0",
    "managedCursorInfoCompressionThresholdInBytes": "0",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
ACKED = (*range(10), 12, 13, 20)
"""Of the messages 0 to 29, each an entry."""
BATCH = 5
"""Messages of the entry that follows them; those with an even number are acknowledged."""


class Order(Record):  # type: ignore[misc]
    item = String()


class Counted(Record):  # type: ignore[misc]
    item = String()
    count = Integer(default=1)


def ask(brokers: PulsarBrokers, method: str, path: str, body: object = None) -> Any:
    connection = HTTPConnection("127.0.0.1", brokers.web_ports[0], timeout=30)
    try:
        text = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        connection.request(method, f"/admin/v2/{path}", text, headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status < 300, f"{method} {path}: {answer.status} {said!r}"
        return json.loads(said) if said else None
    finally:
        connection.close()


def internals(brokers: PulsarBrokers, topic: str = "jobs") -> Any:
    return ask(brokers, "GET", f"persistent/{NAMESPACE}/{topic}/internalStats")


def fill(brokers: PulsarBrokers) -> Position:
    """Topics with everything in them; returns where the last one ended."""
    with pulsar_client(brokers.service_url) as client:
        consumer = client.subscribe(
            TOPIC, "s", pulsar.ConsumerType.Shared,
            batch_index_ack_enabled=True, properties={"colour": "blue"},
        )  # fmt: skip
        producer = client.create_producer(TOPIC, batching_enabled=False)
        for number in range(30):
            producer.send(b"%d" % number)
        producer.close()
        producer = client.create_producer(
            TOPIC, batching_enabled=True, batching_max_publish_delay_ms=2000
        )
        for number in range(BATCH):
            producer.send_async(b"batch %d" % number, lambda *_: None)
        producer.flush()
        for _ in range(30 + BATCH):
            message = consumer.receive(timeout_millis=20_000)
            kind, _, number = message.data().decode().rpartition(" ")
            if int(number) in ACKED if not kind else int(number) % 2 == 0:
                consumer.acknowledge(message)
        consumer.close()
        for schema, value in ((Order, Order(item="tea")), (Counted, Counted(item="tea", count=3))):
            orders = client.create_producer(ORDERS, schema=JsonSchema(schema))
            orders.send(value)
            orders.close()
        client.create_producer(ENDED).send(b"last")
    ask(brokers, "PUT", f"persistent/{NAMESPACE}/jobs/properties", {"owner": "them"})
    said = ask(brokers, "POST", f"persistent/{NAMESPACE}/ended/terminate")
    return Position(said["ledgerId"], said["entryId"])


@contextmanager
def broker(url: str, chain: str, cursor: str) -> Iterator[PulsarBrokers]:
    kinds = {"managedLedgerInfoCompressionType": chain, "managedCursorInfoCompressionType": cursor}
    with pulsar_brokers(url, settings={**SETTINGS, **kinds}) as brokers:
        yield brokers


async def with_store(url: str, work: Callable[[MetadataStore], Awaitable[Any]]) -> Any:
    store = await open_store(url, real_runtime())
    try:
        return await work(store)
    finally:
        await store.close()


async def value_at(store: MetadataStore, path: str) -> bytes:
    node = await store.get(path)
    assert node is not None, path
    return node.value


def kind_of(value: bytes) -> str:
    assert value[:2] == b"\x47\x78", "it is not compressed"
    metadata = pb.CompressedInfoMetadata.FromString(
        value[6 : 6 + int.from_bytes(value[2:6], "big")]
    )
    return pb.CompressionType.Name(metadata.compressionType)


def chain_of(value: bytes, said: Any) -> Chain:
    """The chain of a node of a stopped broker, with the entries that the broker counted."""
    document = decode_chain(value, "jobs")
    counted = {ledger["ledgerId"]: ledger for ledger in said["ledgers"]}
    assert [span.ledger_id for span in document.spans] == sorted(counted)
    spans = []
    for span in document.spans:
        ledger = counted[span.ledger_id]
        if span.closed_ms and span.entries:
            assert (span.entries, span.size_bytes) == (ledger["entries"], ledger["size"])
        entries = span.entries or said["currentLedgerEntries"]
        spans.append(replace(span, entries=entries))
    return Chain(spans, None)


def ranges_text(state: Acknowledged) -> str:
    """As Pulsar prints them."""
    shown = [f"({i}:{first - 1}..{i}:{last}]" for i, first, last in state.ranges()]
    return f"[{','.join(shown)}]"


async def read_and_write_again(store: MetadataStore, said: Any, end: Position) -> None:
    value = await value_at(store, f"{CHAINS}/jobs")
    assert kind_of(value) == "ZSTD"
    chain = chain_of(value, said)
    assert chain.total == 31
    assert sum(span.entries == 7 for span in chain.closed) >= 4, "it was rolled by entries"
    document = decode_chain(value, "jobs")
    assert document.properties["owner"] == "them"

    node = await value_at(store, f"{CHAINS}/jobs/s")
    assert kind_of(node) == "LZ4"
    stored = decode_cursor(node, "s")
    assert stored.cursor_ledger_id == -1, "a clean stop leaves the state in the node"
    assert "blue" in stored.cursor_properties.values() or stored.cursor_properties == {}
    state = restore_acknowledged(stored, chain)
    cursor = said["cursors"]["s"]
    assert str(state.mark_delete) == cursor["markDeletePosition"]
    assert ranges_text(state) == cursor["individuallyDeletedMessages"]
    assert state.backlog() == 31 - len(ACKED)
    ((batch, pending),) = state.batches()
    assert (batch, pending) == (chain.last_confirmed, (0b01010,))

    ended = decode_chain(await value_at(store, f"{CHAINS}/ended"), "ended")
    assert ended.terminated == end
    assert len(ended.spans) == 1

    # The chain compressed by us, the cursor as it is, and a cursor that only we have written.
    ours = replace(document, properties={**document.properties, "ours": "yes"})
    packed = DocumentCompression("lz4", above_bytes=0).pack(encode_chain(ours))
    await store.put(f"{CHAINS}/jobs", packed)
    assert encode_cursor(state, {}, {}) is None, "Pulsar reads parts of batches from ledgers alone"
    mine = Acknowledged(chain, chain.position_after(Position(-1, -1), 5))
    mine.acknowledge([chain.position_after(Position(-1, -1), n) for n in (7, 8, 15, 16, 17)])
    written = encode_cursor(mine, {}, {"by": "us"})
    assert written is not None
    await store.put(f"{CHAINS}/jobs/ours", written)
    await store.put(f"{CHAINS}/ended", encode_chain(ended))

    locator = await value_at(store, f"/schemas/{NAMESPACE}/orders")
    index = decode_locator(locator, "orders")
    assert [entry.version for entry in index] == [0, 1]
    assert all(entry.hash for entry in index)
    assert encode_locator(index) == locator
    await store.put(f"/schemas/{NAMESPACE}/orders", encode_locator(index))


def pending_messages(client: Any, name: str) -> list[str]:
    consumer = client.subscribe(
        TOPIC, name, pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    found: list[str] = []
    while True:
        try:
            message = consumer.receive(timeout_millis=20_000 if not found else 2_000)
        except pulsar.Timeout:
            break
        found.append(message.data().decode())
    consumer.close()
    return found


def check_delivery(client: Any, name: str, acked: set[int], batch: set[str]) -> None:
    """What is pending is delivered, and of single messages nothing else.

    Pulsar writes what is acknowledged of a batch to a cursor's node and does not read it there,
    only from a cursor's ledger. So after a clean stop of its own it brings the whole batch.
    """
    found = pending_messages(client, name)
    assert [text for text in found if text.isdigit()] == [
        str(n) for n in range(30) if n not in acked
    ]
    assert batch <= set(found)


def check_in_pulsar(brokers: PulsarBrokers, said: Any, end: Position) -> None:
    """A broker that has only what we wrote says the same, and delivers what is left."""
    with pulsar_client(brokers.service_url) as client:
        check_delivery(client, "s", set(ACKED), {"batch 1", "batch 3"})
        ours = {0, 1, 2, 3, 4, 6, 7, 14, 15, 16}
        check_delivery(client, "ours", ours, {f"batch {n}" for n in range(BATCH)})
        orders = client.subscribe(
            ORDERS,
            "o",
            schema=JsonSchema(Counted),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        assert orders.receive(timeout_millis=20_000).value().item == "tea"
    now = internals(brokers)
    before = [(x["ledgerId"], x["entries"]) for x in said["ledgers"] if x["entries"]]
    after = [(x["ledgerId"], x["entries"]) for x in now["ledgers"] if x["entries"]]
    assert after[: len(before)] == before
    for key in ("markDeletePosition", "individuallyDeletedMessages"):
        assert now["cursors"]["s"][key] == said["cursors"]["s"][key]
    properties = ask(brokers, "GET", f"persistent/{NAMESPACE}/jobs/properties")
    assert properties.items() >= {"owner": "them", "ours": "yes"}.items()
    assert ask(brokers, "GET", f"schemas/{NAMESPACE}/orders/schema/0")["version"] == 0
    ended = ask(brokers, "POST", f"persistent/{NAMESPACE}/ended/terminate")
    assert Position(ended["ledgerId"], ended["entryId"]) == end


async def read_of_the_second(store: MetadataStore, said: Any) -> None:
    value = await value_at(store, f"{CHAINS}/jobs")
    assert kind_of(value) == "SNAPPY"
    chain = Chain(decode_chain(value, "jobs").spans, None)
    node = await value_at(store, f"{CHAINS}/jobs/ours")
    assert kind_of(node) == "ZLIB"
    document = decode_cursor(node, "ours")
    state = restore_acknowledged(document, chain)
    assert ranges_text(state) == said["cursors"]["ours"]["individuallyDeletedMessages"]
    assert document.cursor_properties == {"by": "us"}


def look(url: str) -> None:
    """The commands on a real Pulsar's topic, with its ledgers on bookies."""
    places = ("--metadata", url, "--ledgers", "bookkeeper:", "--output", "json")
    checked = CliRunner().invoke(app, ["managed-ledger", "verify", "jobs", "ended", *places])
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["findings"] == []
    assert json.loads(checked.stdout)["entries"] == 31 + 1
    shown = CliRunner().invoke(app, ["managed-ledger", "cursors", "jobs", *places])
    assert shown.exit_code == 0, shown.output
    pending = {row["cursor"]: row["pending"] for row in json.loads(shown.stdout)}
    assert pending == {"s": 31 - len(ACKED), "ours": 31 - 10}


@pytest.mark.goal("core.L6", part="read by Pulsar")
@pytest.mark.goal("core.L7", part="read by Pulsar")
@pytest.mark.goal("core.L9", part="read by Pulsar")
def test_nodes_go_both_ways() -> None:
    with zookeeper() as ensemble:
        url = ensemble.url
        set_up_cluster(url, port=free_port(), web_port=free_port())
        with bookkeeper(url, 1):
            with broker(url, "ZSTD", "LZ4") as brokers:
                end = fill(brokers)
                time.sleep(1)  # acknowledgements travel in groups
                said = internals(brokers)
            asyncio.run(with_store(url, lambda store: read_and_write_again(store, said, end)))
            with broker(url, "SNAPPY", "ZLIB") as brokers:
                check_in_pulsar(brokers, said, end)
                said = internals(brokers)
            asyncio.run(with_store(url, lambda store: read_of_the_second(store, said)))
            look(url)
