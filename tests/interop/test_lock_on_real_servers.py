"""One lock on a real ZooKeeper and a real Oxia; processes that want it are killed and stopped."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from anabranch.testing.lock_switch import Holder
from anabranch.testing.servers import zookeeper
from anabranch.testing.servers.oxia import oxia

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]
TIMEOUT_S = 3.0
SPARE_S = 6.0
"""What a busy machine and the clock ticks of the servers may add."""


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with zookeeper() as ensemble, oxia(3) as server:
        yield {"zookeeper": f"{ensemble.url}/locks", "oxia": server.url}


@pytest.fixture(
    params=[
        pytest.param(
            kind,
            marks=[
                pytest.mark.goal("core.M3", part=kind),
                pytest.mark.goal("core.M10", part=kind),
            ],
        )
        for kind in ("zookeeper", "oxia")
    ]
)
def url(request: pytest.FixtureRequest, urls: dict[str, str]) -> str:
    return urls[request.param]


async def test_stopped_and_killed_holders_are_followed_in_time(url: str) -> None:
    async with AsyncExitStack() as stack:
        ash = await stack.enter_async_context(Holder(url, "ash", TIMEOUT_S))
        await ash.until("acts")
        birch = await stack.enter_async_context(Holder(url, "birch", TIMEOUT_S))
        await birch.until("waits")
        ash.signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        held = await birch.until("held")
        assert held.at_s - stopped_s < TIMEOUT_S + SPARE_S
        await birch.until("acts")
        ash.signal(signal.SIGCONT)
        lost = await ash.until("lost")
        await ash.until("waits")
        acts = [said.at_s for said in ash.said if said.word == "acts"]
        assert max(acts) < held.at_s < lost.at_s, "who was replaced never acts again"
        killed_s = time.monotonic()
        await birch.kill()
        again = await ash.until("held")
        assert again.at_s - killed_s < TIMEOUT_S + SPARE_S
        assert int(again.detail) > int(held.detail), "ash begins anew, with a larger token"


async def test_holder_that_is_stopped_for_a_moment_goes_on(url: str) -> None:
    async with Holder(url, "ash", 2 * TIMEOUT_S) as ash:
        await ash.until("acts")
        ash.signal(signal.SIGSTOP)
        await asyncio.sleep(0.3)
        ash.signal(signal.SIGCONT)
        for _ in range(50):
            await ash.until("acts")
        assert [said.word for said in ash.said].count("held") == 1
