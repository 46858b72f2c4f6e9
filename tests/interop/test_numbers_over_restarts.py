"""Sequential nodes and counters on a real ZooKeeper and a real Oxia that are killed in between."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from anabranch.metadata.counters import BlockCounter, SequentialCounter
from anabranch.metadata.factory import open_store
from anabranch.metadata.paths import name_of
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import Member, oxia, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(200)]
WRITERS = 8
DRAWS = 10
RESTARTS = 2


@dataclass
class Server:
    url: str
    member: Member


@pytest.fixture(
    params=[
        pytest.param(kind, marks=pytest.mark.goal("core.M4", part=kind))
        for kind in ("zookeeper", "oxia")
    ]
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "zookeeper":
        with zookeeper(memory=("-Xmx256m",)) as ensemble:
            yield Server(f"{ensemble.url}/numbers", ensemble.members[0])
    else:
        with oxia(3) as running:
            yield Server(running.url, running.server)


async def nodes(store: MetadataStore) -> list[int]:
    """Numbers of sequential nodes, which are all deleted again."""
    found = []
    for _ in range(DRAWS):
        stat = await store.put("/queue/n-", b"", sequential=True)
        found.append(int(name_of(stat.path).removeprefix("n-")))
        await store.delete(stat.path)
    return found


async def tickets(store: MetadataStore) -> list[int]:
    counter = SequentialCounter(store, "/tickets")
    return [await counter.next() for _ in range(DRAWS)]


async def blocks(store: MetadataStore) -> list[int]:
    counter = BlockCounter(
        store, real_runtime(), "/ids", document_format="anabranch.test-ids", block=4
    )
    return [await counter.next() for _ in range(DRAWS)]


@pytest.mark.goal("core.M4", part="counters", broken_by="tickets_are_counted")
async def test_numbers_are_unique_and_rise_over_restarts(server: Server) -> None:
    largest = dict.fromkeys((nodes, tickets, blocks), -1)
    for restart in range(RESTARTS + 1):
        if restart:
            server.member.kill()
            server.member.start()
        stores = [
            await open_store(server.url, real_runtime(), session_timeout_s=10)
            for _ in range(WRITERS)
        ]
        for draw, before in largest.items():
            lists = await asyncio.gather(*(draw(store) for store in stores))
            drawn = [number for numbers in lists for number in numbers]
            assert len(set(drawn)) == WRITERS * DRAWS
            assert all(numbers == sorted(numbers) for numbers in lists)
            assert min(drawn) > before, f"{draw.__name__}: one was given out before the restart"
            largest[draw] = max(drawn)
        assert await stores[0].children("/queue") == []
        await asyncio.gather(*(store.close() for store in stores))
