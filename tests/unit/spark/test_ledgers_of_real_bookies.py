"""Ledgers on real bookies and in real metadata stores: read by tasks, and taken stock of."""

import asyncio
import contextlib

import pytest
from test_direct_reads import noted_spans
from test_ledger_inventory import put_all, stock, took_stock

from anabranch.ledgers.factory import open_ledgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.ledgers import append
from anabranch.testing.oxia_wiping import wipe
from anabranch.testing.servers import (
    anabranch_standalone,
    bookkeeper,
    free_port,
    set_up_cluster,
    zookeeper,
)
from anabranch.testing.servers.oxia import oxia
from pyspark_anabranch.jobs.contract import Outcome

pytestmark = [
    pytest.mark.peer,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]
ONE = "bookkeeper:?ensemble=1&write=1&ack=1"
ORPHANS = range(900_001, 900_004)


@pytest.fixture(scope="module")
def ensemble():
    with zookeeper() as found:
        yield found.url


@pytest.fixture(scope="module")
def topics(ensemble, topics_on):
    """A server whose ledgers are on a bookie."""
    with contextlib.ExitStack() as held:
        set_up_cluster(ensemble, port=free_port(), web_port=free_port())
        held.enter_context(bookkeeper(ensemble, 1))
        options = ("--cluster", "test", "--metadata-url", ensemble, "--ledgers-url", ONE)
        yield topics_on(held.enter_context(anabranch_standalone(options=options)))


@pytest.mark.goal("spark.C23", part="ledgers")
@pytest.mark.goal("spark.C28", part="ledgers")
def test_sealed_ledgers_on_bookies_give_the_rows_of_the_broker(topics, ensemble, monkeypatch):
    for number in range(3):
        topics.fill("direct", [b"%d-%03d" % (number, each) for each in range(200)])
        if number < 2:
            topics.roll("direct")
    rows = topics.rows(topic="direct")
    asked = noted_spans(monkeypatch)
    where = f"bookkeeper:{ensemble}"
    assert topics.rows(topic="direct", ledgersUrl=where, maxEntriesPerTask="17") == rows
    ledgers = sorted({row["position"]["ledger"] for row in rows})
    assert len(ledgers) == 3
    assert {span.ledger_id for span in asked} == {ledgers[-1]}
    topics.fill("direct", [b"nobody was fenced"])


@pytest.mark.goal("spark.B6", part="zookeeper")
def test_orphans_on_bookies_are_found_among_the_ledgers_of_a_server(spark, topics, ensemble):
    topics.fill("kept", [b"%03d" % each for each in range(50)])
    asyncio.run(make_orphans(ensemble))
    verdict = took_stock(spark, ensemble, age_s_min=0)
    assert verdict.outcome is Outcome.FOUND
    assert [each["ledger"] for each in verdict.result["orphans"]] == [*ORPHANS]
    assert {each["entries"] for each in verdict.result["orphans"]} == {3}
    assert verdict.result["missing"] == verdict.result["unreadable"] == []
    names = [each["topic"] for each in verdict.result["topics"]]
    assert "public/default/persistent/kept" in names
    assert took_stock(spark, ensemble).result["orphans"] == [], "they are too young"


async def make_orphans(ensemble):
    """What a server leaves behind that is killed before it names its ledgers."""
    metadata = await open_store(ensemble, real_runtime())
    store = await open_ledgers(ONE, real_runtime(), metadata=metadata)
    noted = {
        "component": b"managed-ledger",
        "pulsar/managed-ledger": b"public/default/persistent/gone",
    }
    for ledger_id in ORPHANS:
        writer = await store.create(ledger_id, custom_metadata=noted)
        await append(writer, b"1", b"2", b"3")
        await writer.close()
    await store.close()
    await metadata.close()


def check_stock(spark, url):
    nodes, orphans = stock(150, 150)
    asyncio.run(put_all(url, nodes))
    verdict = took_stock(spark, url)
    assert [each["ledger"] for each in verdict.result["orphans"]] == orphans
    assert verdict.result["counts"]["young"] == 50
    assert verdict.result["missing"] == []


@pytest.mark.goal("spark.B6", part="zookeeper")
def test_orphans_and_traps_in_zookeeper(spark, ensemble):
    check_stock(spark, f"{ensemble}/stock")


@pytest.mark.goal("spark.B6", part="oxia")
def test_orphans_and_traps_in_oxia(spark):
    with oxia(2) as servers:
        asyncio.run(wipe(servers))
        check_stock(spark, servers.url)
