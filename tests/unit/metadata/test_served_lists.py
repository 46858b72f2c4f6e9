"""Long lists that a metadata server keeps for its clients: never mixed up, never left behind."""

import asyncio

import pytest

from anabranch.errors import Unreachable
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import Put, SessionEvent
from anabranch.runtime.real import real_runtime

COUNT = 1200


@pytest.fixture
async def trees(base: MemoryStore) -> None:
    for tree in ("/a", "/b"):
        await base.batch([Put(f"{tree}/{i:05}", b"") for i in range(COUNT)])


async def hang_up(server: MetadataServer, store: ServedStore) -> None:
    events = store.session_events()
    for connection in list(server.connections):
        connection.hang_up("a test")
    assert await anext(events) is SessionEvent.CONNECTION_LOST


async def paths_of(store: ServedStore, prefix: str) -> list[str]:
    return [record.path async for record in store.export(prefix)]


@pytest.mark.usefixtures("trees")
async def test_an_export_never_goes_on_with_the_pages_of_another(
    store: ServedStore, server: MetadataServer
) -> None:
    slow = store.export("/a")
    found = [(await anext(slow)).path]
    await hang_up(server, store)
    other = asyncio.get_running_loop().create_task(paths_of(store, "/b"))
    await asyncio.sleep(0)

    async def read_on() -> None:
        async for record in slow:
            found.append(record.path)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(Unreachable, match="begin the list again"):
        await read_on()
    assert all(path.startswith("/a") for path in found)
    assert len(await other) == COUNT + 1


async def test_two_runs_of_a_server_know_none_of_each_others_lists(base: MemoryStore) -> None:
    def failed(name: str, error: BaseException) -> None:
        raise AssertionError(f"{name}: {error!r}")

    first, second = [MetadataServer(real_runtime(), base, on_failure=failed) for _ in range(2)]
    lists = [next(server.list_numbers) for server in (first, second) for _ in range(100)]
    assert len(set(lists)) == len(lists)
    assert all(0 < number < 2**63 for number in lists)
