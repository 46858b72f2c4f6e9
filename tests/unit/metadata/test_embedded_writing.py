"""The embedded store's writing side: shared syncs, failing disks, closing, snapshots in slices."""

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    BadVersion,
    InputError,
    OutcomeUnknown,
    StorageError,
    StoreFailed,
)
from anabranch.metadata.commands import Restore
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.snapshot import SnapshotReader
from anabranch.metadata.store import ABSENT, Put, Record
from anabranch.runtime import Runtime
from anabranch.runtime.network import Buffer
from anabranch.runtime.real import real_runtime
from anabranch.testing.failing_disk import FailingDisk


class BreakableDisk(FailingDisk):
    """A disk that can also be told not to replace files."""

    replace_error: OSError | None = None

    async def replace(self, path: str, content: Buffer) -> None:
        if self.replace_error is not None:
            raise self.replace_error
        await super().replace(path, content)

    def break_appends(self) -> None:
        self.verdict = lambda _path, _buffers: OSError(errno.EIO, "broken")


@pytest.fixture
def disk() -> BreakableDisk:
    return BreakableDisk()


@pytest.fixture
def runtime(disk: BreakableDisk) -> Runtime:
    return replace(real_runtime(), disk=disk)


@pytest.fixture
async def store(runtime: Runtime, tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = await EmbeddedStore.open(runtime, f"{tmp_path}/store", snapshot_after_bytes=5000)
    yield store
    await store.close()


@pytest.mark.goal("core.M6", part="embedded", broken_by="one_write_at_a_time")
async def test_concurrent_writes_share_a_sync(store: EmbeddedStore, disk: BreakableDisk) -> None:
    before = disk.appends
    await asyncio.gather(*(store.put(f"/n/{i}", b"") for i in range(50)))
    assert disk.appends - before <= 3


@pytest.mark.goal("core.M6", part="embedded", broken_by="batch_goes_out_singly")
async def test_batch_is_one_write(store: EmbeddedStore, disk: BreakableDisk) -> None:
    before = disk.appends
    await store.batch([Put(f"/n/{i}", b"") for i in range(100)])
    assert disk.appends - before == 1


async def test_nothing_is_seen_before_it_is_durable(
    store: EmbeddedStore, disk: BreakableDisk
) -> None:
    seen: list[bool] = []

    def look(_path: str, _buffers: object) -> None:
        seen.append(store._tree.exists("/a"))

    disk.verdict = look
    await store.put("/a", b"")
    assert seen[0] is False
    assert await store.exists("/a")


@pytest.mark.goal("rel.X4", part="metadata", broken_by="failed_write_counts_as_done")
@pytest.mark.goal("core.M2", part="embedded", broken_by="failed_write_counts_as_done")
async def test_failed_write_is_an_unknown_outcome_and_the_end(
    store: EmbeddedStore, runtime: Runtime, disk: BreakableDisk, tmp_path: Path
) -> None:
    await store.put("/kept", b"1")
    disk.break_appends()
    results = await asyncio.gather(
        *(store.put(f"/n/{i}", b"") for i in range(5)),
        store.batch([Put("/b", b"")]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [OutcomeUnknown] * 6
    disk.verdict = lambda _path, _buffers: None
    with pytest.raises(StoreFailed, match="broken"):
        await store.put("/later", b"")
    with pytest.raises(StoreFailed):
        await store.batch([Put("/later", b"")])
    node = await store.get("/kept")
    assert node is not None, "what was committed can still be read"
    await store.close()
    again = await EmbeddedStore.open(runtime, f"{tmp_path}/store")
    assert await again.children("/") == ["kept"]
    assert (await again.get("/kept")) == node
    await again.close()


async def test_disk_that_fails_while_opening_is_reported_and_the_folder_given_back(
    runtime: Runtime, disk: BreakableDisk, tmp_path: Path
) -> None:
    disk.break_appends()
    with pytest.raises(StorageError, match="broken"):
        await EmbeddedStore.open(runtime, str(tmp_path))
    disk.verdict = lambda _path, _buffers: None
    await (await EmbeddedStore.open(runtime, str(tmp_path))).close()


async def test_failed_snapshot_ends_the_store(
    store: EmbeddedStore, runtime: Runtime, disk: BreakableDisk, tmp_path: Path
) -> None:
    disk.replace_error = OSError(errno.ENOSPC, "no room")
    acknowledged = -1

    async def write_on() -> None:
        nonlocal acknowledged
        for i in range(1000):
            await store.put("/n", b"%d" % i)
            acknowledged = i

    with pytest.raises((StoreFailed, OutcomeUnknown), match="no room"):
        await write_on()
    await store.close()
    disk.replace_error = None
    again = await EmbeddedStore.open(runtime, f"{tmp_path}/store")
    node = await again.get("/n")
    assert node is not None
    assert int(node.value) >= acknowledged > 0
    await again.close()


async def test_close_finishes_writes_in_flight(
    store: EmbeddedStore, runtime: Runtime, tmp_path: Path
) -> None:
    writes = asyncio.gather(*(store.put(f"/n/{i}", b"") for i in range(20)))
    await asyncio.sleep(0)
    await store.close()
    assert len(await writes) == 20
    again = await EmbeddedStore.open(runtime, f"{tmp_path}/store")
    assert len(await again.children("/n")) == 20
    await again.close()


async def test_write_whose_caller_gave_up_goes_on(store: EmbeddedStore) -> None:
    write = asyncio.get_running_loop().create_task(store.put("/a", b"", ABSENT))
    await asyncio.sleep(0)
    write.cancel()
    with pytest.raises(BadVersion):
        await store.put("/a", b"", ABSENT)
    assert store._backing._budget.taken_bytes == 0
    assert store._backing._answers == {}


async def test_writers_wait_for_room(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store._backing._budget, "_limit_bytes", 3000)
    highest = 0

    async def put(i: int) -> None:
        nonlocal highest
        await store.put(f"/n/{i}", b"x" * 1000)
        highest = max(highest, store._backing._budget.taken_bytes)

    await asyncio.gather(*(put(i) for i in range(20)))
    assert 1000 < highest <= 3000
    assert len(await store.children("/n")) == 20


async def test_waiting_writer_learns_that_the_store_was_closed(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._backing._budget, "_limit_bytes", 1500)
    writes = [
        asyncio.get_running_loop().create_task(store.put(f"/n/{i}", b"x" * 1000)) for i in range(3)
    ]
    await asyncio.sleep(0)
    await store.close()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, AlreadyClosed) for result in results] == [False, True, True]


async def test_snapshot_of_a_large_tree_is_taken_in_slices(
    runtime: Runtime, tmp_path: Path
) -> None:
    folder = f"{tmp_path}/large"
    store = await EmbeddedStore.open(runtime, folder, snapshot_after_bytes=1 << 30)
    for start in range(0, 20_000, 1000):
        await store.batch([Put(f"/n/{i:05}", b"old") for i in range(start, start + 1000)])
    store._backing._replica._log._schedule._after_bytes = 1
    trigger = await store.put("/trigger", b"")
    task = store._backing._snapshot_task
    assert task is not None
    # Changed while the snapshot is under way: it must hold what was there before.
    loop = asyncio.get_running_loop()
    writes = [loop.create_task(store.put(f"/n/{19_999 - i:05}", b"new")) for i in range(20)]
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20_000 / limits.METADATA_PAGE_NODES_MAX
    await asyncio.gather(*writes)
    await store.close()
    reader = SnapshotReader("snapshot", (tmp_path / "large/snapshot").read_bytes())
    stored = [node for block in reader.blocks() for node in block]
    assert reader.header.counters.revision == trigger.revision
    assert [path for path, entry in stored if entry.value == b"new"] == []
    assert len(stored) == 20_003
    again = await EmbeddedStore.open(runtime, folder)
    values = [(await again.get(f"/n/{i:05}")).value for i in range(20_000)]  # type: ignore[union-attr]
    assert values.count(b"new") == 20
    again._tree.validate()
    await again.close()


async def test_close_does_not_wait_for_a_whole_snapshot(runtime: Runtime, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    store = await EmbeddedStore.open(runtime, str(folder), snapshot_after_bytes=1 << 30)
    for start in range(0, 10_000, 1000):
        await store.batch([Put(f"/n/{i:05}", b"") for i in range(start, start + 1000)])
    store._backing._replica._log._schedule._after_bytes = 1
    await store.put("/trigger", b"")
    await store.close()
    assert not (folder / "snapshot").exists()
    again = await EmbeddedStore.open(runtime, str(folder))
    assert len(await again.children("/n")) == 10_000
    await again.close()


async def test_a_command_too_large_for_the_log_leaves_no_hole_in_it(
    runtime: Runtime, tmp_path: Path
) -> None:
    store = await EmbeddedStore.open(runtime, str(tmp_path / "store"))
    large = [Record(f"/{number}", bytes(limits.MIB), 0, 0, 0) for number in range(17)]
    with pytest.raises(InputError, match="fit a log record"):
        await store.backing.propose(Restore(0, large))
    await store.put("/after", b"kept")
    await store.close()
    again = await EmbeddedStore.open(runtime, str(tmp_path / "store"))
    node = await again.get("/after")
    assert node is not None
    assert node.value == b"kept"
    await again.close()
