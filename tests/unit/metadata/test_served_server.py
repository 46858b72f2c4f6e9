"""A metadata server and its peers: shared requests, restarts, and peers that misbehave."""

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Callable
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
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.commands import Command, Write
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.frames import FrameReader, frame
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import ABSENT, Delete, EventKind, Put, SessionEvent, Stat
from anabranch.runtime.real import real_runtime

HELLO = pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=5000))


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
async def base() -> AsyncIterator[MemoryStore]:
    base = MemoryStore(real_runtime().clock)
    yield base
    await base.close()


@pytest.fixture
async def server(base: MemoryStore) -> AsyncIterator[MetadataServer]:
    server = await serving(base)
    yield server
    await server.close()


@pytest.fixture
async def store(server: MetadataServer) -> AsyncIterator[ServedStore]:
    store = await client_of(server)
    yield store
    await store.close()


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
        for scan in (store.scan("/n"), base.scan("/n"), store.export("/n")):
            found = 0
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            async for _ in scan:  # type: ignore[attr-defined]
                found += 1
            _, peak = tracemalloc.get_traced_memory()
            assert found == count + 1
            assert peak - before < 2 * limits.MIB, f"{peak - before} bytes"
    finally:
        tracemalloc.stop()


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
    await store.put("/a", b"")
    await store.close()


async def test_timeout_out_of_bounds_is_refused(server: MetadataServer) -> None:
    with pytest.raises(ProtocolError, match="session timeout of 1 ms"):
        await client_of(server, timeout_s=0.001)


async def test_unknown_store_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="anabranch://<host>:<port>"):
        await open_store("zk:somewhere", real_runtime())


# --- peers that misbehave ---------------------------------------------------------------------


class Peer(asyncio.Protocol):
    """A peer that sends what it is told and keeps what it gets."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.more = asyncio.Event()
        self.frames: list[pb.Frame] = []
        self.reader = FrameReader()
        self.transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames += map(pb.Frame.FromString, self.reader.feed(data))
        self.more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.frames) < count:
                self.more.clear()
                await self.more.wait()

    def send(self, message: pb.Frame) -> None:
        self.transport.write(frame(message.SerializeToString()))


@pytest.fixture
async def peer(server: MetadataServer) -> AsyncIterator[Peer]:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(Peer, "127.0.0.1", server.port)
    yield peer
    peer.transport.abort()


async def refusal_to(peer: Peer) -> str:
    async with asyncio.timeout(5):
        await peer.closed.wait()
    return peer.frames[-1].refusal.message if peer.frames else ""


def requests(*asked: pb.Request) -> pb.Frame:
    return pb.Frame(requests=pb.Requests(requests=asked))


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (pb.Frame(), "unknown kind is not expected"),
        (requests(pb.Request(ping=pb.Ping())), "requests is not expected"),
        (pb.Frame(welcome=pb.Welcome()), "welcome is not expected"),
        (pb.Frame(hello=pb.Hello(protocol=2, timeout_ms=5000)), "version 2 of the metadata"),
        (pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=5000, features=["x"])), "needs x"),
        (pb.Frame(hello=pb.Hello(protocol=1)), "session timeout of 0 ms"),
        (pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=5000, session=77)), "77 has ended"),
    ],
)
async def test_wrong_beginning_is_refused_with_the_reason(
    peer: Peer, store: ServedStore, message: pb.Frame, named: str
) -> None:
    peer.send(message)
    assert named in await refusal_to(peer)
    await store.put("/others/go/on", b"")


async def test_wrong_secret_is_refused(peer: Peer, store: ServedStore) -> None:
    await store.put("/e", b"", ephemeral=True)
    hello = pb.Hello(protocol=1, timeout_ms=5000, session=store.session, secret=b"guess")
    peer.send(pb.Frame(hello=hello))
    assert "not the secret" in await refusal_to(peer)
    assert (await store.get("/e")) is not None


async def test_session_of_the_servers_own_process_cannot_be_taken(
    peer: Peer, base: MemoryStore
) -> None:
    peer.send(pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=5000, session=base.session)))
    assert "has ended" in await refusal_to(peer)
    await base.put("/e", b"", ephemeral=True)
    assert base.session in base.backing.machine.sessions


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (pb.Request(id=1), "unknown kind"),
        (pb.Request(id=1, write=pb.Write()), "without a number"),
        (pb.Request(id=1, write=pb.Write(number=1, operations=[pb.Operation()])), "unknown kind"),
    ],
)
async def test_request_that_is_none_ends_the_connection(
    peer: Peer, store: ServedStore, request_: pb.Request, named: str
) -> None:
    peer.send(HELLO)
    await peer.until(1)
    peer.send(requests(request_))
    assert named in await refusal_to(peer)
    await store.put("/others/go/on", b"")


async def test_bad_input_over_the_wire_is_an_answer(peer: Peer, base: MemoryStore) -> None:
    peer.send(HELLO)
    await peer.until(1)
    wrong = pb.Operation(put=pb.Put(path="no path"))
    peer.send(
        requests(
            pb.Request(id=1, get=pb.Path(path="no path")),
            pb.Request(id=2, write=pb.Write(number=1, operations=[wrong])),
            pb.Request(id=3, next=pb.Cursor(cursor=5)),
            pb.Request(id=4, restore=pb.Restore(records=[pb.Record(path="/a", session=5)])),
            pb.Request(id=5, exists=pb.Path(path="/")),
        )
    )
    await peer.until(2)
    answers = {r.id: r for f in peer.frames[1:] for r in f.replies.responses}
    assert [answers[i].HasField("error") for i in range(1, 6)] == [True, True, True, True, False]
    assert await base.children("/") == []


@pytest.mark.parametrize("seed", range(30))
async def test_noise_ends_only_its_own_connection(
    peer: Peer, store: ServedStore, seed: int, noise: Callable[[int], bytes]
) -> None:
    peer.transport.write(noise(seed))
    await store.put("/others/go/on", b"")
    async with asyncio.timeout(5):
        assert await store.exists("/others")


@pytest.fixture
def noise() -> Callable[[int], bytes]:
    def make(seed: int) -> bytes:
        rng = random.Random(seed)
        if seed % 3 == 0:
            return rng.randbytes(rng.randrange(1, 3000))
        message = bytearray(HELLO.SerializeToString() + rng.randbytes(rng.randrange(40)))
        message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)
        good = frame(HELLO.SerializeToString()) if seed % 3 == 1 else b""
        return good + frame(bytes(message))

    return make


async def test_many_long_lists_at_once_are_refused(peer: Peer, base: MemoryStore) -> None:
    await base.put("/a", b"")
    peer.send(HELLO)
    await peer.until(1)
    count = limits.METADATA_CURSORS_PER_CONNECTION_MAX
    peer.send(requests(*(pb.Request(id=i, export=pb.Path(path="/")) for i in range(1, count + 2))))
    await peer.until(2)
    responses = [r for f in peer.frames[1:] for r in f.replies.responses]
    assert [r.id for r in responses if r.HasField("error")] == [count + 1]
    peer.transport.abort()
    await asyncio.sleep(0.05)
    assert base.backing.machine.tree._views == [], "what was kept for the peer is let go"


async def test_slow_peer_does_not_pile_up_events(
    peer: Peer, store: ServedStore, base: MemoryStore, server: MetadataServer
) -> None:
    peer.send(HELLO)
    await peer.until(1)
    peer.send(requests(pb.Request(id=1, subscribe=pb.Subscribe(since=pb.Revision()))))
    await asyncio.sleep(0.05)
    peer.transport.pause_reading()
    path = "/" + "/".join(["x" * 250] * 30)
    for _ in range(300):
        await base.batch([Put(path, b"")] * 20)
    (slow,) = [c for c in server.connections if c._session != store.session]
    queued = slow._connection.get_write_buffer_size()
    assert queued < 2 * limits.METADATA_FRAME_BYTES_MAX
    assert not slow._writable
    peer.transport.resume_reading()
    told = 0
    async with asyncio.timeout(20):
        while told < 6000:
            await asyncio.sleep(0.05)
            told = sum(e.path == path for f in peer.frames for e in f.replies.events)
    assert told == 6000
