"""Long lists that a metadata server keeps for its clients: never mixed up, never left behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch import limits
from anabranch.errors import Unreachable
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import Put, Record, SessionEvent
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


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("turns", range(12))
async def test_an_export_that_is_cancelled_leaves_nothing_at_the_server(
    store: ServedStore, base: MemoryStore, turns: int
) -> None:
    reading = asyncio.get_running_loop().create_task(paths_of(store, "/"))
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    await settled(store)
    assert base.backing.machine.tree._views == []


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("turns", range(12))
async def test_children_that_are_cancelled_leave_nothing_at_the_server(
    store: ServedStore, server: MetadataServer, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(limits, "METADATA_FRAME_BYTES_USUAL", 1000)
    reading = asyncio.get_running_loop().create_task(store.children("/a"))
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    await settled(store)
    (connection,) = server.connections
    assert connection._answering is not None
    assert connection._answering.lists_kept == 0


@pytest.mark.usefixtures("trees")
async def test_a_list_that_nobody_reads_on_is_let_go(
    store: ServedStore, base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = store.export("/a")
    await anext(export)
    await store.sync()
    assert len(base.backing.machine.tree._views) == 1
    monkeypatch.setattr(limits, "METADATA_LIST_IDLE_S_MAX", 0.0)
    await store.sync()
    assert base.backing.machine.tree._views == []
    with pytest.raises(Unreachable, match="begin the list again"):
        await paths_from(export)


async def paths_from(export: AsyncIterator[Record]) -> list[str]:
    return [record.path async for record in export]


async def settled(store: ServedStore) -> None:
    """Until what was told the server has been heard, and what that led to as well."""
    for _ in range(3):
        await store.sync()
