"""The embedded ledger store's own business: segments, index files, housekeeping, damage."""

import errno
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from anabranch.errors import (
    ConfigError,
    ConflictError,
    Corruption,
    DiskFull,
    FormatError,
    StoreBusy,
    StoreFailed,
)
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.factory import open_ledgers
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.ledgers import MANY, append, ids_of, payloads_of
from anabranch.testing.failing_disk import FailingDisk


class Folder:
    """A store's folder with small segments, opened again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FailingDisk()
        self._stores: list[EmbeddedLedgerStore] = []

    async def open(self, root: Path | None = None) -> EmbeddedLedgerStore:
        store = await EmbeddedLedgerStore.open_folder(
            self.disk, str(root or self.root), segment_bytes=1000
        )
        self._stores.append(store)
        return store

    def files(self, kind: str) -> list[str]:
        return sorted(path.name for path in (self.root / kind).iterdir())

    async def end(self) -> None:
        for store in self._stores:
            await store.close()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    folder = Folder(tmp_path / "ledgers")
    yield folder
    await folder.end()


def payload(ledger_id: int, number: int) -> bytes:
    return b"%d/%d" % (ledger_id, number) * 20


async def fill(store: EmbeddedLedgerStore, ledger_ids: Sequence[int], entries: int) -> None:
    """Closed ledgers whose entries lie between each other's, over several segments."""
    writers = [await store.create(ledger_id) for ledger_id in ledger_ids]
    for number in range(entries):
        for writer in writers:
            await append(writer, payload(writer.ledger_id, number))
    for writer in writers:
        await writer.close()


async def check_filled(store: EmbeddedLedgerStore, ledger_ids: Sequence[int], entries: int) -> None:
    assert await ids_of(store) == list(ledger_ids)
    for ledger_id in ledger_ids:
        found = await payloads_of(await store.open(ledger_id))
        assert found == [payload(ledger_id, number) for number in range(entries)]


def flip_byte(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


async def settled(store: EmbeddedLedgerStore) -> None:
    """Wait for housekeeping."""
    await store.tidied()
    assert store.upkeep_failure is None


async def test_sealed_segments_get_index_files_that_are_used(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await folder.open()
    await fill(store, [1, 2, 3], 20)
    await settled(store)
    await store.close()
    sealed = len(folder.files("journal")) - 1
    assert sealed > 3
    assert len(folder.files("index")) >= sealed - 1
    scanned: list[int] = []
    original = EmbeddedLedgerStore.open_folder.__globals__["LedgerIndex"].replay

    def replay(self: object, place: object, record: memoryview) -> None:
        scanned.append(place.segment)  # type: ignore[attr-defined]
        original(self, place, record)

    monkeypatch.setattr("anabranch.ledgers.index.LedgerIndex.replay", replay)
    store = await folder.open()
    assert len(set(scanned)) <= 2, "sealed segments were scanned although they have an index"
    await check_filled(store, [1, 2, 3], 20)


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "empty", "version"])
async def test_a_lost_or_damaged_index_is_built_again(folder: Folder, damage: str) -> None:
    store = await folder.open()
    await fill(store, [1, 2, 3], 20)
    await settled(store)
    await store.close()
    name = folder.files("index")[1]
    file = folder.root / "index" / name
    content = bytearray(file.read_bytes())
    match damage:
        case "missing":
            file.unlink()
        case "flipped":
            content[len(content) // 2] ^= 4
            file.write_bytes(content)
        case "cut":
            file.write_bytes(content[:-3])
        case "empty":
            file.write_bytes(b"")
        case "version":
            file.write_bytes(content[:8] + b"\x00\x09" + content[10:])
    store = await folder.open()
    await check_filled(store, [1, 2, 3], 20)
    await settled(store)
    assert name in folder.files("index")
    await store.close()
    await check_filled(await folder.open(), [1, 2, 3], 20)


async def test_segments_of_deleted_ledgers_are_removed(folder: Folder) -> None:
    store = await folder.open()
    await fill(store, [1, 2], 20)
    await fill(store, [3], 20)
    before = len(folder.files("journal"))
    for ledger_id in (1, 2):
        await store.delete(ledger_id)
    await settled(store)
    assert len(folder.files("journal")) < before
    assert set(folder.files("index")) <= {
        name.replace("journal", "index") for name in folder.files("journal")
    }
    await check_filled(store, [3], 20)
    await store.close()
    store = await folder.open()
    await check_filled(store, [3], 20)
    for used in (1, 2):
        with pytest.raises(ConflictError):
            await store.create(used)


async def test_no_segment_is_kept_for_a_ledger_that_lost_its_middle(folder: Folder) -> None:
    """Of a deleted ledger a segment in between may be gone when the others are read again."""
    store = await folder.open()
    doomed, other = await store.create(1), await store.create(2)
    await append(other, bytes(500))
    await append(doomed, *[bytes(500)] * 5)
    await append(other, bytes(500))
    await append(doomed, *[bytes(500)] * 2)
    later = await store.create(3)
    await append(later, *[bytes(500)] * 3)
    await settled(store)
    before = store.journal.segments()
    await store.delete(1)
    await settled(store)
    assert len(store.journal.segments()) < len(before), "what only the doomed one used is gone"
    await store.close()
    store = await folder.open()
    await settled(store)
    await store.delete(2)
    await settled(store)
    living = {n for n, use in store._index.segments.items() if 3 in use.ledgers}
    assert {*store.journal.segments()[:-1]} <= living
    await store.close()


async def test_facts_outlive_the_segments_they_were_written_to(folder: Folder) -> None:
    """A quiet ledger's beginning and an old deletion move on when their segment goes."""
    store = await folder.open()
    quiet = await store.create(1, custom_metadata={"name": b"quiet"})
    await store.create(2)
    await store.delete(2)
    closed = await store.create(3)
    await closed.close()
    for ledger_id in range(10, 16):
        await fill(store, [ledger_id], 20)
        await store.delete(ledger_id)
        await settled(store)
    assert len(folder.files("journal")) <= 3
    assert await append(quiet, b"speaks") == [0]
    await store.close()
    store = await folder.open()
    assert await ids_of(store) == [1, 3]
    assert (await store.describe(1)).custom_metadata == {"name": b"quiet"}
    assert await payloads_of(await store.open(1)) == [b"speaks"]
    assert (await store.open(3)).last_entry_id == -1
    for used in (2, *range(10, 16)):
        with pytest.raises(ConflictError):
            await store.create(used)


async def test_a_lost_segment_of_a_living_ledger_is_reported(folder: Folder) -> None:
    store = await folder.open()
    await fill(store, [1], 30)
    await settled(store)
    await store.close()
    for name in (folder.files("journal")[1], folder.files("journal")[0]):
        (folder.root / "journal" / name).unlink()
        with pytest.raises(Corruption, match=r"ledger 1 .*is a segment lost"):
            await folder.open()


@pytest.mark.goal("rel.X5", part="segment", broken_by="damaged_record_is_served")
@pytest.mark.goal("core.L2", part="embedded", broken_by="damaged_record_is_served")
async def test_a_damaged_entry_is_reported_with_its_place_and_not_served(folder: Folder) -> None:
    store = await folder.open()
    await fill(store, [1], 20)
    reader = await store.open(1)
    place = store._index.ledgers[1].select(7, 7, MANY)[0][0]
    file = Path(store.journal.files.path(place.segment))
    flip_byte(file, place.offset + 40)
    with pytest.raises(Corruption, match=f"{file.name} at byte {place.offset}"):
        await reader.read(7, 9, max_bytes=MANY)
    before = await reader.read(5, 9, max_bytes=MANY)
    assert [entry.entry_id for entry in before] == [5, 6], "a read ends before the damage"
    assert len(await reader.read(0, 6, max_bytes=MANY)) == 7
    assert len(await reader.read(8, 19, max_bytes=MANY)) == 12


@pytest.mark.goal("core.L2", part="embedded", broken_by="unproven_tail_is_cut")
async def test_every_cut_of_the_journal_keeps_what_came_before(
    folder: Folder, tmp_path: Path
) -> None:
    store = await folder.open()
    writer = await store.create(1)
    ends = []
    for number in range(5):
        await append(writer, b"%d" % number)
        place = store._index.ledgers[1].select(number, number, MANY)[0][0]
        ends.append(place.offset + 8 + place.length)
    await writer.close()
    await store.close()
    (name,) = folder.files("journal")
    content = (folder.root / "journal" / name).read_bytes()
    for cut in range(ends[0], len(content) + 1):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder.root, copy)
        (copy / "journal" / name).write_bytes(content[:cut])
        again = await folder.open(copy)
        found = await payloads_of(await again.open(1))
        assert found == [b"%d" % number for number in range(sum(end <= cut for end in ends))]
        await again.close()


@pytest.mark.goal("rel.X5", part="journal", broken_by="damage_is_cut_as_a_tail")
@pytest.mark.goal("core.L2", part="embedded", broken_by="damage_is_cut_as_a_tail")
async def test_every_flipped_byte_is_reported_and_nothing_wrong_is_served(
    folder: Folder, tmp_path: Path
) -> None:
    store = await folder.open()
    writer = await store.create(1, custom_metadata={"k": b"v"})
    await append(writer, b"first", b"second")
    await append(writer, b"third")
    await store.close()
    (name,) = folder.files("journal")
    content = (folder.root / "journal" / name).read_bytes()
    unnoticed = 0
    for at in range(len(content)):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder.root, copy)
        damaged = bytearray(content)
        damaged[at] ^= 0x20
        (copy / "journal" / name).write_bytes(damaged)
        try:
            again = await folder.open(copy)
        except (Corruption, FormatError) as error:
            assert name in str(error)  # noqa: PT017
            continue
        unnoticed += 1
        assert await payloads_of(await again.open(1)) == [b"first", b"second", b"third"]
        await again.close()
    assert unnoticed == 24, "only the mark at the very end holds nothing that can be missed"


@pytest.mark.parametrize(
    ("code", "first"), [(errno.EIO, StoreFailed), (errno.ENOSPC, DiskFull)], ids=["eio", "full"]
)
@pytest.mark.goal("rel.X4", part="ledgers", broken_by="failed_write_counts_as_done")
@pytest.mark.goal("core.L2", part="embedded", broken_by="failed_write_counts_as_done")
async def test_after_a_failed_write_nothing_is_acknowledged_and_all_before_is_kept(
    folder: Folder, code: int, first: type[Exception]
) -> None:
    store = await folder.open()
    writer, other = await store.create(1), await store.create(2)
    await append(writer, b"safe")
    folder.disk.verdict = lambda _path, _buffers: OSError(code, "made to fail")
    with pytest.raises(first):
        await append(writer, b"lost", b"lost too")
    folder.disk.verdict = lambda _path, _buffers: None
    with pytest.raises(StoreFailed):
        await append(other, b"not accepted any more")
    for attempt in (store.create(3), store.open(1), store.delete(1), other.close()):
        with pytest.raises(StoreFailed):
            await attempt
    assert await payloads_of(writer) == [b"safe"], "reading goes on"
    await store.close()
    store = await folder.open()
    assert await payloads_of(await store.open(1)) == [b"safe"]
    await store.create(3)


async def test_who_does_not_hold_back_is_refused_and_may_go_on_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.ledgers.embedded_ledger.STORE_PENDING_BYTES_MAX", 1000)
    store = await folder.open()
    writer = await store.create(1)
    answered: list[int] = []
    relieved: list[int] = []
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_LOW", 100)
    for _ in range(2):
        writer.append(bytes(600), lambda entry_id, _error: answered.append(entry_id))
    store.pressure.when_low(lambda: relieved.append(len(answered)))
    with pytest.raises(StoreBusy, match="wait for the disk"):
        writer.append(b"too much", lambda *_: None)
    assert await append(store_writer := await store.create(2), b"b") == [0]
    assert (answered, len(relieved)) == ([0, 1], 1)
    assert await append(writer, b"later") == [2]
    assert await payloads_of(store_writer) == [b"b"]


async def test_failing_housekeeping_endangers_nothing(folder: Folder) -> None:
    def no_replacing(path: str, content: Buffer) -> object:
        raise OSError(errno.ENOSPC, f"no room for {path} of {len(content)} bytes")

    folder.disk.replace = no_replacing  # type: ignore[method-assign, assignment]
    store = await folder.open()
    await fill(store, [1, 2], 20)
    await store.tidied()
    assert "no room for" in str(store.upkeep_failure)
    await check_filled(store, [1, 2], 20)
    await store.close()
    del folder.disk.replace
    await check_filled(await folder.open(), [1, 2], 20)


@pytest.mark.parametrize("place", ["journal", "index"])
async def test_a_foreign_folder_is_refused_and_left_alone(folder: Folder, place: str) -> None:
    (folder.root / place).mkdir(parents=True)
    stranger = folder.root / place / "diary.txt"
    stranger.write_text("dear diary")
    with pytest.raises(FormatError, match=r"diary\.txt"):
        await folder.open()
    assert stranger.read_text() == "dear diary"


async def test_leftovers_of_a_crash_are_cleared(folder: Folder) -> None:
    store = await folder.open()
    await fill(store, [1], 20)
    await settled(store)
    await store.close()
    for name in ("000000000099.index", "000000000001.index.new"):
        (folder.root / "index" / name).write_bytes(b"half of something")
    await check_filled(await folder.open(), [1], 20)
    assert "000000000099.index" not in folder.files("index")
    assert "000000000001.index.new" not in folder.files("index")


async def test_the_factory_opens_by_url(tmp_path: Path) -> None:
    runtime = real_runtime()
    assert isinstance(await open_ledgers("memory:", runtime), MemoryLedgerStore)
    store = await open_ledgers(f"embedded:{tmp_path}/ledgers", runtime)
    assert isinstance(store, EmbeddedLedgerStore)
    await store.close()
    for url in ("memory:x", "embedded:", "embedded", "bookkeeper:somewhere", ""):
        with pytest.raises(ConfigError):
            await open_ledgers(url, runtime)
