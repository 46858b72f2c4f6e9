"""A server whose ledgers are on three real bookies, used by the stock client through crashes."""

import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.testing.servers import (
    anabranch_standalone,
    bookkeeper,
    free_port,
    pulsar_client,
    set_up_cluster,
    zookeeper,
)
from anabranch.testing.servers.bookkeeper import BookKeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PAUSE_S_MAX = 2.0


@dataclass(frozen=True)
class Cluster:
    """Bookies, and how a server finds them."""

    metadata_url: str
    bookies: BookKeeper

    @property
    def options(self) -> tuple[str, ...]:
        return (
            *("--cluster", "test"),
            *("--metadata-url", self.metadata_url),
            *("--ledgers-url", "bookkeeper:?ensemble=3&write=3&ack=2"),
            *("--metadata-session-timeout-s", "4"),
        )

    @property
    def url(self) -> str:
        return f"bookkeeper:{self.metadata_url}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with zookeeper() as metadata:
        set_up_cluster(metadata.url, port=free_port(), web_port=free_port())
        with bookkeeper(metadata.url, 3) as bookies:
            yield Cluster(metadata.url, bookies)


@dataclass
class Sent:
    """What became of messages that were sent without waiting."""

    acknowledged: list[int] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def note(self, number: int, result: Any) -> None:
        if str(result) != "Result.Ok":
            self.errors.append(f"{number}: {result}")
            return
        self.acknowledged.append(number)
        self.moments.append(time.monotonic())


def received(consumer: Any, count: int) -> list[int]:
    found = []
    for _ in range(count):
        message = consumer.receive(20_000)
        found.append(int(message.data()))
        consumer.acknowledge(message)
    return found


def anabranch(*words: str) -> Result:
    return CliRunner().invoke(app, ["ledgers", *words])


def test_nothing_is_lost_when_the_server_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    with anabranch_standalone(folder=tmp_path / "server", options=cluster.options) as server:
        with pulsar_client(server.service_url) as client:
            consumer = client.subscribe("kept", "s")
            producer = client.create_producer("kept")
            for number in range(40):
                producer.send(b"%d" % number)
            assert received(consumer, 15) == list(range(15))
            server.kill()
        server.start()
        with pulsar_client(server.service_url) as client:
            producer = client.create_producer("kept")
            for number in range(40, 60):
                producer.send(b"%d" % number)
            consumer = client.subscribe("kept", "s")
            again = received(consumer, 1)
            again += received(consumer, 59 - again[0])
            assert again == list(range(again[0], 60)), "nothing is missing, all is in order"
            assert again[0] <= 15
    assert not list((tmp_path / "server").glob("**/ledgers")), "all of it is on the bookies"


def test_ledgers_on_bookies_are_listed_read_verified_and_deleted(
    cluster: Cluster, tmp_path: Path
) -> None:
    with (
        anabranch_standalone(folder=tmp_path / "server", options=cluster.options) as server,
        pulsar_client(server.service_url) as client,
    ):
        client.subscribe("shown", "s")
        producer = client.create_producer("shown")
        ours = [producer.send(b"message %d" % number) for number in range(10)]
        ledger = str(ours[0].ledger_id())
        rows = {
            row["ledger"]: row
            for row in json.loads(anabranch("ls", cluster.url, "--output", "json").stdout)
        }
        assert rows[int(ledger)]["state"] == "open"
        assert rows[int(ledger)]["entries"] is None
        # Looked at while it is written, and nobody is fenced.
        assert anabranch("read", cluster.url, ledger, "--last", "0").exit_code == 0
        producer.send(b"message 10")
        refused = anabranch("delete", cluster.url, ledger)
        assert refused.exit_code == 2
        assert "is needed by managed ledger public/default/persistent/shown" in refused.stderr
    known = json.loads(anabranch("describe", cluster.url, ledger, "--output", "json").stdout)
    assert (known["state"], known["entries"], known["digest"]) == ("closed", 11, "crc32c")
    assert (known["ensemble"], known["write"], known["ack"]) == (3, 3, 2)
    assert known["custom_metadata"]["pulsar/managed-ledger"] == "public/default/persistent/shown"
    assert len(known["ensembles"][0]["bookies"]) == 3
    lines = anabranch("read", cluster.url, ledger, "--first", "9", "--format", "raw").stdout_bytes
    assert b"message 9" in lines
    assert b"message 10" in lines
    checked = anabranch("verify", cluster.url, "--ledger", ledger, "--output", "json")
    assert checked.exit_code == 0, checked.output
    found = json.loads(checked.stdout)
    assert (found["ledgers"], found["entries"], found["damage"]) == (1, 11, [])
    assert found["copies"] + found["lacking"] == 33
    assert found["copies"] >= 22
    # The ids of Java clients and ours come from one generator; this one tidies up after itself.
    said = cluster.bookies.shell(
        "simpletest", "-ensemble", "1", "-writeQuorum", "1", "-ackQuorum", "1", "-numEntries", "5"
    )
    named = re.search(r"[Ll]edger ?(?:ID|Id|id)[^0-9]*([0-9]+)", said)
    assert named is not None, said[-2000:]
    foreign = named[1]
    assert int(foreign) > max(rows)
    assert f"there is no ledger {foreign}" in anabranch("describe", cluster.url, foreign).stderr
    for words in (("--force", "--dry-run"), ("--force",)):
        assert anabranch("describe", cluster.url, ledger).exit_code == 0
        assert anabranch("delete", cluster.url, ledger, *words).exit_code == 0
    gone = anabranch("describe", cluster.url, ledger)
    assert gone.exit_code == 2
    assert f"there is no ledger {ledger}" in gone.stderr


def test_a_killed_bookie_stops_no_append(cluster: Cluster, tmp_path: Path) -> None:
    sent = Sent()
    with (
        anabranch_standalone(folder=tmp_path / "server", options=cluster.options) as server,
        pulsar_client(server.service_url) as client,
    ):
        consumer = client.subscribe("sustained", "s")
        producer = client.create_producer(
            "sustained", send_timeout_millis=30_000, max_pending_messages=200,
            block_if_queue_full=True,
        )  # fmt: skip
        victim = cluster.bookies.members[0]
        began = time.monotonic()
        killed = 0.0
        number = 0
        while (now := time.monotonic()) < began + 7:
            if not killed and now > began + 2:
                victim.kill()
                killed = time.monotonic()
            producer.send_async(
                b"%d" % number, lambda result, _id, number=number: sent.note(number, result)
            )
            number += 1
            time.sleep(0.002)
        producer.flush()
        assert sent.errors == []
        assert sent.acknowledged == list(range(number))
        around = [moment for moment in sent.moments if moment >= killed - 0.5]
        pause_s = max(later - earlier for earlier, later in itertools.pairwise(around))
        print(f"{number} messages, longest pause {pause_s * 1000:.0f} ms")
        assert pause_s <= PAUSE_S_MAX
        assert around[-1] > killed + 3, "it went on after the kill"
        assert received(consumer, number) == list(range(number))
        victim.start()
