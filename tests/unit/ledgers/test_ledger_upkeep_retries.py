"""Housekeeping of the embedded store on a full disk: it waits for room, and goes on by itself."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.runtime.network import Buffer
from anabranch.runtime.real_disk import RealDisk, RealFile
from anabranch.testing.contracts.ledgers import append, payloads_of

SEGMENT_BYTES = 4000
LEDGERS = 20
ENTRIES = 10


class CrampedDisk(RealDisk):
    """A disk on which index files and copies fail or find no room, as the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.replace_error: OSError | None = None
        self.free: int | None = None
        self.opened: list[str] = []

    async def replace(self, path: str, content: Buffer) -> None:
        if self.replace_error is not None:
            raise self.replace_error
        await super().replace(path, content)

    async def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        self.opened.append(path)
        return await super().open(path, create=create, read_only=read_only)

    async def free_bytes(self, path: str) -> int:
        return await super().free_bytes(path) if self.free is None else self.free


class Bench:
    """A store on such a disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = CrampedDisk()
        self.store: EmbeddedLedgerStore

    async def open(self) -> None:
        self.store = await EmbeddedLedgerStore.open_folder(
            self.disk, str(self.root), segment_bytes=SEGMENT_BYTES
        )

    async def fill(self) -> None:
        writers = [await self.store.create(n) for n in range(LEDGERS)]
        for number in range(ENTRIES):
            await asyncio.gather(*(append(w, b"%d" % number * 100) for w in writers))
        for writer in writers:
            await writer.close()
        await self.store.tidied()

    async def delete_most(self) -> None:
        for ledger_id in range(1, LEDGERS):
            await self.store.delete(ledger_id)
        await self.store.tidied()

    def index_files(self) -> list[str]:
        return sorted(file.name for file in (self.root / "index").iterdir())

    def journal_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.root / "journal").iterdir())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr("anabranch.ledgers.upkeep.LEDGER_UPKEEP_RETRY_S", 0.01)
    monkeypatch.setattr("anabranch.ledgers.upkeep.LEDGER_UPKEEP_RETRY_S_MAX", 0.05)
    bench = Bench(tmp_path / "ledgers")
    await bench.open()
    yield bench
    await bench.store.close()
    bench.disk.close()


async def test_index_files_are_written_once_there_is_room_again(bench: Bench) -> None:
    bench.disk.replace_error = OSError(errno.ENOSPC, "no room at all")
    await bench.fill()
    assert "no room at all" in str(bench.store.degraded)
    assert bench.store.failure is None
    assert bench.index_files() == []
    bench.disk.replace_error = None
    await until(lambda: bench.store.degraded is None)
    sealed = bench.store.journal.segments()[:-1]
    assert bench.index_files() == [f"{number:012d}.index" for number in sealed]


async def test_dead_segments_go_though_index_files_find_no_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.disk.replace_error = OSError(errno.ENOSPC, "no room at all")
    await bench.fill()
    segments = bench.store.journal.segments()
    monkeypatch.setattr("anabranch.ledgers.upkeep.LEDGER_UPKEEP_RETRY_S", 600)
    await bench.delete_most()
    await bench.store.delete(0)
    await bench.store.tidied()
    left = bench.store.journal.segments()
    assert not set(left) & set(segments[:-1])
    assert bench.store.degraded is None, "what is gone needs no index file"


async def test_waits_that_are_over_at_once_neither_hold_a_run_nor_keep_room_from_being_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.ledgers.upkeep.LEDGER_UPKEEP_RETRY_S", 0.0)
    bench.disk.replace_error = OSError(errno.ENOSPC, "no room at all")
    async with asyncio.timeout(20):
        await bench.fill()
        segments = bench.store.journal.segments()
        await bench.delete_most()
        await bench.store.delete(0)
        await until(lambda: bench.store.degraded is None)
    assert not set(bench.store.journal.segments()) & set(segments[:-1])


async def test_nothing_is_copied_without_room_and_it_is_tried_again(bench: Bench) -> None:
    await bench.fill()
    before = bench.journal_bytes()
    bench.disk.free = 0
    bench.disk.opened.clear()
    await bench.delete_most()
    assert "room" in str(bench.store.degraded)
    assert not [path for path in bench.disk.opened if path.endswith(".new")]
    bench.disk.free = None
    await until(lambda: bench.store.degraded is None)
    await bench.store.tidied()
    assert bench.journal_bytes() < before // 2
    assert await payloads_of(await bench.store.open(0)) == [b"%d" % n * 100 for n in range(ENTRIES)]


async def test_a_failed_sync_ends_housekeeping_for_good(bench: Bench) -> None:
    bench.disk.replace_error = OSError(errno.EIO, "sync failed")
    await bench.fill()
    bench.disk.replace_error = None
    await asyncio.sleep(0.1)
    assert "sync failed" in str(bench.store.degraded)
    assert bench.index_files() == []
    assert bench.store.failure is None, "entries are safe"


async def test_a_segment_that_was_damaged_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.ledgers.upkeep.LEDGER_DAMAGED_RETRY_S", 0.02)
    await bench.fill()
    index = bench.root / "index" / "000000000001.index"
    whole = index.read_bytes()
    index.write_bytes(whole[:-1])
    await bench.delete_most()
    segment = bench.root / "journal" / "000000000001.journal"
    assert segment.stat().st_size >= SEGMENT_BYTES, "left as it is"
    index.write_bytes(whole)
    await until(lambda: segment.stat().st_size < SEGMENT_BYTES)


async def test_closing_ends_the_waiting(bench: Bench) -> None:
    bench.disk.replace_error = OSError(errno.ENOSPC, "no room at all")
    await bench.fill()
    await bench.store.close()
    bench.disk.replace_error = None
    await asyncio.sleep(0.1)
    assert bench.index_files() == []
