"""Connections to ZooKeeper and Oxia are cut at random under load; sessions, locks, watches and
unknown outcomes end right."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from random import Random

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.testing.relay import Relay, relay_to
from anabranch.testing.servers import oxia, zookeeper
from anabranch.testing.shared_load import Client, Findings, judge, look

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]
CLIENTS = 4
SESSION_S = 5.0
CUT_S = 8.0
Url = Callable[[int], str]


@pytest.fixture(params=["zookeeper", "oxia"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, Url, bool]]:
    """The port of a server, the URL of one that is reached by another port, whether gaps occur."""
    if request.param == "zookeeper":
        with zookeeper(memory=("-Xmx256m",)) as ensemble:
            yield ensemble.ports[0], lambda port: f"zk:127.0.0.1:{port}/cut", True
    else:
        with oxia(3) as running:
            yield running.port, lambda port: f"oxia://127.0.0.1:{port}/default", False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5 * SESSION_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def away_for_too_long(clients: list[Client], relays: list[Relay]) -> None:
    """The holder of the lock is cut off until its session is over; others go on meanwhile."""
    await until(lambda: any(client.holds for client in clients))
    number = next(number for number, client in enumerate(clients) if client.holds)
    away = clients[number]
    relays[number].refuse()
    await until(lambda: away.session_lost)
    await until(lambda: any(client.holds for client in clients if client is not away))
    assert not away.holds
    relays[number].accept()
    await until(lambda: SessionEvent.SESSION_REESTABLISHED in away.session_news)
    await until(lambda: away.holds)


@pytest.mark.goal("core.M5", part="zookeeper", broken_by="zk_rearmed_watches_lose_a_change")
@pytest.mark.goal("core.M5", part="zookeeper", broken_by="zk_rearmed_watches_tell_twice")
async def test_cut_at_random(server: tuple[int, Url, bool]) -> None:
    port, url, may_have_gaps = server
    random, runtime, found = Random(20), real_runtime(), Findings()
    async with AsyncExitStack() as stack:
        reader = await open_store(url(port), runtime, session_timeout_s=SESSION_S)
        stack.push_async_callback(reader.close)
        relays = [await stack.enter_async_context(relay_to(port)) for _ in range(CLIENTS)]
        clients: list[Client] = []
        for number, relay in enumerate(relays):
            store = await open_store(url(relay.port), runtime, session_timeout_s=SESSION_S)
            clients.append(Client(store, f"c{number}", runtime.clock, found))
            stack.push_async_callback(clients[-1].close)
            await clients[-1].listen()
        for client in clients:
            client.begin()
        looking = asyncio.ensure_future(look(clients, found))
        cutting = asyncio.gather(*(r.cut_at_random(Random(random.random())) for r in relays))
        await asyncio.sleep(CUT_S)
        cutting.cancel()
        with suppress(asyncio.CancelledError):
            await cutting
        assert not any(client.session_lost for client in clients), "the cuts were short"
        await away_for_too_long(clients, relays)
        await asyncio.gather(*(client.stop() for client in clients))
        await judge(clients, reader, found, one_history=may_have_gaps)
        looking.cancel()
        assert found.wrong == [], found
        assert found.sessions_lost == 1
        assert found.unknown > 0, "cuts that nobody noticed show nothing"
        assert found.locks > 10
        assert found.guarded > 10
        assert may_have_gaps or found.gaps == 0
        assert not may_have_gaps or found.compared > 1000, "most of what was told is compared"
