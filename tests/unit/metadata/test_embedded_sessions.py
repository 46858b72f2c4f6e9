"""Sessions, sequences, indexes and exports of the embedded store over restarts, and old folders."""

import asyncio
import shutil
from pathlib import Path

import pytest

from anabranch.errors import FolderInUse, NotFound, StoreFailed
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.store import EventKind, IndexKey, Put, Revision
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime

CORPUS = Path(__file__).parents[2] / "corpus/metadata"


@pytest.fixture
def runtime() -> Runtime:
    return real_runtime()


async def crashed_copy(store: EmbeddedStore, folder: Path, copy: Path) -> None:
    """What a process that is killed now leaves behind; the store itself is closed."""
    await asyncio.sleep(0)
    shutil.copytree(folder, copy)
    await store.close()


@pytest.mark.goal("core.M3", part="embedded", broken_by="dead_process_keeps_its_session")
@pytest.mark.parametrize("snapshot_after_bytes", [1 << 30, 1])
async def test_ephemeral_nodes_of_a_killed_process_are_gone_at_the_next_open(
    tmp_path: Path, runtime: Runtime, snapshot_after_bytes: int
) -> None:
    folder = tmp_path / "a"
    store = await EmbeddedStore.open(
        runtime, str(folder), snapshot_after_bytes=snapshot_after_bytes
    )
    await store.put("/e/one", b"", ephemeral=True)
    since = (await store.put("/e/lasting", b"")).revision
    session = store.session
    await crashed_copy(store, folder, tmp_path / "b")
    again = await EmbeddedStore.open(runtime, str(tmp_path / "b"))
    assert await again.children("/e") == ["lasting"]
    assert again.session > session, "numbers of sessions are not used twice"
    event = await anext(again.watch("/e", since=since))
    assert (event.kind, event.path) == (EventKind.DELETED, "/e/one")
    again._backing.machine.validate()
    await again.close()


@pytest.mark.goal("core.M4", part="embedded", broken_by="snapshot_forgets_sequences")
@pytest.mark.parametrize("snapshot_after_bytes", [1 << 30, 1])
async def test_sequences_and_indexes_go_on_after_a_restart(
    tmp_path: Path, runtime: Runtime, snapshot_after_bytes: int
) -> None:
    drawn: list[str] = []
    for _ in range(4):
        store = await EmbeddedStore.open(
            runtime, str(tmp_path), snapshot_after_bytes=snapshot_after_bytes
        )
        for _ in range(3):
            stat = await store.put(
                "/q/n-", b"", sequential=True, indexes=(IndexKey("all", str(len(drawn))),)
            )
            drawn.append(stat.path)
        await store.delete(drawn[-1])
        store._backing.machine.validate()
        await store.close()
    assert drawn == sorted(set(drawn))
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    found = [node.stat.path async for node in store.scan_index("all")]
    assert sorted(found) == [path for i, path in enumerate(drawn) if i % 3 != 2]
    await store.close()


async def test_last_handle_lets_go_of_the_folder(tmp_path: Path, runtime: Runtime) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    other = await store.handle()
    await store.put("/e", b"", ephemeral=True)
    await store.close()
    assert not await other.exists("/e")
    with pytest.raises(FolderInUse):
        await EmbeddedStore.open(runtime, str(tmp_path))
    await other.close()
    await (await EmbeddedStore.open(runtime, str(tmp_path))).close()


async def test_only_a_session_that_is_there_can_be_ended(tmp_path: Path, runtime: Runtime) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    with pytest.raises(NotFound, match="99"):
        await store.end_session(99)
    await store.close()


async def test_snapshot_and_export_at_the_same_time(tmp_path: Path, runtime: Runtime) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path), snapshot_after_bytes=1 << 30)
    await store.batch([Put(f"/n/{i:04}", b"old") for i in range(2000)])
    export = store.export("/n")
    seen = [await anext(export)]
    store._backing._replica._snapshot_after_bytes = 1
    await store.batch([Put(f"/n/{i:04}", b"new") for i in range(2000)])
    seen += [record async for record in export]
    assert {record.value for record in seen[1:]} == {b"old"}
    await store.close()
    again = await EmbeddedStore.open(runtime, str(tmp_path))
    assert [node.value async for node in again.scan("/n")] == [b""] + [b"new"] * 2000
    await again.close()


async def test_handle_on_a_failed_store_does_not_wait_for_a_session(
    tmp_path: Path, runtime: Runtime
) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path))
    store._backing._fail(StoreFailed("broken"))
    store.session_ended()
    with pytest.raises(StoreFailed):
        await store.put("/e", b"", ephemeral=True)
    await store.close()


async def test_folder_of_format_1_is_read_and_goes_on(tmp_path: Path, runtime: Runtime) -> None:
    shutil.copytree(CORPUS / "format-1", tmp_path / "store")
    store = await EmbeddedStore.open(runtime, str(tmp_path / "store"))
    nodes = {node.stat.path: node async for node in store.scan("/")}
    assert {path: node.value for path, node in nodes.items()} == {
        "/": b"",
        "/n": b"",
        "/n/0": b"8",
        "/n/1": b"9",
        "/n/2": b"10",
        "/n/3": b"11",
        "/versioned": b"2",
        "/ä": b"",
        "/ä/deep": b"\x00",
    }
    assert nodes["/versioned"].stat.version.native == 1
    assert nodes["/n/0"].stat.version.native == 2
    revision = await store.revision()
    assert revision == Revision(1, 19)
    assert (await store.put("/new", b"")).revision == Revision(2, 20)
    await store.put("/e", b"", ephemeral=True)
    await store.close()
    again = await EmbeddedStore.open(runtime, str(tmp_path / "store"), snapshot_after_bytes=1)
    assert await again.exists("/new")
    assert not await again.exists("/e")
    await again.close()
