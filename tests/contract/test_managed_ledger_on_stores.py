"""Managed ledgers on every pair of stores that needs no server, over a clean restart."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import Terminated
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.managed_ledger import (
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgers,
    SchemaInfo,
    StoredSchema,
)
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

NAME = "t/ns/persistent/topic"
CONFIG = ManagedLedgerConfig(ledger_entries_max=40)


class Memory:
    """Stores that stay open while owners come and go."""

    def __init__(self) -> None:
        self.runtime = real_runtime()
        self.ledgers: LedgerStore = MemoryLedgerStore()
        self.metadata: MetadataStore | None = None

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[ManagedLedgers]:
        if self.metadata is None:
            self.metadata = await open_store("memory:", self.runtime)
        owner = ManagedLedgers(
            metadata=self.metadata, ledgers=self.ledgers, runtime=self.runtime, config=CONFIG
        )
        yield owner
        await owner.close()


class Embedded:
    """Stores on the disk that are closed and opened again with each owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = real_runtime()

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[ManagedLedgers]:
        metadata = await open_store(f"embedded:{self.folder}/metadata", self.runtime)
        ledgers = await EmbeddedLedgerStore.open_folder(self.runtime.disk, f"{self.folder}/ledgers")
        owner = ManagedLedgers(
            metadata=metadata, ledgers=ledgers, runtime=self.runtime, config=CONFIG
        )
        yield owner
        await owner.close()
        await ledgers.close()
        await metadata.close()


@pytest.fixture(params=["memory", "embedded"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Memory | Embedded:
    return Memory() if request.param == "memory" else Embedded(tmp_path)


def append(ledger: ManagedLedger, payload: bytes) -> Awaitable[Position]:
    future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        if position is not None:
            future.set_result(position)
        else:
            assert error is not None
            future.set_exception(error)

    ledger.append(payload, done)
    return future


async def payloads(ledger: ManagedLedger) -> list[bytes]:
    found: list[bytes] = []
    start = EARLIEST
    while entries := await ledger.read(start, 30, 1 << 20):
        found += [bytes(entry.payload) for entry in entries]
        start = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
    return found


@pytest.mark.goal("core.L6", part="restart", broken_by="recovery_misses_the_last_entry")
async def test_everything_is_there_after_a_restart(stores: Memory | Embedded) -> None:
    sent = [b"%d " % n + bytes(n % 700) for n in range(300)]
    async with stores.owner() as owner:
        topic = await owner.open(NAME)
        cursor = await topic.open_cursor("s", initial="earliest")
        positions = await asyncio.gather(*(append(topic, payload) for payload in sent[:200]))
        assert positions == sorted(positions)
        cursor.acknowledge_cumulative(positions[49])
        cursor.acknowledge(positions[60:160])
        cursor.acknowledge_batch(positions[55], [0b100])
        await topic.set_properties({"k": "v"})
        await topic.trim()
    async with stores.owner() as owner:
        topic = await owner.open(NAME, create=False)
        assert topic.last_confirmed == positions[-1]
        assert topic.properties == {"k": "v"}
        assert await payloads(topic) == sent[40:200], "the first ledger of 40 was passed"
        cursor = topic.cursors["s"]
        pending = [n for n, p in enumerate(positions) if not cursor.is_acknowledged(p)]
        assert pending == [*range(50, 60), *range(160, 200)]
        assert cursor.pending_bits(positions[55]) == (0b100,)
        assert cursor.backlog() == 50
        more = await asyncio.gather(*(append(topic, payload) for payload in sent[200:]))
        assert more[0] > positions[-1]
        assert await payloads(topic) == sent[40:]
        end = await topic.terminate()
    async with stores.owner() as owner:
        topic = await owner.open(NAME)
        assert topic.terminated == end == more[-1]
        assert await payloads(topic) == sent[40:]
        with pytest.raises(Terminated):
            await append(topic, b"late")
        await owner.delete(NAME)
        assert not await owner.exists(NAME)


@pytest.mark.goal("core.L7", part="large cursor in a ledger", broken_by="cursor_ledger_is_not_read")
async def test_large_cursor_is_there_after_restarts(
    stores: Memory | Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 400)
    monkeypatch.setattr(limits, "CURSOR_LEDGER_ENTRIES_MAX", 3)
    acked: set[Position] = set()
    async with stores.owner() as owner:
        topic = await owner.open(NAME)
        await topic.open_cursor("s", initial="earliest")
        positions = await asyncio.gather(*(append(topic, b"%d" % n) for n in range(200)))
    for n in range(5):
        async with stores.owner() as owner:
            cursor = (await owner.open(NAME)).cursors["s"]
            assert {p for p in positions if cursor.is_acknowledged(p)} == acked
            for chosen in (positions[1 + 4 * n :: 20], positions[3 + 4 * n :: 20]):
                cursor.acknowledge(chosen)
                acked.update(chosen)
                await cursor.flushed()
    async with stores.owner() as owner:
        cursor = (await owner.open(NAME)).cursors["s"]
        assert cursor.backlog() == 100
        cursor.acknowledge_cumulative(positions[-2])
    async with stores.owner() as owner:
        topic = await owner.open(NAME)
        assert topic.cursors["s"].backlog() == 0


async def test_schemas_are_there_after_a_restart(stores: Memory | Embedded) -> None:
    infos = [SchemaInfo("t/ns/x", 2, b"%d" % n, "user", n) for n in range(3)]
    async with stores.owner() as owner:
        for info in infos:
            await owner.schemas.put_if_absent("t/ns/x", info, info.schema)
    async with stores.owner() as owner:
        found = await owner.schemas.versions("t/ns/x")
        assert found == [StoredSchema(n, info) for n, info in enumerate(infos)]
