"""How much memory an open managed ledger takes: 100,000 of them must fit 4 GiB."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.ids import Position
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.limits import KIB, MIB
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.loopback_cluster import LoopbackCluster

COUNT = 300
EACH_BYTES_MAX = 4096 * MIB // 100_000
"""What remains for each of 100,000 in 4 GiB."""
MEASURED_SHARE = 2
"""Allocators keep about as much again as what is asked of them, in the worst case."""


@pytest.fixture
async def topics(tmp_path: Path) -> AsyncIterator[ManagedLedgers]:
    runtime = real_runtime()
    metadata = await open_store(f"embedded:{tmp_path}/metadata", runtime)
    ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{tmp_path}/ledgers")
    topics = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime)
    yield topics
    await topics.close()
    await ledgers.close()
    await metadata.close()


async def open_some(topics: ManagedLedgers, first: int, count: int) -> None:
    """Open managed ledgers with a cursor and an entry each."""
    for number in range(first, first + count):
        ledger = await topics.open(f"t/ns/persistent/open-{number}")
        await ledger.open_cursor("waiting", initial="earliest")
        durable: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

        def done(
            position: Position | None,
            error: Exception | None,
            durable: "asyncio.Future[Position]" = durable,
        ) -> None:
            assert position is not None, error
            durable.set_result(position)

        ledger.append(bytes(100), done)
        await durable


async def memory_of_one(topics: ManagedLedgers) -> float:
    """How many bytes each of many open ones takes."""
    await open_some(topics, 0, 20)
    gc.collect()
    tracemalloc.start()
    try:
        await open_some(topics, 20, COUNT)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / COUNT
    finally:
        tracemalloc.stop()


@pytest.mark.goal("core.L11", part="memory of one", broken_by="every_ledger_reserves_a_buffer")
async def test_open_managed_ledger_takes_little_memory(topics: ManagedLedgers) -> None:
    each = await memory_of_one(topics)
    assert each < EACH_BYTES_MAX / MEASURED_SHARE, f"{each / KIB:.1f} KiB each"
    assert each > KIB, "or nothing was measured"


@pytest.mark.goal(
    "core.L11", part="memory of one on bookies", broken_by="every_ledger_reserves_a_buffer"
)
async def test_open_managed_ledger_on_bookies_takes_little_memory() -> None:
    cluster = LoopbackCluster()
    await cluster.more_bookies(3)
    # What the model bookies and their metadata keep is counted too.
    topics = ManagedLedgers(
        metadata=cluster.metadata,
        ledgers=await cluster.store(BookKeeperSettings()),
        runtime=cluster.runtime,
    )
    each = await memory_of_one(topics)
    await topics.close()
    await cluster.end()
    assert each < EACH_BYTES_MAX / MEASURED_SHARE, f"{each / KIB:.1f} KiB each"
    assert each > KIB, "or nothing was measured"
