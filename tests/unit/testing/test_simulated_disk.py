"""Faults of the simulated disk, each shown alone."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch.errors import FolderInUse
from anabranch.runtime import Runtime
from anabranch.runtime.disk import DiskFile
from anabranch.testing.simulation import Conditions, Process, World

SEEDS = range(60)
CALM = Conditions()


async def append(file: DiskFile, content: bytes, *, sync: bool) -> None:
    finished: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    file.append([content], sync=sync, done=finished.set_result)
    if (error := await finished) is not None:
        raise error


def after(
    seed: int,
    before: Callable[[Runtime], Awaitable[Any]],
    fault: Callable[[Process], None],
    *,
    at_s: float | None = None,
) -> dict[str, bytes]:
    """Run code in a process, let a fault end it when done or at a time, and return the files."""

    async def main(world: World) -> dict[str, bytes]:
        process = world.process("m")

        async def body(runtime: Runtime) -> None:
            await runtime.disk.make_folder("/d")
            await before(runtime)
            if at_s is None:
                fault(process)
            await asyncio.Event().wait()

        process.start(body)
        if at_s is None:
            await process.wait_exit()
        else:
            await asyncio.sleep(at_s)
            fault(process)
        await asyncio.sleep(1)
        return {path: bytes(inode.seen) for path, inode in process.machine.disk.tree.files()}

    return World(seed, conditions=CALM).run(main)


async def synced_then_not(runtime: Runtime) -> None:
    file = await runtime.disk.open("/d/log", create=True)
    await runtime.disk.sync_folder("/d")
    await append(file, b"S" * 5000, sync=True)
    await append(file, b"u" * 9000, sync=False)


def test_a_power_cut_keeps_synced_bytes_and_any_part_of_the_others() -> None:
    tails = [
        after(seed, synced_then_not, Process.power_cut)["/d/log"].removeprefix(b"S" * 5000)
        for seed in SEEDS
    ]
    assert all(b"S" not in tail and len(tail) <= 9000 for tail in tails)
    assert b"" in tails
    assert b"u" * 9000 in tails
    assert any(0 < len(tail) < 9000 and set(tail) == {ord("u")} for tail in tails), "torn"
    assert any(tail.rstrip(b"\0") != tail for tail in tails), "long but not written"
    assert any(b"\0u" in tail for tail in tails), "a later page without an earlier one"


def test_a_crash_keeps_every_byte_the_kernel_took() -> None:
    for seed in range(10):
        content = after(seed, synced_then_not, Process.crash)["/d/log"]
        assert content == b"S" * 5000 + b"u" * 9000


async def five_in_flight(runtime: Runtime) -> None:
    file = await runtime.disk.open("/d/log", create=True)
    await runtime.disk.sync_folder("/d")
    for number in range(5):
        file.append([b"%d" % number * 100], sync=True, done=lambda _: None)


def test_a_crash_finishes_tears_or_drops_appends_in_flight_in_order() -> None:
    whole = b"".join(b"%d" % number * 100 for number in range(5))
    lengths = set()
    for seed in SEEDS:
        content = after(seed, five_in_flight, Process.crash)["/d/log"]
        assert whole.startswith(content)
        lengths.add(len(content))
    assert {0, 500} < lengths
    assert any(length % 100 for length in lengths)


async def names_not_synced(runtime: Runtime) -> None:
    file = await runtime.disk.open("/d/new", create=True)
    await append(file, b"content", sync=True)


def test_a_new_name_is_lost_without_a_sync_of_its_folder() -> None:
    left = [after(seed, names_not_synced, Process.power_cut) for seed in SEEDS]
    assert {} in left
    assert {"/d/new": b"content"} in left
    assert len({tuple(files) for files in left}) == 2


async def replaced_twice(runtime: Runtime) -> None:
    await runtime.disk.replace("/d/state", b"old" * 3000)
    await runtime.disk.replace("/d/state", b"new" * 4000)


@pytest.mark.parametrize("fault", [Process.power_cut, Process.crash])
def test_replace_is_all_or_nothing_at_every_moment(fault: Callable[[Process], None]) -> None:
    seen: set[bytes | None] = set()
    beside = False
    for seed in range(3):
        for step in range(120):
            files = after(seed, replaced_twice, fault, at_s=0.00011 * step)
            content = files.get("/d/state")
            assert content in (None, b"old" * 3000, b"new" * 4000)
            seen.add(content)
            beside |= "/d/state.new" in files
    assert len(seen) == 3
    assert beside


async def removed(runtime: Runtime) -> None:
    await runtime.disk.replace("/d/a", b"a")
    await runtime.disk.remove("/d/a")


def test_a_removed_file_stays_removed() -> None:
    for seed in range(20):
        assert after(seed, removed, Process.power_cut) == {}


def on_disk(story: Callable[[Runtime, Process], Awaitable[None]], seed: int = 1) -> None:
    async def main(world: World) -> None:
        process = world.process("m")

        async def inside(runtime: Runtime) -> None:
            await runtime.disk.make_folder("/d")
            await story(runtime, process)

        await process.run(inside)

    World(seed, conditions=CALM).run(main)


def test_a_full_disk_takes_what_fits_and_says_so_until_room_is_made() -> None:
    async def story(runtime: Runtime, process: Process) -> None:
        disk = process.machine.disk
        disk.capacity_bytes = 100
        await runtime.disk.replace("/d/other", b"x" * 40)
        file = await runtime.disk.open("/d/log", create=True)
        await append(file, b"y" * 50, sync=True)
        with pytest.raises(OSError, match="No space left") as caught:
            await append(file, b"z" * 50, sync=True)
        assert caught.value.errno == errno.ENOSPC
        assert await runtime.disk.read("/d/log") == b"y" * 50 + b"z" * 10
        with pytest.raises(OSError, match="No space left"):
            await runtime.disk.replace("/d/other", b"w")
        assert await runtime.disk.read("/d/other") == b"x" * 40
        await file.truncate(50)
        assert disk.free_bytes() == 10
        await runtime.disk.remove("/d/log")
        assert disk.free_bytes() == await runtime.disk.free_bytes("/d") == 60
        with pytest.raises(FileNotFoundError):
            await runtime.disk.free_bytes("/elsewhere")
        await runtime.disk.replace("/d/other", b"w" * 60)
        assert disk.free_bytes() == 40

    on_disk(story)


def test_a_failed_sync_may_have_lost_the_bytes_though_later_syncs_succeed() -> None:
    kept = set()

    async def main(world: World) -> bytes:
        process = world.process("m")

        async def failing(runtime: Runtime) -> None:
            await runtime.disk.make_folder("/d")
            file = await runtime.disk.open("/d/log", create=True)
            await runtime.disk.sync_folder("/d")
            await append(file, b"good", sync=True)
            process.machine.disk.fail_next("sync", "/d/log")
            with pytest.raises(OSError, match="Input/output error"):
                await append(file, b"bad!", sync=True)
            again = await runtime.disk.open("/d/log")
            kept.add(await runtime.disk.read("/d/log"))
            await append(again, b"more", sync=True)

        await process.run(failing)
        process.power_cut()
        return await process.runtime.disk.read("/d/log")

    for seed in range(20):
        assert World(seed, conditions=CALM).run(main) == b"good\0\0\0\0more"
    assert kept == {b"goodbad!", b"good\0\0\0\0"}


def test_writing_again_saves_what_a_failed_sync_left_in_memory_only() -> None:
    async def main(world: World) -> tuple[bytes, bytes]:
        process = world.process("m")

        async def failing(runtime: Runtime) -> bytes:
            await runtime.disk.make_folder("/d")
            file = await runtime.disk.open("/d/log", create=True)
            await runtime.disk.sync_folder("/d")
            process.machine.disk.fail_next("sync", "/d/log")
            with pytest.raises(OSError, match="Input/output error"):
                await append(file, b"bad!", sync=True)
            again = await runtime.disk.open("/d/log")
            await again.write_again(0)
            return await runtime.disk.read("/d/log")

        seen = await process.run(failing)
        process.power_cut()
        return seen, await process.runtime.disk.read("/d/log")

    pairs = {World(seed, conditions=CALM).run(main) for seed in range(20)}
    assert pairs == {(b"bad!", b"bad!"), (bytes(4), bytes(4))}


async def written_again(runtime: Runtime) -> None:
    file = await runtime.disk.open("/d/log", create=True)
    await runtime.disk.sync_folder("/d")
    await append(file, b"S" * 9000, sync=True)
    while True:
        await file.write_again(100)


def test_a_power_cut_while_writing_again_loses_nothing_that_was_durable() -> None:
    for step in range(60):
        files = after(step, written_again, Process.power_cut, at_s=0.1 + 0.0001 * step)
        assert files["/d/log"] == b"S" * 9000


def test_an_ordered_failure_happens_once_and_only_where_ordered() -> None:
    async def story(runtime: Runtime, process: Process) -> None:
        await runtime.disk.replace("/d/a", b"a")
        await runtime.disk.replace("/d/b", b"b")
        process.machine.disk.fail_next("read", "/d/b")
        assert await runtime.disk.read("/d/a") == b"a"
        with pytest.raises(OSError, match="Input/output error"):
            await runtime.disk.read("/d/b")
        assert await runtime.disk.read("/d/b") == b"b"

    on_disk(story)


def test_bits_rot_at_rest() -> None:
    async def story(runtime: Runtime, process: Process) -> None:
        await runtime.disk.replace("/d/a", b"abc")
        process.machine.disk.flip_bit("/d/a", 1, bit=2)
        assert await runtime.disk.read("/d/a") == b"afc"

    on_disk(story)


def test_a_slow_disk_takes_longer() -> None:
    async def story(runtime: Runtime, process: Process) -> None:
        file = await runtime.disk.open("/d/log", create=True)
        began_s = runtime.clock.monotonic_s()
        await append(file, b"x", sync=True)
        middle_s = runtime.clock.monotonic_s()
        process.machine.disk.slow_down(1000)
        await append(file, b"x", sync=True)
        assert runtime.clock.monotonic_s() - middle_s > 10 * (middle_s - began_s)

    on_disk(story)


def test_a_lock_outlives_no_process() -> None:
    async def hold(runtime: Runtime) -> None:
        runtime.disk.lock_folder("/d")

    for fault in (Process.crash, Process.power_cut):

        async def main(world: World, fault: Callable[[Process], None] = fault) -> None:
            process = world.process("m")
            await process.runtime.disk.make_folder("/d")
            await process.run(hold)
            neighbour = world.process("neighbour", machine="m")
            with pytest.raises(FolderInUse):
                await neighbour.run(hold)
            fault(process)
            await process.run(hold)

        World(1).run(main)
