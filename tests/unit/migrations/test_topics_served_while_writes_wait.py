"""A server publishes and delivers while the writes of its metadata wait, and bookies fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Client
from anabranch.managed_ledger import ManagedLedgerConfig
from anabranch.metadata.served.client import ServedStore
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.held_server import HeldServer
from anabranch.testing.staged_replacement import LONG_S, let_others_run

TOPIC = "persistent://public/default/t"
ROLLS_AFTER = 20
BEFORE, IN_THE_OPEN_LEDGER, ALL = 5, 12, 3 * ROLLS_AFTER


class Bench:
    """A server on bookies of this process."""

    def __init__(self, folder: Path, held: AsyncExitStack) -> None:
        self.held = HeldServer(folder, held)
        self.bookies: list[LoopbackBookie] = []
        self._stack = held

    async def start(self) -> None:
        runtime = self.held.runtime
        registry = await self.held.service("registry")
        store = await ServedStore.open(runtime, registry)
        self._stack.push_async_callback(store.close)
        for _ in range(3):
            bookie = LoopbackBookie(runtime, store)
            await bookie.start()
            self.bookies.append(bookie)
            self._stack.push_async_callback(bookie.stop)
        await self.held.start(registry)

    async def lose_a_bookie(self) -> None:
        """One that is written to."""
        used = next(bookie for bookie in self.bookies if bookie.shelves.ledgers)
        await used.stop()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    plain = ReplaceableMetadata.open

    async def patient(*given: Any, **more: Any) -> ReplaceableMetadata:
        return await plain(*given, table=TABLE.holding_for(LONG_S), **more)

    monkeypatch.setattr(ReplaceableMetadata, "open", patient)
    monkeypatch.setattr(
        "anabranch.server.assembly.managed_ledger_config",
        lambda _settings: ManagedLedgerConfig(ledger_entries_max=ROLLS_AFTER),
    )
    async with AsyncExitStack() as held:
        bench = Bench(tmp_path, held)
        await bench.start()
        yield bench
        bench.held.hold.end()


@pytest.mark.timeout(180)
@pytest.mark.goal("454.A35", part="brokers", broken_by="held_writes_are_refused")
async def test_a_topic_goes_on_and_a_new_ledger_waits(bench: Bench) -> None:
    server = bench.held.server
    async with Client(server.service_url) as client:
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        for number in range(BEFORE):
            await producer.send(b"%d" % number)
        (topic,) = server.broker.topics.all()
        await bench.held.reach("freezing")
        async with asyncio.timeout(LONG_S):
            for number in range(BEFORE, IN_THE_OPEN_LEDGER - 2):
                await producer.send(b"%d" % number)
            await bench.lose_a_bookie()
            for number in range(IN_THE_OPEN_LEDGER - 2, IN_THE_OPEN_LEDGER):
                await producer.send(b"%d" % number)
            found = [(await consumer.receive()).value for _ in range(IN_THE_OPEN_LEDGER)]
        rest = [
            asyncio.ensure_future(producer.send(b"%d" % number))
            for number in range(IN_THE_OPEN_LEDGER, ALL)
        ]
        await let_others_run()
        assert not rest[-1].done(), "its ledger cannot be made yet"
        bench.held.hold.end()
        await bench.held.until_switched()
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(*rest)
            found += [(await consumer.receive()).value for _ in range(IN_THE_OPEN_LEDGER, ALL)]
        assert found == [b"%d" % number for number in range(ALL)]
        assert server.broker.topics.all() == [topic], "nobody had to open it again"
        assert server.why_not_ready() is None
