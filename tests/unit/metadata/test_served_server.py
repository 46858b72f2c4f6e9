"""A metadata server and its clients: shared requests, restarts, sessions that others end."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    BadVersion,
    ConfigError,
    NotFound,
    ProtocolError,
    Unreachable,
)
from anabranch.metadata.commands import Command, Write
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import ABSENT, Delete, EventKind, Put, SessionEvent, Stat
from anabranch.runtime.real import real_runtime


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}")


async def serving(store: LocalHandle, port: int = 0) -> MetadataServer:
    server = MetadataServer(real_runtime(), store, on_failure=failed)
    await server.start("127.0.0.1", port)
    return server


async def client_of(server: MetadataServer, timeout_s: float = 5.0) -> ServedStore:
    url = f"anabranch://127.0.0.1:{server.port}"
    return await ServedStore.open(real_runtime(), url, session_timeout_s=timeout_s)


@pytest.fixture
def commands(base: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """The writes that reach the store behind the server."""
    seen: list[Write] = []
    propose = base.backing.propose

    async def note(command: Command) -> Any:
        if isinstance(command, Write):
            seen.append(command)
        return await propose(command)

    monkeypatch.setattr(base.backing, "propose", note)
    return seen


@pytest.mark.goal("core.M6", part="served", broken_by="calls_go_out_alone")
async def test_concurrent_calls_share_a_request(store: ServedStore, commands: list[Write]) -> None:
    await asyncio.gather(
        *(store.put(f"/n/{i}", b"") for i in range(50)),
        store.batch([Put(f"/m/{i}", b"") for i in range(50)]),
    )
    assert [len(command.operations) for command in commands] == [100]


@pytest.mark.goal("core.M6", part="served", broken_by="calls_go_out_alone")
async def test_shared_requests_stay_within_the_limits(
    store: ServedStore, commands: list[Write]
) -> None:
    await asyncio.gather(*(store.put(f"/n/{i}", b"x" * 300_000) for i in range(10)))
    await asyncio.gather(*(store.put(f"/m/{i}", b"") for i in range(2500)))
    counts = [len(command.operations) for command in commands]
    assert sum(counts) == 2510
    assert max(counts) == limits.METADATA_COMMAND_OPERATIONS_MAX
    assert counts[:4] == [3, 3, 3, 1]


@pytest.mark.goal("core.M6", part="served", broken_by="one_refusal_fails_all_callers")
async def test_refused_call_does_not_fail_those_it_shared_a_request_with(
    store: ServedStore, commands: list[Write]
) -> None:
    results = await asyncio.gather(
        store.put("/a", b"1", ABSENT),
        store.put("/a", b"2", ABSENT),
        store.delete("/nothing"),
        store.put("/b", b"", ABSENT),
        store.batch([Put("/c", b""), Delete("/b"), Delete("/b")]),
        return_exceptions=True,
    )
    assert len(commands) == 1
    kinds = [type(result) for result in results]
    assert kinds == [Stat, BadVersion, NotFound, Stat, list]
    assert [type(outcome) for outcome in results[4]] == [Stat, type(None), NotFound]  # type: ignore[union-attr]


async def test_more_writes_than_fit_the_window_all_answer(
    store: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METADATA_UNANSWERED_WRITES_MAX", 4)
    monkeypatch.setattr(limits, "METADATA_COMMAND_OPERATIONS_MAX", 3)
    stats = await asyncio.gather(*(store.put(f"/n/{i}", b"") for i in range(100)))
    assert len({stat.revision for stat in stats}) == 100


async def test_answers_are_forgotten_once_read(store: ServedStore, base: MemoryStore) -> None:
    for i in range(20):
        await store.put("/a", b"%d" % i)
    session = base.backing.machine.sessions[store.session]
    assert len(session.answers) <= 2


async def test_answers_of_a_client_that_writes_no_more_are_forgotten_for_good(
    tmp_path: Path,
) -> None:
    local = await EmbeddedStore.open(real_runtime(), str(tmp_path))
    server = await serving(local)
    store, port = await client_of(server, timeout_s=1.0), server.port
    for i in range(20):
        await store.put("/a", b"%d" % i)
    machine = local.backing.machine
    assert machine.sessions[store.session].answers
    async with asyncio.timeout(20):
        while machine.sessions[store.session].answers:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    index = machine.tree.revision
    await asyncio.sleep(0.8)
    assert machine.tree.revision == index, "that changes nothing in the tree"
    await server.close()
    await local.close()
    local = await EmbeddedStore.open(real_runtime(), str(tmp_path))
    known = local.backing.machine.sessions[store.session]
    assert (known.answers, known.answered_below) == ({}, 21), "the log knows it, too"
    server = await serving(local, port)
    await store.put("/a", b"more")
    await store.close()
    await server.close()
    await local.close()


async def test_what_was_read_in_one_session_says_nothing_in_the_next(
    store: ServedStore, base: MemoryStore
) -> None:
    events = store.session_events()
    for i in range(20):
        await store.put("/a", b"%d" % i)
    await base.end_session(store.session)
    async with asyncio.timeout(5):
        while await anext(events) is not SessionEvent.SESSION_REESTABLISHED:
            pass
    await asyncio.sleep(store.session_timeout_s * 0.4)
    assert base.backing.machine.sessions[store.session].answered_below == 1
    await store.put("/a", b"more")


@pytest.mark.goal("core.M7", part="served", broken_by="scan_takes_all_at_once")
async def test_large_tree_is_streamed_in_bounded_memory(
    store: ServedStore, base: MemoryStore
) -> None:
    """Both ends are in this process: what they hold at the same time is the peak."""
    count = 20_000
    for start in range(0, count, 1000):
        await base.batch([Put(f"/n/{i:06}", b"x" * 100) for i in range(start, start + 1000)])
    tracemalloc.start()
    try:
        for scan in (store.scan, base.scan, store.export):
            peaks = [await peak_bytes_of(scan("/n"), count + 1)]
            # What else this process does meanwhile can only add to a peak.
            while min(peaks) >= 2 * limits.MIB and len(peaks) < 3:
                peaks.append(await peak_bytes_of(scan("/n"), count + 1))
            assert min(peaks) < 2 * limits.MIB, f"{peaks} bytes"
    finally:
        tracemalloc.stop()


async def peak_bytes_of(nodes: AsyncIterator[Any], count: int) -> int:
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    assert len([None async for _ in nodes]) == count
    return tracemalloc.get_traced_memory()[1] - before


async def test_session_and_its_nodes_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    local = await EmbeddedStore.open(real_runtime(), str(tmp_path), snapshot_after_bytes=1)
    server = await serving(local)
    store, looker = await client_of(server), await client_of(server)
    events = store.session_events()
    await store.put("/e", b"", ephemeral=True)
    last = await store.put("/q/n-", b"", sequential=True)
    watch = looker.watch("/", since=last.revision)
    session, port = store.session, server.port
    await server.close()
    await local.close()
    local = await EmbeddedStore.open(real_runtime(), str(tmp_path))
    server = await serving(local, port)
    assert [await anext(events) for _ in range(2)] == [
        SessionEvent.CONNECTION_LOST,
        SessionEvent.RECONNECTED,
    ]
    assert store.session == session
    node = await store.get("/e")
    assert node is not None
    assert node.stat.created_by_self
    assert (await store.put("/q/n-", b"", sequential=True)).path > last.path
    async with asyncio.timeout(5):
        assert (await anext(watch)).path.startswith("/q/n-")
    local.backing.machine.validate()
    await store.close()
    assert not await looker.exists("/e")
    await looker.close()
    await server.close()
    await local.close()


@pytest.mark.goal("core.M5", part="served", broken_by="gap_is_passed_over")
async def test_changes_that_the_server_has_forgotten_are_a_gap(
    store: ServedStore, base: MemoryStore, server: MetadataServer
) -> None:
    base.backing.history._events_max = 10
    watch = store.watch("/")
    await store.put("/a", b"")
    assert (await anext(watch)).path == "/a"
    for connection in list(server.connections):
        connection.hang_up("a test")
    for i in range(50):
        await base.put("/b", b"%d" % i)
    async with asyncio.timeout(10):
        gap = await anext(watch)
        assert (gap.kind, gap.path) == (EventKind.GAP, "/")
        assert gap.revision == await base.revision()
        await base.put("/c", b"")
        assert (await anext(watch)).path == "/c", "it goes on after the gap"


async def test_session_that_an_operator_ends_is_over_at_once(
    store: ServedStore, base: MemoryStore
) -> None:
    events, session = store.session_events(), store.session
    await store.put("/e", b"", ephemeral=True)
    await base.end_session(session)
    assert not await base.exists("/e")
    async with asyncio.timeout(5):
        assert [await anext(events) for _ in range(3)] == [
            SessionEvent.CONNECTION_LOST,
            SessionEvent.SESSION_LOST,
            SessionEvent.SESSION_REESTABLISHED,
        ]
    assert store.session != session


async def test_calls_wait_for_a_server_that_is_away_for_a_moment(tmp_path: Path) -> None:
    local = await EmbeddedStore.open(real_runtime(), str(tmp_path))
    server = await serving(local)
    store, port = await client_of(server), server.port
    await server.close()
    calls = asyncio.gather(store.put("/a", b"1"), store.get("/a"), store.children("/"))
    await asyncio.sleep(0.2)
    server = await serving(local, port)
    stat, _, _ = await calls
    assert stat.path == "/a"
    await store.close()
    await server.close()
    await local.close()


async def test_store_that_nobody_serves_is_unreachable(
    base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serving(base)
    store, port = await client_of(server, timeout_s=0.5), server.port
    await server.close()
    with pytest.raises(Unreachable, match="cannot be reached"):
        await store.get("/a")
    await store.close()
    with pytest.raises(AlreadyClosed):
        await store.get("/a")
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(Unreachable, match=str(port)):
        await ServedStore.open(
            real_runtime(), f"anabranch://127.0.0.1:{port}", session_timeout_s=0.5
        )


async def test_second_address_is_tried(server: MetadataServer) -> None:
    unused = await serving(MemoryStore(real_runtime().clock))
    port = unused.port
    await unused.close()
    url = f"anabranch://127.0.0.1:{port},127.0.0.1:{server.port}"
    store = await open_store(url, real_runtime())
    await store.put("/a", b"there")
    node = await store.get("/a")
    assert node is not None
    assert node.value == b"there"
    await store.close()


async def test_timeout_out_of_bounds_is_refused(server: MetadataServer) -> None:
    with pytest.raises(ProtocolError, match="session timeout of 1 ms"):
        await client_of(server, timeout_s=0.001)


async def test_unknown_store_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="anabranch://<host>:<port>"):
        await open_store("etcd:somewhere", real_runtime())
