"""A stopped Pulsar cluster moves from ZooKeeper to Oxia, and back, by the commands of the guide."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from anabranch.testing.servers import (
    PulsarBrokers,
    bookkeeper,
    free_port,
    oxia,
    pulsar_brokers,
    pulsar_client,
    set_up_cluster,
    zookeeper,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "off-zookeeper.md"
SHOP = "persistent://acme/shop"
RETENTION = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class Order(Record):  # type: ignore[misc]
    item = String()
    count = Integer()


class Guide:
    """The guide's commands, on the stores of this test in the place of those it names."""

    def __init__(self, folder: Path, zk: str, ox: str) -> None:
        self.folder = folder
        self.stores = {"zk:zk1:2181,zk2:2181,zk3:2181": zk, "oxia://oxia1:6648/default": ox}
        self.sections = dict(
            re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", GUIDE.read_text(), re.MULTILINE)
        )

    def follow(self, section: str) -> list[str]:
        """Run what a section says; return what each command printed."""
        blocks = re.findall(r"^```sh\n(.*?)^```$", self.sections[section], re.M | re.S)
        commands = [line for block in blocks for line in block.splitlines()]
        assert commands, f"the guide shows nothing to do under {section}"
        return [self.run(shlex.split(line)) for line in commands]

    def run(self, words: Sequence[str]) -> str:
        assert words[0] == "anabranch"
        for named, real in self.stores.items():
            words = [word.replace(named, real) for word in words]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True, text=True, check=False, timeout=120, cwd=self.folder,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


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


def ledgers_of(brokers: PulsarBrokers, *topics: str) -> list[int]:
    return [
        ledger["ledgerId"]
        for topic in topics
        for ledger in ask(brokers, "GET", f"persistent/acme/shop/{topic}/internalStats")["ledgers"]
    ]


def drain(consumer: Any, count: int) -> list[bytes]:
    messages = [consumer.receive(timeout_millis=20_000) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    return [message.data() for message in messages]


def numbers(start: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, end)]


def send(client: Any, topic: str, messages: list[bytes]) -> None:
    producer = client.create_producer(f"{SHOP}/{topic}")
    for message in messages:
        producer.send(message, partition_key=message.decode())


@contextmanager
def cluster(url: str, bookie_port: int, folder: Path, bookies: str = "") -> Iterator[PulsarBrokers]:
    """A bookie and a broker; the bookie may name the store in another way."""
    settings = {"metadataServiceUri": bookies} if bookies else {}
    with (
        bookkeeper(url, ports=[bookie_port], folder=folder, settings=settings),
        pulsar_brokers(url, folder=folder) as brokers,
    ):
        yield brokers


def fill(brokers: PulsarBrokers) -> int:
    """Make topics of every kind with something to read; return the largest ledger's id."""
    ask(brokers, "PUT", "tenants/acme", {"adminRoles": [], "allowedClusters": ["test"]})
    ask(brokers, "PUT", "namespaces/acme/shop", {"retention_policies": RETENTION})
    ask(brokers, "PUT", "persistent/acme/shop/parts/partitions", 3)
    with pulsar_client(brokers.service_url) as client:
        for topic in ("parts", "plain", "orders"):
            client.subscribe(f"{SHOP}/{topic}", "s", pulsar.ConsumerType.Shared).close()
        send(client, "parts", numbers(0, 30))
        send(client, "plain", numbers(0, 20))
        half = client.subscribe(f"{SHOP}/plain", "s")
        assert drain(half, 8) == numbers(0, 8)
        producer = client.create_producer(f"{SHOP}/orders", schema=JsonSchema(Order))
        producer.send(Order(item="tea", count=3))
    return max(ledgers_of(brokers, "plain", "orders", *(f"parts-partition-{i}" for i in range(3))))


def use_after_move(brokers: PulsarBrokers, last_ledger: int) -> int:
    """Everything is there and can be used; return the largest ledger's id."""
    with pulsar_client(brokers.service_url) as client:
        plain = client.subscribe(f"{SHOP}/plain", "s")
        assert drain(plain, 12) == numbers(8, 20), "the backlog begins where it was read to"
        parts = client.subscribe(f"{SHOP}/parts", "s", pulsar.ConsumerType.Shared)
        assert sorted(drain(parts, 30), key=int) == numbers(0, 30)
        orders = client.subscribe(f"{SHOP}/orders", "s", schema=JsonSchema(Order))
        assert orders.receive(timeout_millis=20_000).value().count == 3
        send(client, "parts", numbers(30, 60))
        send(client, "plain", numbers(20, 40))
        assert drain(plain, 5) == numbers(20, 25)
        client.subscribe(f"{SHOP}/new", "s").close()
        send(client, "new", [b"new"])
    assert ask(brokers, "GET", "namespaces/acme/shop/retention") == RETENTION
    assert ask(brokers, "GET", "schemas/acme/shop/orders/schema")["type"] == "JSON"
    fresh = ledgers_of(brokers, "new")
    assert min(fresh) > last_ledger, "no id is given out twice"
    return max(ledgers_of(brokers, "new", "plain", "orders"))


def stop_and_export(guide: Guide) -> None:
    """Servers that had to be killed live in the metadata until their sessions end."""
    deadline = time.monotonic() + 60
    while "ephemeral nodes" in guide.follow("Stop the cluster")[0]:
        assert time.monotonic() < deadline, "somebody lives"
        (guide.folder / "stopped.anabranch-metadata").unlink()
        time.sleep(1)


def test_cluster_moves_to_oxia_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Servers that live for seconds are up sooner without the slow compiler.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    port = free_port()
    with zookeeper() as source, oxia(2) as target:
        guide = Guide(tmp_path, source.url, target.url)
        set_up_cluster(source.url, port=free_port(), web_port=free_port())
        # As bookies reached ZooKeeper before Pulsar had a driver of its own, and many do still.
        bookies = f"zk+hierarchical://{source.servers}/ledgers"
        with cluster(source.url, port, tmp_path, bookies) as brokers:
            last_ledger = fill(brokers)
            assert "ephemeral nodes" in guide.follow("Plan")[0]
        stop_and_export(guide)
        tried, copied, compared = guide.follow("Copy")
        assert "dry run" in tried
        assert "verified         yes\n" in copied
        assert "times kept       no: " in copied
        assert "ephemeral" not in copied
        assert compared == ""

        with cluster(target.url, port, tmp_path) as brokers:
            last_ledger = use_after_move(brokers, last_ledger)
            brokers.members[0].stop()
            brokers.members[0].start()
            with pulsar_client(brokers.service_url) as client:
                plain = client.subscribe(f"{SHOP}/plain", "s")
                assert drain(plain, 5) == numbers(25, 30), "what was acknowledged stays so"

        _, copied = guide.follow("Go back")
        assert "verified         yes\n" in copied
        with cluster(f"{source.url}/returned", port, tmp_path) as brokers:
            with pulsar_client(brokers.service_url) as client:
                plain = client.subscribe(f"{SHOP}/plain", "s")
                assert drain(plain, 10) == numbers(30, 40)
                parts = client.subscribe(f"{SHOP}/parts", "s", pulsar.ConsumerType.Shared)
                assert sorted(drain(parts, 30), key=int) == numbers(30, 60)
                assert drain(client.subscribe(f"{SHOP}/new", "s"), 1) == [b"new"]
                send(client, "newer", [b"newer"])
            assert min(ledgers_of(brokers, "newer")) > last_ledger
