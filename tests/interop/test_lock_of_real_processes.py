"""One lock of a served store, wanted by real processes that are killed and stopped."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from anabranch.testing.lock_switch import Holder, measure_switches, served_store

TIMEOUT_S = 1.0
SPARE_S = 5.0
"""What a busy machine may add; the figure itself is a benchmark."""


async def test_the_lock_of_a_killed_holder_changes_hands(tmp_path: Path) -> None:
    for taken_s in await measure_switches(f"{tmp_path}/store", timeout_s=TIMEOUT_S, switches=2):
        assert taken_s < TIMEOUT_S + SPARE_S


@pytest.mark.goal("core.M10", part="served", broken_by="held_ignores_lease")
async def test_a_stopped_holder_never_acts_after_its_successor_began(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served_store(f"{tmp_path}/store"))
        ash = await stack.enter_async_context(Holder(url, "ash", TIMEOUT_S))
        first = await ash.until("acts")
        birch = await stack.enter_async_context(Holder(url, "birch", TIMEOUT_S))
        await birch.until("waits")
        ash.signal(signal.SIGSTOP)
        held = await birch.until("held")
        await birch.until("acts")
        ash.signal(signal.SIGCONT)
        lost = await ash.until("lost")
        await ash.until("waits")
        acts = [said.at_s for said in ash.said if said.word == "acts"]
        assert first.at_s <= max(acts) < held.at_s < lost.at_s
        await birch.kill()
        again = await ash.until("held")
        assert int(again.detail) > int(held.detail), "ash begins anew, with a larger token"


async def test_a_holder_that_is_stopped_for_a_moment_goes_on(tmp_path: Path) -> None:
    async with served_store(f"{tmp_path}/store") as url, Holder(url, "ash", 3.0) as ash:
        await ash.until("acts")
        ash.signal(signal.SIGSTOP)
        await asyncio.sleep(0.2)
        ash.signal(signal.SIGCONT)
        for _ in range(50):
            await ash.until("acts")
        assert [said.word for said in ash.said].count("held") == 1
