"""Hostile bytes from a bookie: each request is answered once or lost, and nothing else happens.

`tests/corpus/bookkeeper` holds what a real bookie answered to the first request of a connection, a
frame per file.
"""

import asyncio
import struct
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.errors import Corruption
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.connection import BookieConnection
from anabranch.ledgers.bookkeeper.digests import LAST_ENTRY, DigestType, PacketDigest
from anabranch.ledgers.bookkeeper.frames import Request, Status

FOLDER = Path(__file__).parents[1] / "corpus" / "bookkeeper"
CORPUS = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.bin"))}
LEDGER_ID = 7
PASSWORD = b"passwd"
KEY = bytes(20)
ADDS = frames.AddRequests(LEDGER_ID, KEY, repeat(1))
ASKED: dict[str, tuple[Request, Status]] = {
    "added": (ADDS.add(0, b"", b""), Status.OK),
    "read": (frames.read(LEDGER_ID, 0), Status.OK),
    "last_read": (frames.read(LEDGER_ID, LAST_ENTRY), Status.OK),
    "fencing_read": (frames.read(LEDGER_ID, 0, fence_key=KEY), Status.OK),
    "no_entry": (frames.read(LEDGER_ID, 99), Status.NO_ENTRY),
    "no_ledger": (frames.read(8, 0), Status.NO_LEDGER),
    "fenced": (ADDS.add(1, b"", b""), Status.FENCED),
    "unauthorized": (ADDS.add(1, b"", b""), Status.UNAUTHORIZED),
    "lac_written": (frames.write_lac(LEDGER_ID, 0, KEY, b""), Status.OK),
    "lac_read": (frames.read_lac(LEDGER_ID), Status.OK),
}
READS = {"read": 0, "last_read": LAST_ENTRY, "fencing_read": 0}


class Pipe:
    def __init__(self) -> None:
        self.aborted = False

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


async def hear(name: str, stream: bytes, piece: int) -> tuple[Status, pb.Response | None, bool]:
    """Ask, hear a stream in pieces, and say how it went and whether the connection was ended."""
    heard: list[tuple[Status, pb.Response | None]] = []
    lost: list[BookieConnection] = []
    connection = BookieConnection("bookie", 5.0, lost.append)
    pipe = Pipe()
    connection.connection_made(pipe)  # type: ignore[arg-type]
    connection.ask(ASKED[name][0], lambda _context, *answer: heard.append(answer), None)
    for start in range(0, len(stream), piece):
        connection.data_received(stream[start : start + piece])
    ended = pipe.aborted
    connection.abort()
    assert len(lost) == 1
    assert len(heard) == 1, "each request is answered once, or lost"
    return (*heard[0], ended)


def test_the_corpus_is_there() -> None:
    assert set(CORPUS) == set(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_what_a_bookie_answered_is_understood_in_any_pieces(name: str) -> None:
    digest = PacketDigest(DigestType.CRC32C, PASSWORD)
    for piece in (1, 3, 7, 10_000):
        status, response, ended = asyncio.run(hear(name, CORPUS[name], piece))
        assert (status, ended) == (ASKED[name][1], False)
        if name == "added":
            continue  # only that it went well is told
        assert response is not None
        if name in READS:
            packet = digest.open_packet(response.read.body, LEDGER_ID, READS[name])
            assert (packet.entry_id, bytes(packet.payload)) == (0, b"payload")
        if name == "lac_read":
            assert digest.open_lac_packet(response.read_lac.lac_body, LEDGER_ID) == 0


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(ASKED)))
    stream = bytearray(CORPUS[name])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(stream) - 1)))
        action = draw(st.sampled_from(["set", "cut", "insert", "lie", "append"]))
        if action == "set" and stream:
            stream[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del stream[place:]
        elif action == "insert":
            stream[place:place] = draw(st.binary(max_size=12))
        elif action == "append":
            stream += CORPUS[draw(st.sampled_from(sorted(ASKED)))]
        elif len(stream) >= 4:
            lie = draw(st.sampled_from([0, 1, 5, len(stream), 2**20, 2**31, 2**32 - 1]))
            struct.pack_into(">I", stream, 0, lie)
    return name, bytes(stream)


@pytest.mark.goal("core.S3", part="bookkeeper", broken_by="packets_are_believed")
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spoilt(), st.sampled_from([1, 5, 10_000]))
def test_hostile_answers_never_pass_for_an_entry(sample: tuple[str, bytes], piece: int) -> None:
    name, stream = sample
    status, response, _ = asyncio.run(hear(name, stream, piece))
    assert isinstance(status, Status)
    if response is None or name not in READS:
        return
    digest = PacketDigest(DigestType.CRC32C, PASSWORD)
    try:
        packet = digest.open_packet(response.read.body, LEDGER_ID, READS[name])
    except Corruption:
        return
    assert (packet.entry_id, bytes(packet.payload)) == (0, b"payload")
