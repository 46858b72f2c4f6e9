"""Three brokers on real stores, and the stock client while topics go from one to another.

Those on ZooKeeper are started, and used, by the commands of the guide.
The client sends without pause and is told of no error, whether a broker is asked to give a bundle
up, is stopped, or is killed. How long it had to wait is printed; nothing is judged by time.
"""

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import pulsar
import pytest

from anabranch.ids import TopicName
from anabranch.ownership.bundles import Bundle, equal_boundaries
from anabranch.ownership.limits import BUNDLES_PER_NAMESPACE
from anabranch.testing.planted import child_command
from anabranch.testing.servers import (
    Member,
    bookkeeper,
    free_port,
    oxia,
    pulsar_admin,
    pulsar_client,
)
from anabranch.testing.servers.member import group
from anabranch.testing.servers.our_brokers import OurBrokers, init_cluster, our_brokers
from anabranch.testing.servers.standalone import healthy

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PORTS = ((6650, 8080), (6651, 8081), (6652, 8082))
"""Of the guide's brokers, and of their web interfaces."""
SESSION_S = ("--metadata-session-timeout-s", "6")
EVERY_S = 0.01


class Guide:
    """The commands of the guide, with the addresses of this run."""

    def __init__(self) -> None:
        self.metadata_port = free_port()
        self.ports = tuple(free_port() for _ in PORTS)
        self.web_ports = tuple(free_port() for _ in PORTS)
        text = (ROOT / "docs" / "guides" / "three-brokers.md").read_text()
        text = re.sub(r"\b2181\b", str(self.metadata_port), text)
        for index, (port, web_port) in enumerate(PORTS):
            text = re.sub(rf"\b{port}\b", str(self.ports[index]), text)
            text = re.sub(rf"\b{web_port}\b", str(self.web_ports[index]), text)
        blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.commands = [shlex.split(line) for block in blocks for line in block.splitlines()]

    def of(self, *words: str) -> list[list[str]]:
        """The commands that begin so; ours are run as the module they are."""
        found = [each for each in self.commands if each[: len(words)] == list(words)]
        assert found, f"the guide does not show {words}"
        if words[0] == "anabranch":
            return [child_command("anabranch", *each[1:]) for each in found]
        if words[0] == ".venv/bin/python":
            return [[sys.executable, *each[1:]] for each in found]
        return found

    def run(self, *words: str) -> list[str]:
        """What those commands print."""
        return [
            subprocess.run(each, capture_output=True, text=True, check=True, timeout=60).stdout
            for each in self.of(*words)
        ]

    @contextmanager
    def brokers(self) -> Iterator[OurBrokers]:
        """The brokers that the guide starts."""
        members: list[Member] = []

        def build(root: Path) -> list[Member]:
            commands = zip(self.of("anabranch", "broker"), self.web_ports, strict=True)
            for number, (command, web_port) in enumerate(commands, start=1):
                name = f"broker-{number}"
                ready = partial(healthy, web_port)
                members.append(
                    Member(name, [*command, *SESSION_S], folder=root / name, ready=ready)
                )
            return members

        with group("brokers", None, build):
            yield OurBrokers(tuple(members), self.ports, self.web_ports)

    @contextmanager
    def storage(self, what: str) -> Iterator[None]:
        """Run what it gives to those who have no ZooKeeper or no bookies."""
        (command,) = self.of(".venv/bin/python", "-m", "anabranch.testing.servers", what)

        def build(root: Path) -> list[Member]:
            log = root / f"{what}.log"
            return [Member(what, command, folder=root, ready=partial(says_that_it_runs, log))]

        with group(what, None, build):
            yield


def says_that_it_runs(log: Path) -> bool:
    return "until Ctrl-C" in log.read_text()


@dataclass(frozen=True)
class Running:
    """A cluster as the guide makes it."""

    guide: Guide
    brokers: OurBrokers


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    guide = Guide()
    with guide.storage("zookeeper"):
        guide.run("anabranch", "cluster", "init")
        with guide.storage("bookies"), guide.brokers() as brokers:
            yield Running(guide, brokers)


@pytest.fixture(scope="module")
def on_zookeeper(running: Running) -> OurBrokers:
    return running.brokers


@dataclass
class Publishing:
    """A producer that sends all the time, and a consumer of what it sends."""

    producer: Any
    consumer: Any
    sent: int = 0
    receipts: list[float] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def run(self) -> None:
        while not self._over.wait(EVERY_S):
            self.producer.send_async(b"%d" % self.sent, self._answered)
            self.sent += 1

    def _answered(self, result: Any, message_id: object) -> None:
        self.receipts.append(time.monotonic())
        if result != pulsar.Result.Ok:
            self.errors.append(result)
        self._done.release()

    def wait_for_more(self, count: int = 20) -> None:
        wanted, deadline = len(self.receipts) + count, time.monotonic() + 60
        while len(self.receipts) < wanted:
            assert time.monotonic() < deadline, "nobody serves the topic any more"
            time.sleep(EVERY_S)

    def finish(self) -> float:
        """Stop; all that was sent was stored once, in order. Returns the longest wait."""
        self._over.set()
        for _ in range(self.sent):
            assert self._done.acquire(timeout=60), "a message was not answered"
        assert self.errors == []
        seen: list[int] = []
        while not seen or seen[-1] < self.sent - 1:
            message = self.consumer.receive(timeout_millis=30_000)
            self.consumer.acknowledge(message)
            number = int(message.data())
            if number not in seen[-2000:]:
                seen.append(number)
        assert seen == list(range(self.sent))
        return max(b - a for a, b in pairwise(self.receipts))


@contextmanager
def publishing(brokers: OurBrokers, topic: str) -> Iterator[Publishing]:
    with pulsar_client(brokers.service_url) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, block_if_queue_full=True)
        load = Publishing(producer, consumer)
        thread = threading.Thread(target=load.run, daemon=True)
        thread.start()
        try:
            load.wait_for_more()
            yield load
        finally:
            load._over.set()
            thread.join()


def owner_of(brokers: OurBrokers, topic: str, *, other_than: Member | None = None) -> Member:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        owner = brokers.owner(topic)
        if owner is not None and owner is not other_than and owner.running:
            return owner
        time.sleep(0.1)
    raise AssertionError(f"nobody owns {topic}")


def bundle_of(topic: str) -> Bundle:
    name = TopicName.parse(topic)
    ranges = ["_".join(ends) for ends in pairwise(equal_boundaries(BUNDLES_PER_NAMESPACE))]
    bundles = [Bundle.parse(name.namespace_name, text) for text in ranges]
    return next(bundle for bundle in bundles if bundle.holds(name))


def unload(brokers: OurBrokers, owner: Member, bundle: Bundle) -> None:
    web_port = brokers.web_ports[brokers.members.index(owner)]
    connection = HTTPConnection("127.0.0.1", web_port, timeout=30)
    path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.range_text}/unload"
    connection.request("PUT", path)
    answer = connection.getresponse()
    assert answer.status == 204, answer.read()
    connection.close()


def connections_to_owner(brokers: OurBrokers, owner: Member) -> str:
    return f"127.0.0.1:{brokers.ports[brokers.members.index(owner)]}"


def test_the_guide_is_true(running: Running) -> None:
    """First of all: the guide begins with a cluster without topics."""
    guide, brokers = running.guide, running.brokers
    guide.run("anabranch", "produce")
    assert guide.run("anabranch", "consume") == ["first\n"]
    found, listed, unloaded = guide.run("curl")
    assert json.loads(found)["brokerUrl"] in {f"pulsar://127.0.0.1:{port}" for port in guide.ports}
    assert len(json.loads(listed)) == len(brokers.members)
    assert unloaded == ""
    topic = "persistent://public/default/orders"
    assert bundle_of(topic).range_text in guide.of("curl")[-1][-1]
    assert owner_of(brokers, topic) in brokers.members


@pytest.mark.goal("core.B16", part="redirects")
def test_pulsar_admin_may_ask_any_broker(on_zookeeper: OurBrokers) -> None:
    brokers, space = on_zookeeper, "persistent://public/default"
    web_urls = [f"http://127.0.0.1:{port}" for port in brokers.web_ports]
    pulsar_admin(
        ["topics", "create-partitioned-topic", f"{space}/spread", "--partitions", "8"],
        web_url=web_urls[0],
    )
    pulsar_admin(
        ["topics", "create-subscription", f"{space}/spread", "--subscription", "s"],
        web_url=web_urls[1],
    )
    printed = pulsar_admin(
        ["topics", "partitioned-stats", f"{space}/spread", "--per-partition"], web_url=web_urls[2]
    )
    stats = json.loads(printed[printed.index("{") :])
    owners = {each["ownerBroker"] for each in stats["partitions"].values()}
    assert len(stats["partitions"]) == 8
    assert len(owners) >= 2
    assert owners <= {url.removeprefix("http://") for url in web_urls}
    owner = owner_of(brokers, f"{space}/spread-partition-0")
    asked = next(url for url, each in zip(web_urls, brokers.members, strict=True) if each != owner)
    printed = pulsar_admin(["topics", "stats", f"{space}/spread-partition-0"], web_url=asked)
    found = json.loads(printed[printed.index("{") :])
    assert found["ownerBroker"] == stats["partitions"][f"{space}/spread-partition-0"]["ownerBroker"]
    assert list(found["subscriptions"]) == ["s"]


@pytest.mark.goal("core.B14", part="processes", broken_by="unload_answers_before_it_is_done")
def test_a_bundle_is_given_up_and_the_client_goes_on(on_zookeeper: OurBrokers) -> None:
    topic = "persistent://public/default/unloaded"
    with publishing(on_zookeeper, topic) as load:
        owner = owner_of(on_zookeeper, topic)
        unload(on_zookeeper, owner, bundle_of(topic))
        load.wait_for_more()
        assert owner_of(on_zookeeper, topic) is not owner
        longest_s = load.finish()
    assert "unloaded" in owner.log.read_text()
    print(f"publishing paused for {longest_s:.2f} s while a bundle was unloaded")


@pytest.mark.goal("core.B14", part="processes", broken_by="who_stops_gives_nothing_up")
def test_a_broker_that_is_told_to_stop_hands_its_topics_over(on_zookeeper: OurBrokers) -> None:
    topic = "persistent://public/default/stopped"
    with publishing(on_zookeeper, topic) as load:
        owner = owner_of(on_zookeeper, topic)
        owner.stop()
        load.wait_for_more()
        taker = owner_of(on_zookeeper, topic, other_than=owner)
        longest_s = load.finish()
    owner.start()
    said = owner.log.read_text()
    assert "bundle_released" in said, "it did not wait for the end of its session"
    assert connections_to_owner(on_zookeeper, taker) in said, "clients were told where to go"
    print(f"publishing paused for {longest_s:.2f} s while a broker was stopped")


@pytest.mark.goal("core.B14", part="processes", broken_by="lookup_believes_an_old_answer")
def test_a_broker_is_killed_and_the_client_goes_on(on_zookeeper: OurBrokers) -> None:
    topic = "persistent://public/default/killed"
    with publishing(on_zookeeper, topic) as load:
        owner = owner_of(on_zookeeper, topic)
        owner.kill()
        load.wait_for_more()
        assert owner_of(on_zookeeper, topic) is not owner
        longest_s = load.finish()
    owner.start()
    print(f"publishing paused for {longest_s:.2f} s while a broker was killed")


@pytest.mark.goal("core.B14", part="processes", broken_by="lookup_believes_an_old_answer")
def test_brokers_share_topics_on_oxia_with_bookies() -> None:
    topic = "persistent://public/default/on-oxia"
    with ExitStack() as held:
        metadata = held.enter_context(oxia(2))
        init_cluster(metadata.url)
        held.enter_context(bookkeeper(metadata.url, 3))
        brokers = held.enter_context(our_brokers(metadata.url, 3, options=SESSION_S))
        load = held.enter_context(publishing(brokers, topic))
        owner = owner_of(brokers, topic)
        owner.kill()
        load.wait_for_more()
        taker = owner_of(brokers, topic)
        assert taker is not owner
        unload(brokers, taker, bundle_of(topic))
        load.wait_for_more()
        load.finish()
