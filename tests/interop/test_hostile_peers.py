"""Peers that send nonsense to a real server: their connection ends, the server goes on."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing.servers import anabranch_standalone, pulsar_client
from anabranch.testing.servers.standalone import Standalone
from anabranch.testing.wire_fuzz import mutate
from anabranch.wire import encode, requests

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "wire").glob("*.bin"))
GREETING = encode(requests.connect("hostile"))
MUTATED_STREAMS = 1500
GROWTH_BYTES_MAX = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    options = ["--log-level", "error", "--keep-alive-interval-s", "1"]
    with anabranch_standalone(options=options) as running:
        yield running


def throw(server: Standalone, data: bytes) -> bytes:
    """Send bytes, close our half, and return what the server says before it closes too."""
    with socket.create_connection(("127.0.0.1", server.place.port), timeout=10) as peer:
        answer = b""
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while piece := peer.recv(65536):
                answer += piece
        except ConnectionError:
            pass  # the server may cut us off in the middle
        return answer


def still_serves(server: Standalone) -> None:
    assert server.running, server.log.read_text()
    assert "Traceback" not in server.log.read_text()
    assert server.healthy()
    with pulsar_client(server.service_url, operation_timeout_seconds=10) as client:
        consumer = client.subscribe("alive", "s")
        client.create_producer("alive").send(b"still here")
        assert consumer.receive(10_000).data() == b"still here"
        consumer.unsubscribe()


@pytest.mark.goal("core.B1", part="malformed frames", broken_by="broken_frames_break_the_session")
@pytest.mark.parametrize("greeted", [False, True], ids=["at once", "after the handshake"])
def test_every_stream_of_the_corpus(server: Standalone, greeted: bool) -> None:
    assert len(CORPUS) >= 30
    for path in CORPUS:
        throw(server, (GREETING if greeted else b"") + path.read_bytes())
    still_serves(server)


@pytest.mark.goal("core.S3", part="live server", broken_by="broken_frames_break_the_session")
def test_mutated_streams_do_not_hurt_a_server(server: Standalone) -> None:
    rng = random.Random(20_240_607)
    streams = [path.read_bytes() for path in CORPUS]
    before = server.resident_bytes()
    for _ in range(MUTATED_STREAMS):
        throw(server, GREETING + mutate(rng, streams))
    still_serves(server)
    assert server.resident_bytes() - before < GROWTH_BYTES_MAX


def test_a_frame_that_declares_too_much_is_refused_before_it_is_sent(server: Standalone) -> None:
    huge = (0x7FFFFFFF).to_bytes(4, "big") + bytes(4)
    with socket.create_connection(("127.0.0.1", server.place.port), timeout=10) as peer:
        peer.sendall(GREETING + huge)
        answer = b""
        while piece := peer.recv(65536):
            answer += piece
    assert b"Anabranch" in answer
    assert b"2147483651 bytes" in answer, "the peer is not told why"
    still_serves(server)


@pytest.mark.goal("core.B1", part="keep-alive", broken_by="the_silent_are_kept")
def test_who_does_not_answer_is_dropped_and_a_stock_client_that_idles_is_not(
    server: Standalone,
) -> None:
    with (
        pulsar_client(server.service_url) as client,
        socket.create_connection(("127.0.0.1", server.place.port), timeout=30) as deaf,
    ):
        producer = client.create_producer("idle")
        first = producer.send(b"before")
        deaf.sendall(GREETING)
        answer = b""
        while piece := deaf.recv(65536):
            answer += piece  # until the server has given up on us, which takes two intervals
        assert b"Anabranch" in answer
        assert producer.is_connected()
        assert producer.send(b"after").ledger_id() == first.ledger_id()
