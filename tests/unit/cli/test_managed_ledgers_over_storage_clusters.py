"""`anabranch managed-ledger` on topics whose ledgers lie in several storage clusters."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.ids import Position
from anabranch.journal import Pressure
from anabranch.ledgers.catalog import PATH, StorageCatalog, StorageCluster
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.ledgers.store import LedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import tie
from anabranch.server.data_folder import claim

ORDERS = "public/default/persistent/orders"


async def append(ledger: ManagedLedger, payload: bytes) -> None:
    durable: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        assert position is not None, error
        durable.set_result(position)

    ledger.append(payload, done)
    await durable


async def serve(data: Path, elsewhere: Path) -> None:
    """Three messages in the data folder; three more, and a cursor's state, elsewhere."""
    runtime = real_runtime()
    (await claim(runtime, str(data))).lock.release()
    async with AsyncExitStack() as held:
        metadata = await open_store(f"embedded:{data}/metadata", runtime)
        held.push_async_callback(metadata.close)
        await tie(runtime.disk, f"{data}/ledgers", metadata, "here")
        stores = {}
        for folder in (data, elsewhere):
            store = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{folder}/ledgers")
            held.push_async_callback(store.close)
            stores[folder] = store
        ids = LedgerIds(metadata, runtime)

        async def open_other(_url: str, _pressure: Pressure, _held: AsyncExitStack) -> LedgerStore:
            return stores[elsewhere]

        for cluster in ("main", "other"):
            catalog = await StorageCatalog.open(metadata, ids, "embedded:")
            if cluster not in catalog.document.clusters:
                await catalog.add(cluster, StorageCluster(f"embedded:{elsewhere}"))
            await catalog.activate(cluster)
            clusters = StorageClusters(
                ids, {"main": stores[data]}, catalog=catalog, open_store=open_other
            )
            topics = ManagedLedgers(metadata=metadata, ledgers=clusters, runtime=runtime)
            orders = await topics.open(ORDERS)
            cursor = await orders.open_cursor("s", initial="earliest")
            for number in range(3):
                await append(orders, b"%d" % number)
            cursor.acknowledge_batch(orders.first_position(), [0b10])
            await topics.close()
            await clusters.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
    asyncio.run(serve(tmp_path / "data", tmp_path / "elsewhere"))
    return tmp_path / "data"


def anabranch(*words: str) -> Result:
    return CliRunner().invoke(app, ["managed-ledger", *words, "--output", "json"])


def as_json(*words: str) -> Any:
    result = anabranch(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.goal("core.L6", part="shown over clusters", broken_by="catalog_is_not_followed")
def test_ledgers_of_other_clusters_are_found_by_the_catalog(data: Path) -> None:
    for places in (
        ("--data", str(data)),
        ("--metadata", f"embedded:{data}/metadata", "--ledgers", f"embedded:{data}/ledgers"),
    ):
        found = as_json("show", "orders", *places)
        assert [row["cluster"] for row in found["ledgers"]] == [None, "other"]
        assert found["entries"] == 6
        (cursor,) = as_json("cursors", "orders", *places)
        assert (cursor["problem"], cursor["pending"]) == (None, 6)
        assert list(cursor["batches"].values()) == [[0b10]]
        checked = as_json("verify", *places)
        assert (checked["entries"], checked["ledgers"], checked["findings"]) == (6, 2, [])


def test_clusters_that_cannot_be_found_are_named(data: Path) -> None:
    url = f"embedded:{data}/metadata"
    refused = anabranch("show", "orders", "--metadata", url, "--ledgers", "bookkeeper:zk:h:1")
    assert refused.exit_code == 2
    assert "is none of the storage clusters: the catalog names main at 'embedded:'" in (
        refused.stderr
    )
    elsewhere = f"embedded:{data.parent}/elsewhere/ledgers"
    refused = anabranch("show", "orders", "--metadata", url, "--ledgers", elsewhere)
    assert refused.exit_code == 2
    assert "some ledgers are in the data folder of the server" in refused.stderr

    async def forget() -> None:
        store = await open_store(url, real_runtime())
        await store.delete(PATH)
        await store.close()

    asyncio.run(forget())
    refused = anabranch("show", "orders", "--data", str(data))
    assert refused.exit_code == 2
    assert "is in storage cluster other, and there is no catalog" in refused.stderr
