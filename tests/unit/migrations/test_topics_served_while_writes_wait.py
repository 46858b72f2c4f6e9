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
from anabranch.runtime.real import real_runtime
from anabranch.server.assembly import Standalone
from anabranch.server.metadata_service import MetadataService
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.server.settings import Settings
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.staged_replacement import LONG_S, Hold, let_others_run

TOPIC = "persistent://public/default/t"
ROLLS_AFTER = 20
BEFORE, IN_THE_OPEN_LEDGER, ALL = 5, 12, 3 * ROLLS_AFTER


class Bench:
    """A server on bookies, whose metadata store another one can replace."""

    def __init__(self, folder: Path, held: AsyncExitStack) -> None:
        self.runtime = real_runtime()
        self.bookies: list[LoopbackBookie] = []
        self.hold = Hold()
        self.server: Standalone
        self.target = ""
        self._folder = folder
        self._held = held

    async def _service(self, name: str) -> str:
        settings = Settings(data=str(self._folder / name), metadata_port=0)
        service = MetadataService(self.runtime, settings)
        await service.start()
        self._held.push_async_callback(service.close)
        return service.url

    async def start(self) -> None:
        source, self.target, registry = [await self._service(name) for name in "abc"]
        store = await ServedStore.open(self.runtime, registry)
        self._held.push_async_callback(store.close)
        for _ in range(3):
            bookie = LoopbackBookie(self.runtime, store)
            await bookie.start()
            self.bookies.append(bookie)
            self._held.push_async_callback(bookie.stop)
        settings = Settings(
            port=0,
            web_port=0,
            data=str(self._folder / "unused"),
            metadata_url=source,
            metadata_migration_targets=self.target,
            ledgers_url=f"bookkeeper:{registry}?ensemble=2&write=2&ack=2",
        )
        self.server = Standalone(self.runtime, settings)
        await self.server.start()
        self._held.push_async_callback(self.server.close)
        replaceable = self.server._stores.replaceable
        assert replaceable is not None
        self.hold.take(replaceable.steps)

    async def until_switched(self) -> None:
        operation = self.server.metadata_migration
        assert operation is not None
        async with asyncio.timeout(LONG_S):
            while True:
                state = (await operation.status()).state
                assert state is not None
                assert not state.error, state.error
                if state.phase == "switched":
                    return
                await asyncio.sleep(0.02)

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
        bench.hold.end()


@pytest.mark.timeout(180)
@pytest.mark.goal("454.A35", part="brokers", broken_by="held_writes_are_refused")
async def test_a_topic_goes_on_and_a_new_ledger_waits(bench: Bench) -> None:
    server = bench.server
    async with Client(server.service_url) as client:
        producer = await client.producer(TOPIC, batching=None)
        consumer = await client.consumer(TOPIC, "s", initial_position="earliest")
        for number in range(BEFORE):
            await producer.send(b"%d" % number)
        (topic,) = server.broker.topics.all()
        operation = server.metadata_migration
        assert operation is not None
        bench.hold.begin("freezing")
        await operation.start({"target": bench.target}, "somebody")
        await bench.hold.reached()
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
        bench.hold.end()
        await bench.until_switched()
        async with asyncio.timeout(LONG_S):
            await asyncio.gather(*rest)
            found += [(await consumer.receive()).value for _ in range(IN_THE_OPEN_LEDGER, ALL)]
        assert found == [b"%d" % number for number in range(ALL)]
        assert server.broker.topics.all() == [topic], "nobody had to open it again"
        assert server.why_not_ready() is None
