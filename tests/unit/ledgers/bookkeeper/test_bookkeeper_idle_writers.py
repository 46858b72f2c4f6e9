"""Writers that append nothing while a bookie is lost, with model bookies behind real sockets."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.store import MetadataStore
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster, until
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.unanswered import Lose, UnansweredStore

WATCHFUL = replace(SETTINGS, leave_gone_s=0.05)


@pytest.fixture
async def bench() -> AsyncIterator[LoopbackCluster]:
    bench = LoopbackCluster()
    await bench.more_bookies(3)
    yield bench
    await bench.end()


async def writers_of(store: BookKeeperLedgerStore, count: int) -> list[BookKeeperWriter]:
    writers = [await store.create(number) for number in range(1, count + 1)]
    for writer in writers:
        await append(writer, b"kept")
    return writers


@pytest.mark.goal("core.L3", part="idle writers", broken_by="idle_ledgers_keep_lost_bookies")
async def test_ledgers_without_appends_leave_a_bookie_that_is_gone(
    bench: LoopbackCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BOOKKEEPER_LEAVING_MAX", 3)
    store = await bench.store(WATCHFUL)
    writers = await writers_of(store, 20)
    await bench.more_bookies(1)
    lost = await bench.bookie_of(1, 1)
    await lost.stop()
    for writer in writers:
        await bench.until_without(writer.ledger_id, lost)
    for writer in writers:
        segments = (await bench.ledger(writer.ledger_id)).segments
        assert [segment.first_entry_id for segment in segments] == [0, 1]
        await append(writer, b"later")
        assert await writer.close() == 1
    reader = await (await bench.store()).open(1)
    assert await payloads_of(reader) == [b"kept", b"later"]


async def test_a_bookie_that_comes_back_in_time_keeps_its_place(bench: LoopbackCluster) -> None:
    store = await bench.store(replace(SETTINGS, leave_gone_s=0.3))
    await writers_of(store, 1)
    await bench.more_bookies(1)
    lost = await bench.bookie_of(1, 1)
    await lost.stop()
    await asyncio.sleep(0.1)
    await lost.start()
    await asyncio.sleep(0.5)
    assert lost.bookie_id in (await bench.ledger(1)).segments[-1].bookies


async def test_a_bookie_that_nobody_can_replace_is_left_once_somebody_can(
    bench: LoopbackCluster,
) -> None:
    store = await bench.store(WATCHFUL)
    (writer,) = await writers_of(store, 1)
    lost = await bench.bookie_of(1, 2)
    await lost.stop()
    await asyncio.sleep(0.3)
    assert store.degraded is None, "nothing was tried"
    assert lost.bookie_id in (await bench.ledger(1)).segments[-1].bookies
    await bench.more_bookies(1)
    await bench.until_without(1, lost)
    await append(writer, b"later")
    assert await writer.close() == 1


async def test_registrations_that_all_vanish_change_nothing(bench: LoopbackCluster) -> None:
    """As when the metadata store was away for longer than sessions last."""
    store = await bench.store(WATCHFUL)
    (writer,) = await writers_of(store, 1)
    before = await bench.ledger(1)
    for bookie in bench.bookies.values():
        await bookie.leave()
    await asyncio.sleep(0.3)
    await append(writer, b"later")
    assert await bench.ledger(1) == before


async def test_an_idle_ledger_outlasts_a_metadata_store_that_is_away(
    bench: LoopbackCluster,
) -> None:
    """Nobody waits for the change, so there is no time after which it has failed."""
    metadata = UnansweredStore(bench.metadata)
    settings = replace(WATCHFUL, quorum_wait_s=0.2)
    store = await BookKeeperLedgerStore.open_cluster(
        bench.runtime, cast("MetadataStore", metadata), settings
    )
    (writer,) = await writers_of(store, 1)
    await bench.more_bookies(1)
    lost = await bench.bookie_of(1, 0)
    metadata.lose("put", *[Lose.EVERYTHING] * 3)
    await lost.stop()
    await until(lambda: writer.core.changing)
    await asyncio.sleep(1.0)
    assert (writer.core.stopped, writer.core.changing) == (None, True)
    await bench.until_without(1, lost)
    await append(writer, b"later")
    assert await writer.close() == 1
    await store.close()


async def test_a_closed_ledger_is_left_alone(bench: LoopbackCluster) -> None:
    store = await bench.store(WATCHFUL)
    closed, _ = await writers_of(store, 2)
    await closed.close()
    before = await bench.ledger(1)
    await bench.more_bookies(1)
    lost = await bench.bookie_of(2, 1)
    await lost.stop()
    await bench.until_without(2, lost)
    assert await bench.ledger(1) == before
    with pytest.raises(AnabranchError):
        await append(closed, b"late")
