"""Compaction of the embedded ledger store: room comes back, entries stay, any stop is harmless."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.errors import Corruption, NotFound
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.store import LedgerState
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.contracts.ledgers import MANY, append, ids_of, payloads_of

SEGMENT_BYTES = 20_000
KEPT = range(0, 40, 10)
ENTRIES = 30


def payload(ledger_id: int, number: int) -> bytes:
    return b"%d/%d;" % (ledger_id, number) * (5 + number % 7)


class Bench:
    """A folder whose segments hold little of many ledgers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = RealDisk()
        self.stores: list[EmbeddedLedgerStore] = []

    async def open(self, root: Path | None = None) -> EmbeddedLedgerStore:
        store = await EmbeddedLedgerStore.open_folder(
            self.disk, str(root or self.root), segment_bytes=SEGMENT_BYTES
        )
        self.stores.append(store)
        return store

    async def filled(self) -> EmbeddedLedgerStore:
        """Forty ledgers, entry by entry between each other's, all closed."""
        store = await self.open()
        writers = [await store.create(n, custom_metadata={"n": b"%d" % n}) for n in range(40)]
        for number in range(ENTRIES):
            await asyncio.gather(*(append(w, payload(w.ledger_id, number)) for w in writers))
        for writer in writers:
            await writer.close()
        await store.tidied()
        return store

    def journal_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.root / "journal").iterdir())


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "ledgers")
    yield bench
    for store in bench.stores:
        await store.close()
    bench.disk.close()


async def delete_most(store: EmbeddedLedgerStore) -> None:
    for ledger_id in range(40):
        if ledger_id not in KEPT:
            await store.delete(ledger_id)


async def check_kept(store: EmbeddedLedgerStore) -> None:
    assert await ids_of(store) == list(KEPT)
    for ledger_id in KEPT:
        reader = await store.open(ledger_id)
        assert await payloads_of(reader) == [payload(ledger_id, n) for n in range(ENTRIES)]
        described = await store.describe(ledger_id)
        assert described.state is LedgerState.CLOSED
        assert described.custom_metadata == {"n": b"%d" % ledger_id}
        assert described.length_bytes == sum(len(payload(ledger_id, n)) for n in range(ENTRIES))


@pytest.mark.goal("core.L2", part="compaction", broken_by="compaction_loses_facts")
async def test_room_comes_back_and_entries_stay(bench: Bench) -> None:
    store = await bench.filled()
    before = bench.journal_bytes()
    segments = store.journal.segments()
    await delete_most(store)
    await store.tidied()
    assert store.upkeep_failure is None
    assert bench.journal_bytes() <= before // 5 + SEGMENT_BYTES
    assert store.journal.segments()[: len(segments) - 1] == segments[:-1], "rewritten, not removed"
    await check_kept(store)
    await store.close()
    for index_files in ("used", "lost"):
        if index_files == "lost":
            shutil.rmtree(bench.root / "index")
        again = await bench.open()
        await check_kept(again)
        await again.tidied()
        await again.close()


@pytest.mark.goal("core.L2", part="compaction", broken_by="old_index_outlives_compaction")
async def test_a_stop_after_any_step_finds_everything(bench: Bench, tmp_path: Path) -> None:
    """The folder is looked at before and after every change of a name in it."""
    store = await bench.filled()
    moments: list[Path] = []

    def photograph() -> None:
        moments.append(tmp_path / f"moment-{len(moments)}")
        shutil.copytree(bench.root, moments[-1])

    for name in ("rename", "remove", "replace"):
        change = getattr(bench.disk, name)

        async def watched(path: str, *rest: object, change: object = change) -> None:
            photograph()
            await change(path, *rest)  # type: ignore[operator]
            photograph()

        setattr(bench.disk, name, watched)
    await delete_most(store)
    await store.tidied()
    await store.close()
    for name in ("rename", "remove", "replace"):
        delattr(bench.disk, name)
    assert len(moments) > 20
    for moment in moments:
        again = await bench.open(moment)
        for ledger_id in KEPT:
            reader = await again.open(ledger_id)
            assert await payloads_of(reader) == [payload(ledger_id, n) for n in range(ENTRIES)]
        await again.tidied()
        assert again.upkeep_failure is None
        assert not list((moment / "journal").glob("*.new"))
        await again.close()


@pytest.mark.goal("core.L2", part="compaction", broken_by="moved_entries_are_not_looked_for")
async def test_reads_go_on_while_entries_move(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.files.JOURNAL_OPEN_FILES_MAX", 1)
    store = await bench.filled()
    readers = [await store.open(ledger_id) for ledger_id in KEPT]
    await delete_most(store)
    wanted = {n: [payload(n, number) for number in range(ENTRIES)] for n in KEPT}
    rounds = 0
    while store._upkeep._task is not None:
        for reader in readers:
            entries = await reader.read(0, ENTRIES - 1, max_bytes=MANY)
            assert [bytes(e.payload) for e in entries] == wanted[reader.ledger_id]
        rounds += 1
    assert rounds > 1
    assert sum(store._index.ledgers[n].moves for n in KEPT) > len(KEPT)


async def test_what_is_deleted_while_it_is_copied_stays_deleted(bench: Bench) -> None:
    store = await bench.filled()
    doomed = await store.open(0)
    await delete_most(store)
    await store.delete(0)
    await store.tidied()
    with pytest.raises(NotFound):
        await doomed.read(0, 1, max_bytes=MANY)
    await store.close()
    shutil.rmtree(bench.root / "index")
    again = await bench.open()
    assert await ids_of(again) == list(KEPT)[1:]


async def test_a_damaged_segment_is_left_for_somebody_to_look_at(bench: Bench) -> None:
    store = await bench.filled()
    place = store._index.ledgers[10].select(0, 0, MANY)[0][0]
    file = bench.root / "journal" / f"{place.segment:012d}.journal"
    content = bytearray(file.read_bytes())
    content[place.offset + 30] ^= 1
    file.write_bytes(content)
    before = bench.journal_bytes()
    await delete_most(store)
    await store.tidied()
    assert store.upkeep_failure is None
    assert file.read_bytes() == content
    assert bench.journal_bytes() < before // 2, "the others were compacted"
    with pytest.raises(Corruption, match=f"{file.name} at byte {place.offset}"):
        await (await store.open(10)).read(0, 0, max_bytes=MANY)


@pytest.mark.goal("core.L2", part="compaction", broken_by="rewritten_segment_may_be_short")
async def test_every_cut_and_flip_of_a_rewritten_segment_is_damage(
    bench: Bench, tmp_path: Path
) -> None:
    store = await bench.filled()
    await delete_most(store)
    await store.tidied()
    await store.close()
    shutil.rmtree(bench.root / "index")
    name = "000000000002.journal"
    content = (bench.root / "journal" / name).read_bytes()
    assert content[8:10] == b"\x00\x02"

    async def opens_with(changed: bytes) -> bool:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(bench.root, copy)
        (copy / "journal" / name).write_bytes(changed)
        try:
            await (await bench.open(copy)).close()
        except Corruption as error:
            assert name in str(error)  # noqa: PT017
            return False
        return True

    assert await opens_with(content)
    step = max(1, len(content) // 60)
    for at in (*range(10, len(content), step), len(content) - 24, len(content) - 1):
        assert not await opens_with(content[:at]), f"cut at {at}"
        assert not await opens_with(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])


async def test_closing_does_not_wait_for_a_long_copy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await bench.filled()
    monkeypatch.setattr("anabranch.ledgers.compaction.LEDGER_COMPACTION_BYTES_PER_S_MAX", 20_000)
    monkeypatch.setattr("anabranch.ledgers.compaction.LEDGER_COMPACTION_SLICE_BYTES", 1000)
    await delete_most(store)
    async with asyncio.timeout(5):
        await store.close()
    monkeypatch.undo()
    again = await bench.open()
    await check_kept(again)
    await again.tidied()
    assert bench.journal_bytes() < 3 * SEGMENT_BYTES
