"""The job that takes stock of ledgers: finds every orphan, and falls into no trap."""

import asyncio
import json
from dataclasses import asdict

import pyarrow.parquet as pq
import pytest
from test_spark_bulk_engine import ServedStore

from anabranch.errors import ConflictError, FormatError, InputError
from anabranch.managed_ledger.references import KNOWN_MAKERS
from anabranch.metadata.announced import JOURNAL_MAGIC, Announced, journal_path, write_document
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_ledgers import chain_node, cursor_node, ledger_node
from pyspark_anabranch.jobs.contract import Outcome, run_job
from pyspark_anabranch.jobs.inventory import LedgerInventory
from pyspark_anabranch.jobs.inventory_rows import Inventory, Kind, LedgerRow, NameRow

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
TOPIC = "t/n/persistent/topic-{}"
HOUR_MS = 3_600_000
MAKERS = tuple(maker.decode() for maker in KNOWN_MAKERS)
KEY = "pulsar/managed-ledger"


def now_ms():
    return real_runtime().clock.wall_ms()


async def put_all(url, nodes, chunk=200):
    store = await open_store(url, real_runtime())
    try:
        for at in range(0, len(nodes), chunk):
            await asyncio.gather(*(store.put(*node) for node in nodes[at : at + chunk]))
    finally:
        await store.close()


def stock(orphans, traps):
    """Topics with their ledgers; orphans made for them; and what only looks like orphans.

    Traps are named by a cursor, or noted by a compaction, or young; the rest is in use.
    """
    old, young = now_ms() - 2 * HOUR_MS, now_ms() + HOUR_MS
    nodes = []
    for number in range(10):
        topic = TOPIC.format(number)
        ids = [number * 3 + 1, number * 3 + 2]
        nodes += [ledger_node(each, old, topic) for each in ids]
        nodes.append(chain_node(topic, ids))
    first = 1000
    found = list(range(first, first + orphans))
    for number, ledger_id in enumerate(found):
        # Of topics that are there, of topics that are gone, and of makers who said nothing.
        owner = ("", TOPIC.format(number % 10), "t/n/persistent/gone")[number % 3]
        nodes.append(ledger_node(ledger_id, old, owner, closed=number % 2 == 0))
    first += orphans
    for ledger_id in range(first, first + traps):
        topic = TOPIC.format(ledger_id % 10)
        kind = ledger_id % 3
        nodes.append(ledger_node(ledger_id, young if kind == 0 else old, topic))
        if kind == 1:
            nodes.append(cursor_node(f"{topic}/sub-{ledger_id}", ledger_id))
        if kind == 2:
            noted = {"CompactedTopicLedger": ledger_id}
            nodes.append(cursor_node(f"{topic}/compaction-{ledger_id}", -1, noted))
    return nodes, found


@pytest.fixture
def served():
    store = ServedStore()
    yield store
    store.close()


def took_stock(spark, url, **wishes):
    return run_job(LedgerInventory(f"bookkeeper:{url}", **wishes), spark)


def journal(phase):
    return write_document(JOURNAL_MAGIC, {"announced": asdict(Announced("a", 1, 1, phase))})


@pytest.mark.goal("spark.B6", part="orphans and traps", broken_by="inventory_knows_no_age")
def test_a_thousand_orphans_are_found_and_none_of_a_thousand_traps(spark, served, tmp_path):
    nodes, orphans = stock(1000, 1000)
    asyncio.run(put_all(served.url, nodes))
    verdict = took_stock(spark, served.url, table=tmp_path / "table")
    assert (verdict.outcome, verdict.exit_code) == (Outcome.FOUND, 1)
    assert [each["ledger"] for each in verdict.result["orphans"]] == orphans
    counts = verdict.result["counts"]
    assert counts["orphan"] == 1000
    assert counts["young"] + counts["used"] == 1000 + 20
    assert (counts["missing"], counts["not judged"], counts["unknown maker"]) == (0, 0, 0)
    assert all(each["proof"] and each["age_s"] >= 7200 for each in verdict.result["orphans"])
    table = pq.read_table(tmp_path / "table" / "ledgers.parquet").to_pylist()
    assert len(table) == 2020
    assert [row["ledger"] for row in table if row["kind"] == "orphan"] == orphans
    named = {row["ledger"]: row["named_by"] for row in table}
    assert named[1] == [f"managed ledger {TOPIC.format(0)}"]


@pytest.mark.goal("rel.A28", part="inventory", broken_by="inventory_ignores_migrations")
@pytest.mark.goal("spark.B6", part="orphans and traps", broken_by="inventory_ignores_migrations")
def test_nothing_is_an_orphan_while_the_metadata_are_being_moved(spark, served):
    nodes, orphans = stock(10, 0)
    path = journal_path("metadata")
    asyncio.run(put_all(served.url, [*nodes, (path, journal("copying"))]))
    verdict = took_stock(spark, served.url)
    assert (verdict.outcome, verdict.exit_code) == (Outcome.INCOMPLETE, 2)
    assert "is in the phase 'copying'" in verdict.result["doubt"]
    assert verdict.result["counts"]["not judged"] == len(orphans)
    assert verdict.result["orphans"] == []
    asyncio.run(put_all(served.url, [(path, journal("finalized"))]))
    assert took_stock(spark, served.url).outcome is Outcome.INCOMPLETE, "they were moved away"
    asyncio.run(put_all(served.url, [(path, journal("rolled back"))]))
    assert took_stock(spark, served.url).result["counts"]["orphan"] == len(orphans)
    flag = ("/pulsar/migration-coordinator/migration", b'{"phase": "COPYING"}')
    asyncio.run(put_all(served.url, [flag]))
    assert took_stock(spark, served.url).result["counts"]["orphan"] == 0


def test_sizes_are_summed_by_namespace_and_what_is_missed_is_named(spark, served):
    old = now_ms() - 2 * HOUR_MS
    nodes = [
        chain_node("t/n/persistent/a", [1, 2, 3], offloaded=3),
        chain_node("t/m/persistent/b", [4]),
        ledger_node(1, old, "t/n/persistent/a"),
        ledger_node(4, old, "t/m/persistent/b"),
        ("/ledgers/00/0000/L0009", b"no ledger metadata"),
        ledger_node(5, old, component="somebody"),
    ]
    asyncio.run(put_all(served.url, nodes))
    verdict = took_stock(spark, served.url)
    result = verdict.result
    assert verdict.outcome is Outcome.FOUND
    assert result["missing"] == [{"ledger": 2, "named_by": "managed ledger t/n/persistent/a"}]
    assert [each["ledger"] for each in result["unreadable"]] == [9]
    assert result["counts"]["unknown maker"] == 1
    one = {"ledgers": 1, "entries": 10, "bytes": 1000, "stored_bytes": 2000}
    assert result["namespaces"] == [{"namespace": "t/m", **one}, {"namespace": "t/n", **one}]
    assert result["topics"][0] == {"topic": "t/m/persistent/b", **one}
    assert result["whole"]["ledgers"] == 4


@pytest.mark.goal("spark.B16", part="resume", broken_by="job_state_is_never_read")
def test_a_run_that_was_ended_goes_on_behind_what_is_done(spark, served, tmp_path):
    nodes, orphans = stock(5, 0)
    spoiled = ("/managed-ledgers/t/n/persistent/spoiled", b"\xff\xff")
    asyncio.run(put_all(served.url, [*nodes, spoiled]))
    with pytest.raises(FormatError, match="managed ledger t/n/persistent/spoiled"):
        took_stock(spark, served.url, keep=tmp_path / "state")
    assert json.loads((tmp_path / "state" / "job.json").read_text())["job"] == "inventory"
    changed = ledger_node(orphans[-1], now_ms() - 2 * HOUR_MS, component="somebody")
    asyncio.run(put_all(served.url, [(spoiled[0], b""), changed]))
    with pytest.raises(ConflictError, match="which is another job"):
        took_stock(spark, f"{served.url}?root=/other", keep=tmp_path / "state")
    verdict = took_stock(spark, served.url, keep=tmp_path / "state")
    assert [each["ledger"] for each in verdict.result["orphans"]] == orphans, "listed before"
    assert not (tmp_path / "state").exists(), "it came to its end"
    again = took_stock(spark, served.url, keep=tmp_path / "state")
    assert again.result["counts"]["orphan"] == len(orphans) - 1


def test_bad_places_are_named(spark, tmp_path):
    for place in ("bookkeeper:", "zk:127.0.0.1:1"):
        with pytest.raises(InputError, match="does not say where bookies register"):
            run_job(LedgerInventory(place), spark)
    with pytest.raises(InputError, match="which the workers of Spark cannot share"):
        run_job(LedgerInventory("bookkeeper:embedded:folder"), spark)


def judged(ledgers, names, doubt=""):
    found = Inventory.of(ledgers, names)
    found.judge(1000, MAKERS, doubt or found.doubt())
    return {each.row.ledger_id: each.kind for each in found.judged}, found


def row(ledger_id, made_for="a", created_ms=0, maker="managed-ledger"):
    return LedgerRow(ledger_id, "closed", created_ms=created_ms, maker=maker, key=KEY,
                     made_for=made_for)  # fmt: skip


def name(ledger_id, owner="a", cluster=""):
    return NameRow(ledger_id, cluster, f"managed ledger {owner}", KEY, owner)


def test_metadata_of_other_ledgers_make_no_orphans():
    kinds, found = judged([row(1), row(2)], [name(1)])
    assert kinds == {1: Kind.USED, 2: Kind.ORPHAN}
    kinds, found = judged([row(1, "b"), row(2)], [name(1)])
    assert kinds[2] is Kind.NOT_JUDGED
    assert "ledger 1 was made for b, and managed ledger a names one" in found.doubt()
    kinds, found = judged([row(1), row(2)], [name(7)])
    assert set(kinds.values()) == {Kind.NOT_JUDGED}
    assert "no ledger was made for what names it" in found.doubt()


def test_a_ledger_of_another_storage_cluster_is_neither_missed_nor_free():
    kinds, found = judged([row(1), row(2)], [name(1), name(2, cluster="new"), name(3, "a", "new")])
    assert kinds == {1: Kind.USED, 2: Kind.USED}
    assert found.missing == []
