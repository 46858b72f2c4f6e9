"""What the embedded store makes of its folder after stops, crashes and damage of every kind."""

import asyncio
import shutil
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, Corruption, FolderInUse, FormatError
from anabranch.journal import Journal
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.store import Delete, EventKind, MetadataStore, Node, Put, Revision
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime

PLACES = 60
"""Looked at in a file, spread evenly."""


@pytest.fixture
def runtime() -> Runtime:
    return real_runtime()


async def contents(store: MetadataStore) -> list[Node]:
    return [node async for node in store.scan("/")]


async def history_of(store: MetadataStore) -> list[list[Node]]:
    """Write a little of everything; return the contents after each command."""
    states = [await contents(store)]
    stat = await store.put("/a/b", b"one")
    states.append(await contents(store))
    await store.put("/a/b", b"two", stat.version)
    states.append(await contents(store))
    await store.batch([Put("/c", b"1"), Put("/d", b""), Delete("/a/b"), Delete("/nothing")])
    states.append(await contents(store))
    await store.put("/", b"root")
    states.append(await contents(store))
    return states


def newest_segment(folder: Path) -> Path:
    return max((folder / "log").iterdir())


@pytest.fixture
async def stopped(tmp_path: Path, runtime: Runtime) -> tuple[Path, list[list[Node]]]:
    """A folder that was closed cleanly, and all states it has been in."""
    store = await EmbeddedStore.open(runtime, str(tmp_path / "store"))
    states = await history_of(store)
    await store.close()
    return tmp_path / "store", states


async def test_restart_keeps_nodes_versions_and_revisions_exactly(
    stopped: tuple[Path, list[list[Node]]], runtime: Runtime
) -> None:
    folder, states = stopped
    for _ in range(3):
        store = await EmbeddedStore.open(runtime, str(folder))
        assert await contents(store) == states[-1]
        assert (await store.revision()).index == 7
        await store.close()


async def test_every_open_begins_a_new_epoch(tmp_path: Path, runtime: Runtime) -> None:
    epochs = []
    for _ in range(3):
        store = await EmbeddedStore.open(runtime, str(tmp_path))
        epochs.append((await store.put("/a", b"")).revision.epoch)
        await store.close()
    assert epochs == [1, 2, 3]


async def test_version_taken_before_a_restart_still_matches(
    tmp_path: Path, runtime: Runtime
) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    first = await store.put("/a", b"1")
    await store.delete("/a")
    second = await store.put("/a", b"1")
    await store.close()
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    with pytest.raises(AnabranchError, match="version mismatch"):
        await store.put("/a", b"2", first.version)
    await store.put("/a", b"2", second.version)
    third = await store.put("/b", b"")
    assert third.version.life > second.version.life
    await store.close()


@pytest.mark.goal("core.M5", part="embedded", broken_by="watch_resumes_one_late")
async def test_watch_resumes_over_a_restart(tmp_path: Path, runtime: Runtime) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    since = (await store.put("/a", b"")).revision
    await store.put("/b", b"")
    await store.close()
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    watch = store.watch("/", since=since)
    await store.put("/c", b"")
    async with asyncio.timeout(10):
        assert [(await anext(watch)).path for _ in range(2)] == ["/b", "/c"]
    await store.close()


async def test_torn_tail_at_every_byte_leaves_a_whole_prefix(
    stopped: tuple[Path, list[list[Node]]], runtime: Runtime, tmp_path: Path
) -> None:
    folder, states = stopped
    content = newest_segment(folder).read_bytes()
    found: list[int] = []
    for length in range(len(content)):
        torn = tmp_path / "torn"
        shutil.copytree(folder, torn)
        newest_segment(torn).write_bytes(content[:length])
        store = await EmbeddedStore.open(runtime, str(torn))
        found.append(states.index(await contents(store)))
        await store.put("/after", b"")
        await store.close()
        shutil.rmtree(torn)
    assert found == sorted(found), "more bytes never mean less state"
    assert set(found) == set(range(len(states)))


@pytest.mark.goal("core.M9", part="embedded", broken_by="unproven_tail_is_cut")
async def test_tail_torn_behind_an_acknowledged_write_keeps_that_write(
    tmp_path: Path, runtime: Runtime
) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path / "store"))
    lengths: list[int] = []
    for number in range(4):
        await store.put("/a", b"%d" % number)
        lengths.append(newest_segment(tmp_path / "store").stat().st_size)
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    await store.close()
    content = newest_segment(tmp_path / "killed").read_bytes()
    for length in sorted({*lengths, *range(lengths[0], len(content) + 1, 11)}):
        torn = tmp_path / "torn"
        shutil.copytree(tmp_path / "killed", torn)
        newest_segment(torn).write_bytes(content[:length])
        for _ in range(2):  # what the first start has read may not be what it left behind
            store = await EmbeddedStore.open(runtime, str(torn))
            node = await store.get("/a")
            assert node is not None
            assert int(node.value) >= sum(known <= length for known in lengths) - 1
            await store.close()
        shutil.rmtree(torn)


@pytest.mark.goal("rel.X5", part="metadata log", broken_by="damage_is_cut_as_a_tail")
@pytest.mark.goal("core.M9", part="embedded", broken_by="damage_is_cut_as_a_tail")
async def test_flipped_byte_anywhere_is_reported_with_its_place_or_is_a_torn_tail(
    stopped: tuple[Path, list[list[Node]]], runtime: Runtime, tmp_path: Path
) -> None:
    folder, states = stopped
    content = bytearray(newest_segment(folder).read_bytes())
    reported = 0
    for place in range(len(content)):
        damaged = tmp_path / "damaged"
        shutil.copytree(folder, damaged)
        content[place] ^= 0x20
        newest_segment(damaged).write_bytes(content)
        content[place] ^= 0x20
        opened = await asyncio.gather(
            EmbeddedStore.open(runtime, str(damaged)), return_exceptions=True
        )
        if isinstance(opened[0], EmbeddedStore):
            # Only the closing mark may be taken for a torn tail: it holds no promise.
            assert await contents(opened[0]) == states[-1]
            await opened[0].close()
        else:
            assert isinstance(opened[0], Corruption | FormatError)
            assert newest_segment(damaged).name in str(opened[0])
            assert isinstance(opened[0], FormatError) or opened[0].offset <= place
            reported += 1
        shutil.rmtree(damaged)
    assert reported > len(content) * 0.9


SMALL = 2000


async def with_snapshot(runtime: Runtime, folder: Path) -> EmbeddedStore:
    """A store that has cut its log at least once."""
    store = await EmbeddedStore.open(runtime, str(folder), snapshot_after_bytes=SMALL)
    for i in range(100):
        await store.put(f"/n/{i % 20}", b"%d" % i)
    for _ in range(200):
        if (folder / "snapshot").exists() and not (folder / "log/000000000001.journal").exists():
            return store
        await asyncio.sleep(0.01)
    raise AssertionError("no snapshot was taken")


async def test_snapshot_and_log_together_give_the_same_state(
    tmp_path: Path, runtime: Runtime
) -> None:
    store = await with_snapshot(runtime, tmp_path)
    before, revision = await contents(store), await store.revision()
    await store.close()
    store = await EmbeddedStore.open(runtime, str(tmp_path), snapshot_after_bytes=SMALL)
    assert await contents(store) == before
    assert await store.revision() == revision
    assert (await store.put("/x", b"")).revision.index == revision.index + 1
    await store.close()


async def test_log_stays_short_under_endless_writing(tmp_path: Path, runtime: Runtime) -> None:
    store = await with_snapshot(runtime, tmp_path)
    for i in range(600):
        await store.put(f"/n/{i % 20}", b"%d" % i)
    await store.close()
    assert sum(file.stat().st_size for file in (tmp_path / "log").iterdir()) < 15 * SMALL


async def test_watch_from_before_the_snapshot_finds_a_gap(tmp_path: Path, runtime: Runtime) -> None:
    store = await with_snapshot(runtime, tmp_path)
    await store.close()
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    watch = store.watch("/n", since=Revision(1, 1))
    newest = await store.revision()
    event = await anext(watch)
    assert (event.kind, event.revision) == (EventKind.GAP, newest)
    await store.put("/n/x", b"")
    assert (await anext(watch)).path == "/n/x"
    await store.close()


@pytest.mark.goal("rel.X5", part="snapshot", broken_by="snapshot_checksums_are_passed_over")
async def test_a_flipped_bit_anywhere_in_a_snapshot_is_named(
    tmp_path: Path, runtime: Runtime
) -> None:
    await (await with_snapshot(runtime, tmp_path)).close()
    content = bytearray((tmp_path / "snapshot").read_bytes())
    for place in range(0, len(content), max(1, len(content) // PLACES)):
        content[place] ^= 1 << place % 8
        (tmp_path / "snapshot").write_bytes(content)
        content[place] ^= 1 << place % 8
        with pytest.raises((Corruption, FormatError), match="snapshot "):
            await EmbeddedStore.open(runtime, str(tmp_path))
    (tmp_path / "snapshot").write_bytes(content)
    await (await EmbeddedStore.open(runtime, str(tmp_path))).close()


async def test_lost_snapshot_is_noticed(tmp_path: Path, runtime: Runtime) -> None:
    await (await with_snapshot(runtime, tmp_path)).close()
    (tmp_path / "snapshot").unlink()
    with pytest.raises(Corruption, match="follows record 0"):
        await EmbeddedStore.open(runtime, str(tmp_path))


async def test_lost_log_is_noticed(tmp_path: Path, runtime: Runtime) -> None:
    await (await with_snapshot(runtime, tmp_path)).close()
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(Corruption, match="log is missing"):
        await EmbeddedStore.open(runtime, str(tmp_path))


async def test_older_log_beside_a_newer_snapshot_is_skipped(
    tmp_path: Path, runtime: Runtime
) -> None:
    """A crash between storing a snapshot and dropping the log leaves both."""
    store = await EmbeddedStore.open(runtime, str(tmp_path / "a"), snapshot_after_bytes=SMALL)
    (tmp_path / "kept").mkdir()
    first = tmp_path / "a/log/000000000001.journal"
    while not (tmp_path / "a/snapshot").exists():
        if first.exists():
            shutil.copy(first, tmp_path / "kept")
        await store.put("/x", b"0" * 100)
    await store.put("/x", b"end")
    before = await contents(store)
    await store.close()
    assert not first.exists()
    shutil.copy(tmp_path / "kept/000000000001.journal", first)
    store = await EmbeddedStore.open(runtime, str(tmp_path / "a"))
    assert await contents(store) == before
    await store.close()


async def test_foreign_folder_is_refused(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(FormatError, match=r"holiday\.jpg"):
        await EmbeddedStore.open(runtime, str(tmp_path))
    assert not (tmp_path / "log").exists()


async def test_log_of_another_kind_is_refused(tmp_path: Path, runtime: Runtime) -> None:
    journal = await Journal.open(
        runtime.disk, f"{tmp_path}/log", kind=b"LEDG", replay=lambda place, data: None
    )
    await journal.close()
    with pytest.raises(FormatError, match="LEDG"):
        await EmbeddedStore.open(runtime, str(tmp_path))


async def test_unknown_record_is_named_with_its_place(tmp_path: Path, runtime: Runtime) -> None:
    journal = await Journal.open(
        runtime.disk, f"{tmp_path}/log", kind=b"META", replay=lambda place, data: None
    )
    written = asyncio.Event()
    journal.append([b"\x07" * 30], lambda _: written.set())
    await written.wait()
    await journal.close()
    with pytest.raises(FormatError, match=r"segment 1, byte \d+: log record of format 7"):
        await EmbeddedStore.open(runtime, str(tmp_path))


async def test_second_opener_is_refused(tmp_path: Path, runtime: Runtime) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    with pytest.raises(FolderInUse, match=str(tmp_path)):
        await EmbeddedStore.open(runtime, str(tmp_path))
    await store.put("/a", b"")
    await store.close()
    await (await EmbeddedStore.open(runtime, str(tmp_path))).close()


async def test_refused_open_gives_the_folder_back(tmp_path: Path, runtime: Runtime) -> None:
    (tmp_path / "snapshot").write_bytes(b"nonsense")
    (tmp_path / "log").mkdir()
    for _ in range(2):
        with pytest.raises(FormatError):
            await EmbeddedStore.open(runtime, str(tmp_path))
