"""Peers of a metadata server that break its rules: only their own connection ends."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.frames import FrameReader, frame
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import Put

HELLO = pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=5000))


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
    # It never renews its session, which is not to run out while a busy machine gets this done.
    peer.send(pb.Frame(hello=pb.Hello(protocol=1, timeout_ms=300_000)))
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
