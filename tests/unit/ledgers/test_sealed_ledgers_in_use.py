"""Sealed ledgers are read in a folder while its server writes there and tidies up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from anabranch.errors import Corruption, NotFound
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.sealed_ledgers import SealedLedgers
from anabranch.ledgers.store import LedgerState
from anabranch.runtime.disk import DiskFile
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledgers import append

SEGMENT_BYTES = 20_000
LEDGERS = 20
ENTRIES = 30
KEPT = (3, 13)


def payload(ledger_id: int, number: int) -> bytes:
    return b"%d/%d;" % (ledger_id, number) * (5 + number % 7)


async def fill(store: EmbeddedLedgerStore) -> None:
    """Ledgers with their entries between each other's, all closed."""
    writers = [await store.create(n, custom_metadata={"n": b"%d" % n}) for n in range(LEDGERS)]
    for number in range(ENTRIES):
        await asyncio.gather(*(append(w, payload(w.ledger_id, number)) for w in writers))
    for writer in writers:
        await writer.close()
    await store.tidied()


async def delete_most(store: EmbeddedLedgerStore) -> None:
    for ledger_id in range(LEDGERS):
        if ledger_id not in KEPT:
            await store.delete(ledger_id)
    await store.tidied()


async def read_all(sealed: SealedLedgers, ledger_id: int) -> list[bytes]:
    return [bytes(entry.payload) async for entry in sealed.read(ledger_id, 0, 10_000)]


async def check(sealed: SealedLedgers, *ledger_ids: int) -> None:
    for ledger_id in ledger_ids:
        known = await sealed.describe(ledger_id)
        assert known.state is LedgerState.CLOSED
        assert known.last_entry_id == ENTRIES - 1
        assert known.custom_metadata == {"n": b"%d" % ledger_id}
        assert await read_all(sealed, ledger_id) == [payload(ledger_id, n) for n in range(ENTRIES)]


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledgers"


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[EmbeddedLedgerStore]:
    disk = RealDisk()
    store = await EmbeddedLedgerStore.open_folder(disk, str(folder), segment_bytes=SEGMENT_BYTES)
    await fill(store)
    yield store
    await store.close()
    disk.close()


@pytest.fixture
async def disk() -> AsyncIterator[RealDisk]:
    disk = RealDisk()
    yield disk
    disk.close()


async def test_some_ledgers_are_found_and_only_their_files_stay_open(
    store: EmbeddedLedgerStore, folder: Path, disk: RealDisk
) -> None:
    sealed = await SealedLedgers.find(disk, str(folder), [4, 5])
    await check(sealed, 4, 5)
    with pytest.raises(NotFound, match="there is no ledger 6 in"):
        await sealed.describe(6)  # it was not asked for
    assert [entry.entry_id async for entry in sealed.read(4, 7, 9)] == [7, 8, 9]
    await sealed.close()
    with pytest.raises(NotFound, match="it has no folder 'journal'"):
        await SealedLedgers.find(disk, str(folder / "nowhere"), [4])


async def test_the_server_goes_on_writing_and_sees_nobody(
    store: EmbeddedLedgerStore, folder: Path, disk: RealDisk
) -> None:
    writer = await store.create(100)
    writing = True

    async def write() -> None:
        number = 0
        while writing:
            await append(writer, payload(100, number))
            number += 1

    task = asyncio.ensure_future(write())
    for _ in range(20):
        sealed = await SealedLedgers.find(disk, str(folder), [7, 100])
        await check(sealed, 7)
        assert (await sealed.describe(100)).state is LedgerState.OPEN
        await sealed.close()
    writing = False
    await task
    last = await writer.close()
    sealed = await SealedLedgers.find(disk, str(folder), [100])
    assert await read_all(sealed, 100) == [payload(100, number) for number in range(last + 1)]
    await sealed.close()


async def test_whoever_has_found_them_reads_on_while_segments_are_written_anew(
    store: EmbeddedLedgerStore, folder: Path, disk: RealDisk
) -> None:
    sealed = await SealedLedgers.find(disk, str(folder), KEPT)
    await delete_most(store)
    await check(sealed, *KEPT)
    await sealed.close()
    sealed = await SealedLedgers.find(disk, str(folder), [*KEPT, 4])
    await check(sealed, *KEPT)
    with pytest.raises(NotFound, match="there is no ledger 4"):
        await sealed.describe(4)
    await sealed.close()


class InterruptedDisk(RealDisk):
    """Somebody else gets to work just after a file was opened."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._meanwhile = [meanwhile]

    async def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = await super().open(path, create=create, read_only=read_only)
        while self._meanwhile:
            await self._meanwhile.pop()()
        return file


@pytest.mark.broken_by("index_of_a_rewritten_segment_is_believed")
async def test_an_index_is_not_believed_of_the_file_that_was_there_before(
    store: EmbeddedLedgerStore, folder: Path
) -> None:
    disk = InterruptedDisk(lambda: delete_most(store))
    sealed = await SealedLedgers.find(disk, str(folder), KEPT)
    await check(sealed, *KEPT)
    await sealed.close()
    disk.close()


@pytest.mark.broken_by("sealed_records_are_believed")
async def test_damage_and_loss_are_named(
    store: EmbeddedLedgerStore, folder: Path, disk: RealDisk
) -> None:
    spoiled = payload(5, 11)
    for file in sorted((folder / "journal").iterdir()):
        content = file.read_bytes()
        if spoiled in content:
            file.write_bytes(content.replace(spoiled, spoiled[:-1] + b"!"))
            break
    sealed = await SealedLedgers.find(disk, str(folder), [5, 6])
    await check(sealed, 6)
    reading = sealed.read(5, 0, ENTRIES)
    seen = [(await anext(reading)).entry_id for _ in range(11)]
    assert seen == list(range(11)), "what comes before the damage is read"
    with pytest.raises(Corruption, match=f"{file.name} at byte .*: entry 5:11 is damaged"):
        await anext(reading)
    await sealed.close()
    next(iter(sorted((folder / "journal").iterdir()))).unlink()
    with pytest.raises(Corruption, match="is a segment lost"):
        await SealedLedgers.find(disk, str(folder), [6])
