"""A server whose catalog names more storage clusters than its settings."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from anabranch.errors import ConfigError, FormatError
from anabranch.ledgers.catalog import StorageCatalog, StorageCluster
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.managed_ledger import ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.retention import Retention
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import TIE_FILE
from anabranch.server.settings import Settings
from anabranch.server.stores import Stores, open_stores
from anabranch.testing.topic_logs import append, payloads

NAME = "t/ns/persistent/topic"
CONFIG = ManagedLedgerConfig(retention=Retention(-1, -1))


@asynccontextmanager
async def started(data: Path) -> AsyncIterator[tuple[Stores, ManagedLedgers]]:
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        stores = await open_stores(runtime, Settings(data=str(data)), held)
        topics = ManagedLedgers(
            metadata=stores.metadata, ledgers=stores.ledgers, runtime=runtime, config=CONFIG
        )
        held.push_async_callback(topics.close)
        yield stores, topics


async def switch(stores: Stores, name: str, url: str) -> None:
    ids = LedgerIds(stores.metadata, real_runtime())
    catalog = await StorageCatalog.open(stores.metadata, ids, "embedded:")
    await catalog.add(name, StorageCluster(url))
    await catalog.activate(name)


async def test_it_opens_them_and_lets_them_go_again(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    async with started(data) as (stores, topics):
        await append(await topics.open(NAME), b"old")
        await switch(stores, "new", f"embedded:{elsewhere}")
    assert not elsewhere.exists(), "opened when it is needed"
    for number in range(2):
        async with started(data) as (stores, topics):
            topic = await topics.open(NAME)
            await append(topic, b"new %d" % number)
            assert stores.ledgers.failure is None
    assert (elsewhere / "ledgers" / TIE_FILE).exists(), "it belongs to the same cluster"
    async with started(data) as (_, topics):
        assert await payloads(await topics.open(NAME)) == [b"old", b"new 0", b"new 1"]


async def test_a_folder_of_others_is_refused_and_left(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.tex").touch()
    async with started(data) as (stores, topics):
        await append(await topics.open(NAME), b"old")
        await switch(stores, "new", f"embedded:{elsewhere}")
    for _ in range(2):
        async with started(data) as (_, topics):
            with pytest.raises(FormatError, match=r"thesis\.tex"):
                await topics.open(NAME)
    assert [file.name for file in elsewhere.iterdir()] == ["thesis.tex"]


async def test_a_store_that_the_catalog_does_not_know_is_not_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with started(data):
        pass
    runtime = real_runtime()
    settings = Settings(data=str(data), ledgers_url="bookkeeper:zk:nowhere:2181")
    async with AsyncExitStack() as held:
        with pytest.raises(ConfigError, match=r"'embedded:' \(main\), and not in 'bookkeeper:zk"):
            await open_stores(runtime, settings, held)
