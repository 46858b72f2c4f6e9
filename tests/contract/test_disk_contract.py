"""What every `Disk` does: the operating system's and the simulated one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import FolderInUse
from anabranch.runtime import Disk, Runtime
from anabranch.runtime.disk import DiskFile
from anabranch.runtime.real_disk import RealDisk
from anabranch.testing.simulation import World

Work = Callable[[Disk, str], Awaitable[Any]]
OnDisk = Callable[[Work], Any]


def on_real_disk(folder: Path) -> OnDisk:
    def run(work: Work) -> Any:
        async def main() -> Any:
            disk = RealDisk()
            try:
                return await work(disk, str(folder))
            finally:
                disk.close()

        return asyncio.run(main())

    return run


def on_simulated_disk(seed: int) -> OnDisk:
    def run(work: Work) -> Any:
        async def inside(runtime: Runtime) -> Any:
            await runtime.disk.make_folder("/data")
            return await work(runtime.disk, "/data")

        async def main(world: World) -> Any:
            return await world.process("machine").run(inside)

        return World(seed).run(main)

    return run


@pytest.fixture(params=["real", "simulated-1", "simulated-2"])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> OnDisk:
    kind, _, seed = request.param.partition("-")
    return on_simulated_disk(int(seed)) if kind == "simulated" else on_real_disk(tmp_path)


async def append(file: DiskFile, *buffers: bytes, sync: bool = True) -> None:
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: OSError | None) -> None:
        if error is None:
            finished.set_result(None)
        else:
            finished.set_exception(error)

    file.append(buffers, sync=sync, done=done)
    await finished


def test_appended_bytes_are_read_back_in_order(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        await append(file, b"one", bytearray(b"two"), memoryview(b"three"))
        await append(file, b"four", sync=False)
        assert await file.read_at(3, 8) == b"twothree"
        assert await file.read_at(11, 100) == b"four"
        assert await file.read_at(15, 1) == b""
        assert await file.size() == 15
        await file.close()
        assert await disk.read(f"{folder}/log") == b"onetwothreefour"

    on_disk(work)


def test_a_file_opened_for_reading_takes_no_append(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.replace(f"{folder}/log", b"as it was")
        file = await disk.open(f"{folder}/log", read_only=True)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await append(file, b"more")
        assert await file.read_at(3, 100) == b"it was"
        assert await file.size() == 9
        await file.close()
        assert await disk.read(f"{folder}/log") == b"as it was"

    on_disk(work)


def test_appends_in_flight_complete_in_the_order_of_the_calls(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        order: list[int] = []
        for number in range(50):
            assert await file.size() <= 2 * number
            file.append(
                [b"%02d" % number],
                sync=number % 3 == 0,
                done=lambda error, number=number: order.append(number),
            )
        await file.close()
        await asyncio.sleep(0)
        assert order == list(range(50))
        assert await disk.read(f"{folder}/log") == b"".join(b"%02d" % n for n in range(50))

    on_disk(work)


def test_more_buffers_than_one_system_call_takes(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        await append(file, *(b"%04d" % n for n in range(3000)))
        await file.close()
        assert await disk.read(f"{folder}/log") == b"".join(b"%04d" % n for n in range(3000))

    on_disk(work)


def test_a_file_opened_again_is_appended_at_its_end(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        for part in (b"a", b"b"):
            file = await disk.open(f"{folder}/log", create=part == b"a")
            assert file.path == f"{folder}/log"
            await append(file, part)
            await file.close()
        assert await disk.read(f"{folder}/log") == b"ab"

    on_disk(work)


def test_truncate_cuts_and_the_next_append_follows_the_cut(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        await append(file, b"0123456789")
        await file.truncate(4)
        assert await file.size() == 4
        await append(file, b"x")
        await file.close()
        assert await disk.read(f"{folder}/log") == b"0123x"

    on_disk(work)


def test_writing_again_changes_nothing_that_can_be_read(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        await append(file, b"0123456789" * 1000, sync=False)
        for offset in (0, 4, 9_999, 10_000):
            await file.write_again(offset)
        await append(file, b"x")
        await file.close()
        assert await disk.read(f"{folder}/log") == b"0123456789" * 1000 + b"x"

    on_disk(work)


def test_create_refuses_a_name_that_is_taken(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.replace(f"{folder}/log", b"kept")
        with pytest.raises(FileExistsError):
            await disk.open(f"{folder}/log", create=True)
        assert await disk.read(f"{folder}/log") == b"kept"

    on_disk(work)


def test_what_is_missing_is_an_error_that_names_it(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        missing = f"{folder}/missing"
        for attempt in (
            disk.open(missing),
            disk.read(missing),
            disk.remove(missing),
            disk.open(f"{missing}/deeper", create=True),
            disk.sync_folder(missing),
        ):
            with pytest.raises(FileNotFoundError, match="missing"):
                await attempt
        with pytest.raises(FileNotFoundError):
            disk.lock_folder(missing)
        assert await disk.list(missing) == []
        assert not await disk.exists(missing)

    on_disk(work)


def test_rename_takes_the_place_of_what_had_the_name(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.replace(f"{folder}/old", b"old")
        await disk.replace(f"{folder}/new", b"new")
        reader = await disk.open(f"{folder}/old")
        await disk.rename(f"{folder}/new", "old")
        assert await disk.list(folder) == ["old"]
        assert await disk.read(f"{folder}/old") == b"new"
        assert await reader.read_at(0, 10) == b"old", "who had it open keeps what it had"
        await reader.close()
        with pytest.raises(FileNotFoundError):
            await disk.rename(f"{folder}/new", "other")

    on_disk(work)


def test_replace_makes_and_swaps_whole_files(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.replace(f"{folder}/state", b"first")
        await disk.replace(f"{folder}/state", memoryview(b"second, longer"))
        assert await disk.read(f"{folder}/state") == b"second, longer"
        await disk.replace(f"{folder}/state", b"")
        assert await disk.read(f"{folder}/state") == b""
        assert await disk.list(folder) == ["state"]

    on_disk(work)


def test_folders_are_made_with_parents_listed_sorted_and_not_removed_as_files(
    on_disk: OnDisk,
) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.make_folder(f"{folder}/a/b/c")
        await disk.make_folder(f"{folder}/a/b/c")
        for name in ("z", "m", "k"):
            await disk.replace(f"{folder}/a/{name}", b"")
        await disk.sync_folder(f"{folder}/a")
        assert await disk.list(f"{folder}/a") == ["b", "k", "m", "z"]
        assert await disk.exists(f"{folder}/a/b/c")
        with pytest.raises(OSError, match="a/b"):
            await disk.remove(f"{folder}/a/b")
        await disk.remove(f"{folder}/a/m")
        assert await disk.list(f"{folder}/a") == ["b", "k", "z"]

    on_disk(work)


def test_a_file_is_not_a_folder_nor_a_folder_a_file(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        await disk.replace(f"{folder}/file", b"")
        with pytest.raises(IsADirectoryError):
            await disk.open(folder)
        with pytest.raises(NotADirectoryError):
            await disk.list(f"{folder}/file")
        with pytest.raises(NotADirectoryError):
            await disk.open(f"{folder}/file/below", create=True)

    on_disk(work)


def test_a_folder_has_one_holder_at_a_time(on_disk: OnDisk) -> None:
    async def work(disk: Disk, folder: str) -> None:
        lock = disk.lock_folder(folder)
        with pytest.raises(FolderInUse, match="in use by another process"):
            disk.lock_folder(folder)
        lock.release()
        disk.lock_folder(folder).release()
        assert await disk.list(folder) == ["lock"]

    on_disk(work)


def test_after_a_failed_append_every_later_one_fails_too(
    on_disk: OnDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(disk: Disk, folder: str) -> None:
        file = await disk.open(f"{folder}/log", create=True)
        await append(file, b"good")
        outcomes: list[OSError | None] = []
        if isinstance(disk, RealDisk):
            real_write = _failing_once("anabranch.runtime.real_disk._write_all", monkeypatch)
        else:
            disk._disk.fail_next("write")  # type: ignore[attr-defined]
            real_write = None
        for part in (b"torn", b"after"):
            file.append([part], sync=False, done=outcomes.append)
        await file.close()
        await asyncio.sleep(0)
        assert [type(outcome) for outcome in outcomes] == [OSError, OSError]
        assert real_write is None or real_write == [b"torn"]
        assert await disk.read(f"{folder}/log") == b"good"

    on_disk(work)


def _failing_once(name: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []

    def fail(fd: int, buffers: Any) -> None:
        seen.append(b"".join(buffers))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(name, fail)
    return seen
