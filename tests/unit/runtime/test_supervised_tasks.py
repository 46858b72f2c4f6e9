"""Background tasks have an owner that hears of their failures and their end."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from anabranch.runtime.tasks import Tasks


async def fail() -> None:
    raise KeyError("lost")


async def failures_heard() -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []
    tasks = Tasks(lambda name, error: heard.append((name, repr(error))))
    tasks.spawn("doomed", fail())
    await asyncio.sleep(0.01)
    await tasks.close()
    return heard


@pytest.mark.broken_by("tasks_swallow_failures")
async def test_the_owner_hears_of_a_failure() -> None:
    assert await failures_heard() == [("doomed", "KeyError('lost')")]


async def test_close_cancels_in_spawn_order_and_waits_for_the_end() -> None:
    ended: list[str] = []
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(name)
            await asyncio.sleep(0)
            ended.append(f"{name} wholly")

    for name in ("b", "a", "c"):
        tasks.spawn(name, work(name))
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == ["b", "a", "c", "b wholly", "a wholly", "c wholly"]


async def test_nothing_is_spawned_after_close() -> None:
    tasks = Tasks(lambda name, error: None)
    await tasks.close()
    late: Coroutine[Any, Any, None] = fail()
    with pytest.raises(AssertionError, match="late spawned after its group was closed"):
        tasks.spawn("late", late)
    late.close()
