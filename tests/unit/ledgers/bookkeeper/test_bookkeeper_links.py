"""The way to a bookie: order of answers, lost connections, silence, credentials, TLS."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch import limits
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.link import BookieLink
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.metadata.digest_md5 import DigestMd5, parse
from anabranch.runtime.network import Tls
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.bookies.loopback_cluster import until

Script = Callable[["Peer", pb.Request], None]


def answer(request: pb.Request, status: pb.StatusCode = pb.EOK, **parts: Any) -> bytes:
    return frames.frame(pb.Response(header=request.header, status=status, **parts))


def entry(request: pb.Request, body: bytes = b"") -> bytes:
    read = request.read
    part = pb.ReadResponse(
        status=pb.EOK, ledger_id=read.ledger_id, entry_id=read.entry_id, body=body
    )
    return answer(request, read=part)


class Peer(asyncio.Protocol):
    """A bookie that does what a test says."""

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.transport: Any = None
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.bench.peers.append(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := frames.frame_end(self.received, 0, 1 << 24)) <= len(self.received):
            request = frames.parse_request(self.received[frames.LENGTH_BYTES : end])
            self.received = self.received[end:]
            self.bench.asked.append(request)
            self.bench.script(self, request)

    async def secure(self, context: ssl.SSLContext) -> None:
        self.transport = await asyncio.get_running_loop().start_tls(
            self.transport, self, context, server_side=True
        )


class Bench:
    def __init__(self) -> None:
        self.runtime = real_runtime()
        self.tasks = Tasks(self.task_failed)
        self.peers: list[Peer] = []
        self.asked: list[pb.Request] = []
        self.failures: list[BaseException] = []
        self.script: Script = lambda peer, request: peer.transport.write(entry(request))
        self.port = 0
        self.host = "127.0.0.1"

    def task_failed(self, _: str, failure: BaseException) -> None:
        self.failures.append(failure)

    async def start(self) -> None:
        self.listener = await self.runtime.network.listen(
            "127.0.0.1", self.port, lambda: Peer(self)
        )
        self.port = self.listener.port

    async def stop(self) -> None:
        await self.listener.close()
        for peer in self.peers:
            peer.transport.abort()
        self.peers.clear()

    def link(self, **settings: Any) -> BookieLink:
        async def resolve(_: str) -> tuple[str, int]:
            return self.host, self.port

        known = BookKeeperSettings(**{"request_timeout_s": 0.3, **settings})
        return BookieLink(self.runtime, "the bookie", resolve, known, self.tasks)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.stop()
    await bench.tasks.close()
    assert not bench.failures


async def status_of(link: BookieLink, entry_id: int = 0) -> Status:
    return (await link.call(frames.read(1, entry_id)))[0]


async def test_answers_come_in_any_order(bench: Bench) -> None:
    kept: list[bytes] = []

    def backwards(peer: Peer, request: pb.Request) -> None:
        kept.append(entry(request, b"%d" % request.read.entry_id))
        if len(kept) == 3:
            peer.transport.writelines(reversed(kept))

    bench.script = backwards
    link = bench.link()
    replies = await asyncio.gather(*(link.call(frames.read(1, number)) for number in range(3)))
    assert [response and response.read.body for _, response in replies] == [b"0", b"1", b"2"]
    assert len(bench.peers) == 1
    link.close()


async def test_a_large_answer_in_many_pieces(bench: Bench) -> None:
    body = bytes(range(256)) * 20_000
    bench.script = lambda peer, request: peer.transport.write(entry(request, body))
    link = bench.link(request_timeout_s=10)
    replies = await asyncio.gather(*(link.call(frames.read(1, number)) for number in range(3)))
    assert all(response and response.read.body == body for _, response in replies)
    link.close()


async def test_a_lost_connection_fails_what_is_under_way_and_is_made_again(bench: Bench) -> None:
    link = bench.link()
    assert await status_of(link) is Status.OK
    bench.script = lambda peer, _: peer.transport.abort()
    assert await status_of(link) is Status.UNREACHABLE
    bench.script = lambda peer, request: peer.transport.write(entry(request))
    assert await status_of(link) is Status.OK
    assert len(bench.peers) == 2
    link.close()


async def test_a_bookie_that_is_away_is_not_tried_at_every_request(bench: Bench) -> None:
    await bench.stop()
    link = bench.link()
    assert await status_of(link) is Status.UNREACHABLE
    await bench.start()
    assert await status_of(link) is Status.UNREACHABLE, "soon, without a connection"
    assert not bench.asked
    await asyncio.sleep(limits.BOOKKEEPER_RECONNECT_DELAY_S_MIN)
    assert await status_of(link) is Status.OK
    link.close()


async def test_a_bookie_that_only_accepts_connections_is_not_tried_at_every_request(
    bench: Bench,
) -> None:
    bench.script = lambda peer, _: peer.transport.abort()
    link = bench.link()
    for _ in range(20):
        assert await status_of(link) is Status.UNREACHABLE
    assert len(bench.peers) <= 3, "others are asked meanwhile"
    bench.script = lambda peer, request: peer.transport.write(entry(request))
    await asyncio.sleep(4 * limits.BOOKKEEPER_RECONNECT_DELAY_S_MIN)
    assert await status_of(link) is Status.OK
    link.close()


async def test_what_a_bookie_does_not_answer_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = bench.link(request_timeout_s=30)
    assert await status_of(link) is Status.OK
    monkeypatch.setattr(limits, "BOOKKEEPER_UNANSWERED_BYTES_MAX", 200)
    kept: list[tuple[Peer, pb.Request]] = []
    bench.script = lambda peer, request: kept.append((peer, request))
    first = [asyncio.ensure_future(link.call(frames.read(1, number))) for number in range(5)]
    await until(lambda: len(kept) == 5)
    more = [asyncio.ensure_future(status_of(link, number)) for number in range(20)]
    await asyncio.sleep(0.1)
    assert more[-1].done()
    assert more[-1].result() is Status.TOO_SLOW, "all was sent, but is held"
    bench.script = lambda peer, request: peer.transport.write(entry(request))
    for peer, request in kept:
        peer.transport.write(entry(request))
    assert [status for status, _ in await asyncio.gather(*first)] == [Status.OK] * 5
    await asyncio.gather(*more)
    assert await status_of(link) is Status.OK, "it has caught up"
    link.close()


async def test_no_answer_in_time(bench: Bench) -> None:
    def only_odd(peer: Peer, request: pb.Request) -> None:
        if request.read.entry_id % 2:
            peer.transport.write(entry(request))

    bench.script = only_odd
    link = bench.link()
    late = asyncio.ensure_future(status_of(link, 0))
    while not late.done():
        assert await status_of(link, 1) is Status.OK
        await asyncio.sleep(0.02)
    assert await late is Status.TIMED_OUT
    assert len(bench.peers) == 1, "it does answer other requests"
    link.close()


async def test_silence_ends_the_connection(bench: Bench) -> None:
    link = bench.link()
    assert await status_of(link) is Status.OK
    bench.script = lambda *_: None
    assert await status_of(link) is Status.TIMED_OUT
    bench.script = lambda peer, request: peer.transport.write(entry(request))
    assert await status_of(link) is Status.OK
    assert len(bench.peers) == 2
    link.close()


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x02\xff\xff", b"\xff" * 100])
async def test_what_is_no_answer_ends_the_connection(bench: Bench, garbage: bytes) -> None:
    bench.script = lambda peer, _: peer.transport.write(garbage)
    link = bench.link(request_timeout_s=10)
    assert await status_of(link) is Status.UNREACHABLE
    link.close()


async def test_an_answer_to_nobody_is_passed_over(bench: Bench) -> None:
    def twice(peer: Peer, request: pb.Request) -> None:
        peer.transport.write(entry(request) * 2)

    bench.script = twice
    link = bench.link()
    assert [await status_of(link) for _ in range(3)] == [Status.OK] * 3
    link.close()


async def test_a_closed_link_lets_nothing_through(bench: Bench) -> None:
    asked = asyncio.Event()
    bench.script = lambda *_: asked.set()
    link = bench.link(request_timeout_s=10)
    waiting = asyncio.ensure_future(status_of(link))
    await asked.wait()
    link.close()
    assert await waiting is Status.UNREACHABLE
    assert await status_of(link) is Status.UNREACHABLE


async def test_credentials_are_shown_before_anything_else(bench: Bench) -> None:
    def guarded(peer: Peer, request: pb.Request) -> None:
        if request.HasField("auth"):
            good = request.auth.payload == b"token"
            part = pb.AuthMessage(plugin_name=request.auth.plugin_name, payload=b"")
            peer.transport.write(answer(request, pb.EOK if good else pb.EUA, auth=part))
        else:
            peer.transport.write(entry(request))

    bench.script = guarded
    link = bench.link(auth=("plugin", b"token"))
    assert await status_of(link) is Status.OK
    assert [request.HasField("auth") for request in bench.asked] == [True, False]
    link.close()
    bench.asked.clear()
    stranger = bench.link(auth=("plugin", b"wrong"))
    assert await status_of(stranger) is Status.UNREACHABLE
    assert [request.HasField("auth") for request in bench.asked] == [True]
    stranger.close()


CHALLENGE = b'realm="bookkeeper",nonce="n",charset=utf-8,algorithm=md5-sess'


@pytest.mark.parametrize("honest", [True, False])
async def test_sasl_takes_two_rounds_and_the_bookie_proves_itself_too(
    bench: Bench, honest: bool
) -> None:
    shown: list[bytes] = []

    def guarded(peer: Peer, request: pb.Request) -> None:
        if not request.HasField("auth"):
            peer.transport.write(entry(request))
            return
        shown.append(request.auth.payload)
        said = CHALLENGE
        if len(shown) == 2:
            nonce = parse(shown[1])["cnonce"]
            known = DigestMd5("bob", "secret", nonce, uri="bookkeeper/bookkeeper")
            assert known.respond(CHALLENGE) == shown[1]
            said = b"rspauth=" + (known._proof if honest else "0" * 32).encode()
        part = pb.AuthMessage(plugin_name="sasl", payload=said)
        peer.transport.write(answer(request, auth=part))

    bench.script = guarded
    link = bench.link(sasl=("bob", "secret"))
    assert await status_of(link) is (Status.OK if honest else Status.UNREACHABLE)
    assert shown[0] == b""
    assert ("does not prove" in link.trouble) is not honest
    link.close()


async def test_a_bookie_with_another_plugin_is_named(bench: Bench) -> None:
    def other(peer: Peer, request: pb.Request) -> None:
        part = pb.AuthMessage(plugin_name="theirs", payload=b"")
        peer.transport.write(answer(request, auth=part))

    bench.script = other
    link = bench.link(sasl=("bob", "secret"))
    assert await status_of(link) is Status.UNREACHABLE
    assert "wants 'theirs', not 'sasl'" in link.trouble
    link.close()


async def test_a_bookie_without_authentication_accepts_anybody(bench: Bench) -> None:
    def open_to_all(peer: Peer, request: pb.Request) -> None:
        if request.HasField("auth"):
            part = pb.AuthMessage(plugin_name="AuthDisabledPlugin", payload=b"")
            peer.transport.write(answer(request, auth=part))
        else:
            peer.transport.write(entry(request))

    bench.script = open_to_all
    for shown in ({"auth": ("plugin", b"token")}, {"sasl": ("bob", "secret")}):
        link = bench.link(**shown)
        assert await status_of(link) is Status.OK
        link.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The key and certificate of a server called localhost."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, public = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(
        [*command.split(), *names.split(), "-keyout", str(key), "-out", str(public)],
        check=True,
        capture_output=True,
    )
    return key, public


async def test_a_connection_goes_on_in_tls(bench: Bench, certificate: tuple[Path, Path]) -> None:
    key, public = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(public, key)

    def secured(peer: Peer, request: pb.Request) -> None:
        if request.HasField("start_tls"):
            peer.transport.write(answer(request, start_tls=pb.StartTlsResponse()))
            bench.tasks.spawn("secure", peer.secure(context))
        else:
            seen.append(peer.transport.get_extra_info("cipher"))
            peer.transport.write(entry(request))

    seen: list[object] = []
    bench.script = secured
    bench.host = "localhost"
    link = bench.link(tls=Tls(ca_file=str(public)), request_timeout_s=5)
    assert [await status_of(link) for _ in range(2)] == [Status.OK] * 2
    assert all(seen), "requests came in TLS"
    link.close()
    bench.failures.clear()


async def test_a_bookie_without_tls_is_not_spoken_to_openly(bench: Bench) -> None:
    bench.script = lambda peer, request: peer.transport.write(answer(request, pb.EBADREQ))
    link = bench.link(tls=Tls())
    assert await status_of(link) is Status.UNREACHABLE
    assert [request.HasField("start_tls") for request in bench.asked] == [True]
    link.close()
