"""Crash, power cut, pause and restart of simulated processes."""

import asyncio
import gc
from typing import Any

import pytest

from anabranch.errors import FolderInUse, StoreFailed
from anabranch.runtime import Runtime
from anabranch.testing.simulation import ProcessDied, World


def test_a_crash_runs_none_of_the_crashed_code() -> None:
    said: list[str] = []

    async def serve(runtime: Runtime) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                said.append("tick")
        finally:
            said.append("cleanup")

    async def main(world: World) -> list[str]:
        process = world.process("broker")
        process.start(serve)
        await asyncio.sleep(2.5)
        process.crash()
        assert not process.alive
        await asyncio.sleep(10)
        return list(said)

    assert World(1).run(main) == ["tick", "tick"]


def test_what_a_process_does_after_its_own_crash_has_no_effect() -> None:
    world = World(1)

    async def suicidal(runtime: Runtime) -> None:
        await runtime.disk.make_folder("/data")
        file = await runtime.disk.open("/data/log", create=True)
        await runtime.disk.sync_folder("/data")
        world.process("broker").crash()
        file.append([b"ghost"], sync=True, done=lambda error: pytest.fail("ghost"))
        runtime.disk.lock_folder("/data")
        await runtime.disk.replace("/data/other", b"ghost")
        pytest.fail("a dead process went on")

    async def read(runtime: Runtime) -> tuple[list[str], bytes]:
        runtime.disk.lock_folder("/data").release()
        return await runtime.disk.list("/data"), await runtime.disk.read("/data/log")

    async def main(world: World) -> Any:
        world.process("broker").start(suicidal)
        await asyncio.sleep(10)
        return await world.process("reader", machine="broker").run(read)

    assert world.run(main) == (["lock", "log"], b"")


def test_a_pause_holds_timers_and_deliveries_and_loses_none() -> None:
    ticks: list[float] = []
    loops: list[float] = []

    async def serve(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        for second in range(1, 11):
            loop.call_later(second, lambda: ticks.append(runtime.clock.monotonic_s()))
        while True:
            loops.append(runtime.clock.monotonic_s())
            await asyncio.sleep(1)

    async def main(world: World) -> None:
        process = world.process("broker")
        process.start(serve)
        await asyncio.sleep(2.5)
        process.pause(5)
        await asyncio.sleep(4.9)
        assert len(ticks) == 2
        assert len(loops) == 3
        await asyncio.sleep(3)
        ticks[:] = [round(tick - world.start_s, 3) for tick in ticks]

    World(1).run(main)
    assert ticks == [1.0, 2.0, 7.5, 7.5, 7.5, 7.5, 7.5, 8.0, 9.0, 10.0]


def test_a_paused_process_that_crashes_stays_dead() -> None:
    said: list[str] = []

    async def serve(runtime: Runtime) -> None:
        await asyncio.sleep(1)
        said.append("alive")

    async def main(world: World) -> None:
        process = world.process("broker")
        process.start(serve)
        await asyncio.sleep(0.5)
        process.pause(5)
        await asyncio.sleep(1)
        process.crash()
        await asyncio.sleep(100)

    World(1).run(main)
    assert said == []


def test_restart_runs_the_same_main_with_fresh_entropy_and_kept_disk() -> None:
    tokens: list[str] = []

    async def serve(runtime: Runtime) -> None:
        tokens.append(runtime.entropy.token_hex(8))
        await runtime.disk.make_folder(f"/life{len(tokens)}")
        await asyncio.sleep(1000)

    async def main(world: World) -> list[str]:
        process = world.process("broker")
        process.start(serve)
        for _ in range(2):
            await asyncio.sleep(1)
            process.crash()
            process.restart()
        await asyncio.sleep(1)
        return await process.runtime.disk.list("/")

    assert World(1).run(main) == ["life1", "life2", "life3"]
    assert len(set(tokens)) == 3


def test_an_exit_releases_what_the_process_held() -> None:
    async def brief(runtime: Runtime) -> None:
        await runtime.disk.make_folder("/data")
        runtime.disk.lock_folder("/data")

    async def main(world: World) -> None:
        process = world.process("broker")
        for _ in range(2):
            process.start(brief)
            await process.wait_exit()
            assert not process.alive
            assert process.exit_error is None

    World(1).run(main)


def test_two_processes_of_one_machine_share_its_folders_and_locks() -> None:
    async def hold(runtime: Runtime) -> None:
        await runtime.disk.make_folder("/data")
        runtime.disk.lock_folder("/data")
        await asyncio.sleep(1000)

    async def claim(runtime: Runtime) -> None:
        runtime.disk.lock_folder("/data/")

    async def main(world: World) -> None:
        holder, other = world.process("a", machine="m"), world.process("b", machine="m")
        holder.start(hold)
        await asyncio.sleep(1)
        with pytest.raises(FolderInUse):
            await other.run(claim)
        holder.crash()
        await other.run(claim)

    World(1).run(main)


def test_a_tolerated_error_ends_the_process_and_not_the_run() -> None:
    async def failing(runtime: Runtime) -> None:
        raise StoreFailed("sync failed")

    async def main(world: World) -> BaseException | None:
        process = world.process("broker")
        process.start(failing, tolerates=(StoreFailed,))
        await process.wait_exit()
        return process.exit_error

    assert isinstance(World(1).run(main), StoreFailed)


def test_work_inside_a_process_answers_or_dies_with_it() -> None:
    async def double(runtime: Runtime) -> int:
        await asyncio.sleep(1)
        return 42

    async def fail(runtime: Runtime) -> None:
        raise KeyError("inside")

    async def main(world: World) -> None:
        process = world.process("client")
        assert await process.run(double) == 42
        with pytest.raises(KeyError, match="inside"):
            await process.run(fail)
        asyncio.get_running_loop().call_later(0.5, process.crash)
        with pytest.raises(ProcessDied, match="client#1"):
            await process.run(double)

    World(1).run(main)


def test_wall_clocks_may_disagree_but_loop_time_is_one() -> None:
    async def main(world: World) -> None:
        fast, right = world.process("fast"), world.process("right")
        fast.machine.wall_skew_ms = 90_000
        await asyncio.sleep(1.5)
        assert right.runtime.clock.wall_ms() == 1_700_000_001_500
        assert fast.runtime.clock.wall_ms() == 1_700_000_091_500
        assert fast.runtime.clock.monotonic_s() == right.runtime.clock.monotonic_s()

    World(1).run(main)


def test_draws_of_one_process_do_not_shift_those_of_another() -> None:
    def draw(extra: int) -> tuple[int, float]:
        async def main(world: World) -> tuple[int, float]:
            for _ in range(extra):
                world.process("a").runtime.entropy.below(10)
            other = world.process("b").runtime.entropy
            return other.below(1_000_000), other.uniform(0, 1)

        return World(7).run(main)

    assert draw(0) == draw(5)


def test_process_that_is_started_while_a_world_ends_leaves_nothing_behind() -> None:
    async def idle(runtime: Runtime) -> None:
        await asyncio.sleep(3600)

    async def main(world: World) -> None:
        process = world.process("broker")
        process.start(idle)
        await asyncio.sleep(1)
        process.crash()
        try:
            asyncio.get_running_loop().call_later(1, world.fail, ValueError("over"))
            await asyncio.sleep(10)
        finally:
            process.restart()

    with pytest.raises(ValueError, match="over"):
        World(1).run(main)
    gc.collect()
