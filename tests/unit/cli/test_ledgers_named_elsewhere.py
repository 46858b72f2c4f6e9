"""Ledgers on bookies that are named in another metadata store than the bookies register in.

Nothing is taken for unused, or removed, before it is certain that the right metadata were asked.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anabranch.cli.main import app
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.features import FEATURES_PATH, encode_features
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.server.cluster_tie import tie_bookies
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.bookies.loopback import LoopbackBookie

ORPHAN = 700
CHAINS = "/managed-ledgers/public/default/persistent"
ONE_BOOKIE = BookKeeperSettings(ensemble_size=1, write_quorum=1, ack_quorum=1)


@dataclass
class Bench:
    """A topic in one store, the bookie with its ledger in another, and a third that knows nothing.

    The bookie also has a ledger that nothing names.
    """

    urls: dict[str, str]
    stores: dict[str, MetadataStore]
    needed: int

    async def tie(self) -> None:
        """What a server does when it starts."""
        await tie_bookies(self.stores["topics"], self.stores["bookies"], "/ledgers", "mine")

    async def ledgers(self, name: str, *rest: str, metadata: str = "") -> Result:
        words = ["ledgers", name, f"bookkeeper:{self.urls['bookies']}", *rest]
        if metadata:
            words += ["--metadata", self.urls[metadata]]
        return await asyncio.to_thread(CliRunner().invoke, app, words)

    async def name(self, metadata: str, topic: str, ledger_id: int) -> None:
        """Have a topic in one of the stores name a ledger of that id."""
        info = pb.ManagedLedgerInfo()
        info.ledgerInfo.add(ledgerId=ledger_id)
        await self.stores[metadata].put(f"{CHAINS}/{topic}", info.SerializeToString())

    async def listed(self) -> list[int]:
        shown = await self.ledgers("ls", "--output", "json")
        return [row["ledger"] for row in json.loads(shown.stdout)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    runtime = real_runtime()
    async with AsyncExitStack() as held:
        urls, stores = {}, {}
        for name in ("topics", "bookies", "others"):
            settings = Settings(data=str(tmp_path / name), metadata_port=0)
            service = MetadataService(runtime, settings)
            await service.start()
            held.push_async_callback(service.close)
            urls[name] = service.url
            stores[name] = await ServedStore.open(runtime, service.url)
            held.push_async_callback(stores[name].close)
        bookie = LoopbackBookie(runtime, stores["bookies"])
        await bookie.start()
        held.push_async_callback(bookie.stop)
        store = await BookKeeperLedgerStore.open_cluster(runtime, stores["bookies"], ONE_BOOKIE)
        held.push_async_callback(store.close)
        topics = ManagedLedgers(metadata=stores["topics"], ledgers=store, runtime=runtime)
        await topics.open("public/default/persistent/orders")
        await topics.close()
        custom = {"component": b"managed-ledger"}
        await (await store.create(ORPHAN, custom_metadata=custom)).close()
        (needed,) = [known async for known in store.list() if known != ORPHAN]
        yield Bench(urls, stores, needed)


async def test_without_the_metadata_of_the_topics_nothing_is_called_unused(bench: Bench) -> None:
    await bench.tie()
    for metadata in ("", "others"):
        for words in (("ls", "--orphans"), ("delete", str(bench.needed), "--dry-run")):
            refused = await bench.ledgers(*words, metadata=metadata)
            assert refused.exit_code == 2
            assert "belong to cluster mine" in refused.stderr
            assert "--metadata" in refused.stderr
    assert (await bench.ledgers("delete", str(bench.needed))).exit_code == 2
    assert await bench.listed() == sorted([bench.needed, ORPHAN])


async def test_with_them_only_what_nothing_names_is_unused(bench: Bench) -> None:
    await bench.tie()
    shown = await bench.ledgers("ls", "--orphans", "--output", "json", metadata="topics")
    assert [row["ledger"] for row in json.loads(shown.stdout)] == [ORPHAN]
    refused = await bench.ledgers("delete", str(bench.needed), metadata="topics")
    assert (refused.exit_code, "is needed by managed ledger" in refused.stderr) == (2, True)
    assert (await bench.ledgers("delete", str(ORPHAN), metadata="topics")).exit_code == 0
    assert await bench.listed() == [bench.needed]
    assert (await bench.ledgers("delete", str(bench.needed), "--force")).exit_code == 0


@pytest.mark.goal("core.U1", part="features", broken_by="features_are_not_asked_for")
@pytest.mark.parametrize("store", ["topics", "bookies"])
async def test_metadata_for_features_that_are_not_known_here_are_refused(
    bench: Bench, store: str
) -> None:
    """What names ledgers may be elsewhere in them."""
    await bench.tie()
    levels = {"metadata-layout": 1, "ledger-layout": 2}
    await bench.stores[store].put(FEATURES_PATH, encode_features(levels))
    for words in (("ls", "--orphans"), ("delete", str(ORPHAN)), ("delete", str(ORPHAN), "--force")):
        refused = await bench.ledgers(*words, metadata="topics")
        assert refused.exit_code == 2
        assert "ledger-layout is at 2, this build knows 1 to 1" in refused.stderr
    assert await bench.listed() == sorted([bench.needed, ORPHAN])


async def test_metadata_of_another_cluster_are_refused(bench: Bench) -> None:
    await bench.tie()
    await tie_bookies(bench.stores["others"], bench.stores["others"], "/ledgers", "theirs")
    refused = await bench.ledgers("ls", "--orphans", metadata="others")
    assert refused.exit_code == 2
    assert "belong to cluster mine, and these metadata to cluster theirs" in refused.stderr


async def test_bookies_of_nobody_known_need_metadata_that_name_a_ledger_of_theirs(
    bench: Bench,
) -> None:
    for metadata in ("", "bookies", "others"):
        for words in (("ls", "--orphans"), ("delete", str(bench.needed))):
            refused = await bench.ledgers(*words, metadata=metadata)
            assert refused.exit_code == 2
            assert "names no ledger of these bookies" in refused.stderr
    shown = await bench.ledgers("ls", "--orphans", "--output", "json", metadata="topics")
    assert [row["ledger"] for row in json.loads(shown.stdout)] == [ORPHAN]


async def test_another_cluster_with_a_topic_and_a_ledger_of_the_same_name_removes_nothing(
    bench: Bench,
) -> None:
    # As far as names and ids go, "others" is where the ledgers of these bookies are named.
    await bench.name("others", "orders", bench.needed)
    for metadata in ("others", "topics"):
        shown = await bench.ledgers("ls", "--orphans", metadata=metadata)
        assert shown.exit_code == 0
        assert "another cluster can have the same" in shown.stderr
        for words in (("delete", str(ORPHAN)), ("delete", str(ORPHAN), "--dry-run")):
            refused = await bench.ledgers(*words, metadata=metadata)
            assert refused.exit_code == 2
            assert "another cluster can have the same" in refused.stderr
            assert "--force" in refused.stderr
    assert await bench.listed() == sorted([bench.needed, ORPHAN])
    assert (await bench.ledgers("delete", str(ORPHAN), "--force")).exit_code == 0
    assert await bench.listed() == [bench.needed]


@pytest.mark.parametrize("is_made_for_another", [True, False])
async def test_a_ledger_of_another_cluster_with_the_same_id_says_nothing(
    bench: Bench, is_made_for_another: bool
) -> None:
    coinciding = bench.needed if is_made_for_another else ORPHAN
    await bench.name("others", "theirs", coinciding)
    for known in (bench.needed, ORPHAN):
        for words in (("ls", "--orphans"), ("delete", str(known))):
            refused = await bench.ledgers(*words, metadata="others")
            assert refused.exit_code == 2
            assert "names no ledger of these bookies" in refused.stderr
    assert await bench.listed() == sorted([bench.needed, ORPHAN])


async def test_metadata_that_name_one_ledger_of_another_maker_are_not_believed(
    bench: Bench,
) -> None:
    await bench.name("others", "orders", bench.needed)
    await bench.name("others", "theirs", bench.needed)
    for words in (("ls", "--orphans"), ("delete", str(ORPHAN))):
        refused = await bench.ledgers(*words, metadata="others")
        assert refused.exit_code == 2
        assert f"ledger {bench.needed} of these bookies was made for" in refused.stderr
    assert await bench.listed() == sorted([bench.needed, ORPHAN])


async def test_what_the_store_of_bookies_of_nobody_known_names_is_needed(bench: Bench) -> None:
    await bench.name("bookies", "old", ORPHAN)
    shown = await bench.ledgers("ls", "--orphans", "--output", "json", metadata="topics")
    assert json.loads(shown.stdout) == []
    refused = await bench.ledgers("delete", str(ORPHAN), metadata="topics")
    assert (refused.exit_code, "is needed by managed ledger" in refused.stderr) == (2, True)
    assert await bench.listed() == sorted([bench.needed, ORPHAN])
