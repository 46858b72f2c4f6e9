"""Hostile bytes from a ZooKeeper server: refused with a reason, and nothing else ever happens.

`tests/corpus/zookeeper` holds what a real server answered, a stream per file.
"""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError, OutcomeUnknown, ProtocolError, Unreachable
from anabranch.metadata.zookeeper import jute, replies, requests
from anabranch.metadata.zookeeper.connection import Call, ServerConnection
from anabranch.metadata.zookeeper.replies import Change, Refusal
from anabranch.metadata.zookeeper.requests import Request

FOLDER = Path(__file__).parents[1] / "corpus" / "zookeeper"
CORPUS = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.bin"))}
READERS = [
    replies.read_stat,
    replies.read_nothing,
    replies.read_code,
    replies.read_path,
    replies.read_created,
    replies.read_data,
    replies.read_children,
    replies.read_acls,
    replies.read_rights,
    replies.read_parts,
]
WELCOME = CORPUS["welcome"]
ASKED: dict[str, Request[object]] = {
    "created": requests.create("/a", b""),
    "data": requests.get_data("/a"),
    "stat": requests.exists("/a"),
    "children": requests.get_children2("/"),
    "acl": requests.get_acl("/a"),
    "no_node": requests.get_data("/none"),
    "multi": requests.multi([requests.delete("/a")] * 4),
    "multi_refused": requests.multi([requests.delete("/a")] * 3),
    "multi_read": requests.multi_read([requests.read_part("/a")] * 3),
    "watching": requests.add_watch("/", requests.WatchMode.RECURSIVE),
    "changed": requests.set_data("/a", b""),
    "synced": requests.sync("/"),
    "closed": requests.close(),
}


class Deaf:
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def changed(self, changes: list[Change]) -> None:
        self.changes += changes

    def answered(self, zxid: int) -> None:
        pass

    def rearmed(self, zxid: int) -> None:
        pass

    def pinged(self) -> None:
        pass

    def writable_again(self) -> None:
        pass


class Pipe:
    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass


def first_xid(stream: bytes) -> int:
    at = 0
    while True:
        length, xid = struct.unpack_from(">ii", stream, at)
        if xid > 0:
            return int(xid)
        at += 4 + length


async def hear(asked: Request[object], stream: bytes, xid: int, piece: int) -> tuple[str, int]:
    """Ask, hear a stream in pieces, and say what became of the request and how many changes."""
    listener = Deaf()
    connection = ServerConnection(listener)
    connection.connection_made(Pipe())  # type: ignore[arg-type]
    connection.data_received(WELCOME)
    await connection.welcome
    connection._last_xid = xid - 1
    call = Call(asked, 0.0, None)
    connection.send([call])
    for start in range(0, len(stream), piece):
        connection.data_received(stream[start : start + piece])
    connection.abort()
    for left in connection.take_unanswered():
        left.lose("the end")
    assert call.answer.done()
    error = call.answer.exception()
    assert error is None or isinstance(error, AnabranchError)
    return ("answered" if error is None else type(error).__name__), len(listener.changes)


def test_the_corpus_is_there() -> None:
    assert set(CORPUS) == {"welcome", *ASKED}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_server_answered_is_understood_in_any_pieces(name: str) -> None:
    stream = CORPUS[name]
    for piece in (1, 3, 7, 10_000):
        outcome, changes = asyncio.run(hear(ASKED[name], stream, first_xid(stream), piece))
        assert outcome == ("Refusal" if name == "no_node" else "answered")
        assert changes == (name == "changed")


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(ASKED)))
    stream = bytearray(CORPUS[name])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(stream) - 1)))
        action = draw(st.sampled_from(["set", "cut", "insert", "lie"]))
        if action == "set" and stream:
            stream[place] = draw(st.integers(0, 255))
        elif action == "cut":
            del stream[place:]
        elif action == "insert":
            stream[place:place] = draw(st.binary(max_size=12))
        elif len(stream) >= place + 4:
            lie = draw(st.sampled_from([-(2**31), -2, -1, 0, 1, 2**20, 2**31 - 1]))
            struct.pack_into(">i", stream, place, lie)
    return name, bytes(stream)


@settings(max_examples=400, deadline=None)
@given(spoilt(), st.sampled_from([1, 5, 10_000]))
@example(stream=("created", CORPUS["created"].replace(b"/", b"\xff", 1)), piece=10_000)
def test_spoilt_answers_end_in_an_answer_or_one_clear_error(
    stream: tuple[str, bytes], piece: int
) -> None:
    name, data = stream
    outcome, _ = asyncio.run(hear(ASKED[name], data, first_xid(CORPUS[name]), piece))
    allowed = {"answered", Refusal.__name__}
    if ASKED[name].writes:
        allowed.add(OutcomeUnknown.__name__)
    else:
        allowed |= {Unreachable.__name__, "ProtocolError", "FrameTooLarge"}
    assert outcome in allowed


@pytest.mark.goal("core.S3", part="zookeeper", broken_by="lengths_are_believed")
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(READERS), st.binary(max_size=200))
def test_readers_refuse_or_understand_any_bytes(
    read: Callable[[jute.Reader], object], data: bytes
) -> None:
    reader = jute.Reader(data)
    with suppress(ProtocolError):
        read(reader)
    assert reader.at <= len(data)


@given(st.binary(max_size=100))
def test_welcome_and_changes_refuse_or_understand_any_bytes(data: bytes) -> None:
    for read, kind in (
        (replies.read_welcome, replies.Welcome),
        (lambda data: replies.read_change(jute.Reader(data), 1), replies.Change),
    ):
        with suppress(ProtocolError):
            assert type(read(data)) is kind


@given(st.binary(), st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.booleans())
def test_values_round_trip(data: bytes, words: str, truth: bool) -> None:
    encoded = jute.buffer(data) + jute.text(words) + jute.boolean(truth) + jute.texts([words] * 2)
    reader = jute.Reader(encoded)
    assert (reader.buffer(), reader.text(), reader.boolean()) == (data, words, truth)
    assert reader.texts() == [words] * 2
    reader.end()
