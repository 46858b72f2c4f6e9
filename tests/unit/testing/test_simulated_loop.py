"""Virtual time: it jumps, keeps asyncio's order, and says why it cannot go on."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime import Runtime
from anabranch.testing.simulation import (
    Deadlock,
    Escape,
    Livelock,
    OutOfTime,
    ProcessFailed,
    World,
)


def test_hours_pass_in_no_time_and_timers_fire_on_the_dot() -> None:
    async def main(world: World) -> list[float]:
        seen = []
        for pause_s in (3600.0, 0.25, 0.0):
            await asyncio.sleep(pause_s)
            seen.append(world.now_s())
        return seen

    assert World(1).run(main, time_limit_s=10_000) == [3600.0, 3600.25, 3600.25]


def test_callbacks_run_in_the_order_they_were_scheduled() -> None:
    async def main(world: World) -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_soon(order.append, number)
        await asyncio.sleep(1)
        return order

    assert World(1).run(main) == list(range(100))


def test_a_cancelled_timer_neither_fires_nor_moves_time() -> None:
    async def main(world: World) -> float:
        loop = asyncio.get_running_loop()
        for _ in range(500):
            loop.call_later(5, pytest.fail, "cancelled").cancel()
        await asyncio.sleep(1)
        return world.now_s()

    assert World(1).run(main) == 1.0


def test_sets_of_tasks_iterate_by_age_whatever_their_addresses() -> None:
    async def main(world: World) -> list[str]:
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(asyncio.sleep(1), name=f"n{n}") for n in range(50)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert World(1).run(main) == World(1).run(main)


def test_deadlock_names_who_waits_and_where() -> None:
    async def forgotten_wait(runtime: Runtime) -> None:
        await asyncio.Event().wait()

    async def main(world: World) -> None:
        world.process("broker").start(forgotten_wait)
        await world.process("broker").wait_exit()

    with pytest.raises(Deadlock, match=r"broker#1 waits at .*locks.py.*Event.wait") as caught:
        World(1).run(main)
    assert "scenario waits at" in str(caught.value)


def test_running_for_ever_without_time_is_an_error() -> None:
    async def main(world: World) -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="scenario"):
        World(1).run(main)


def test_a_scenario_that_goes_on_past_its_time_is_an_error() -> None:
    async def main(world: World) -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    with pytest.raises(OutOfTime, match=r"60\.0 virtual s: scenario waits at"):
        World(1).run(main, time_limit_s=60)


def _thread(loop: Any) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except Escape as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    raise errors[0]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.create_connection(asyncio.Protocol, "127.0.0.1", 80),
        lambda loop: loop.create_server(asyncio.Protocol, "127.0.0.1", 0),
        lambda loop: loop.getaddrinfo("localhost", 80),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
        _thread,
    ],
    ids=["executor", "connect", "listen", "resolve", "subprocess", "thread"],
)
def test_ways_around_the_doors_are_refused(attempt: Callable[[Any], Any]) -> None:
    async def main(world: World) -> None:
        attempt(asyncio.get_running_loop())

    with pytest.raises(Escape):
        World(1).run(main)


def test_an_error_of_the_scenario_comes_out_as_it_is() -> None:
    async def main(world: World) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        World(1).run(main)


def test_an_error_that_leaves_a_process_ends_the_run() -> None:
    async def broken(runtime: Runtime) -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError("theirs")

    async def main(world: World) -> None:
        world.process("broker").start(broken)
        await asyncio.sleep(10)

    with pytest.raises(ProcessFailed, match="broker#1 ended with ZeroDivisionError") as caught:
        World(1).run(main)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_of_a_callback_ends_the_run() -> None:
    async def broken(runtime: Runtime) -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(100)

    async def main(world: World) -> None:
        world.process("broker").start(broken)
        await asyncio.sleep(10)

    with pytest.raises(ProcessFailed, match="unheard failure in broker#1"):
        World(1).run(main)


def test_an_error_of_a_task_nobody_awaits_ends_the_run() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("unheard")

    async def broken(runtime: Runtime) -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(100)

    async def main(world: World) -> None:
        world.process("broker").start(broken)
        await asyncio.sleep(10)

    with pytest.raises(ProcessFailed, match="never retrieved"):
        World(1).run(main)
