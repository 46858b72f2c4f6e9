"""Many small reads that are asked for and answered as one, on a connection to ZooKeeper."""

import asyncio
import struct
from typing import Any

import pytest

from anabranch.errors import ProtocolError, Unreachable
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.connection import Call, ServerConnection
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Change, Code, Refusal, ZStat

WELCOME = struct.pack(">iiqi16sb", 0, 30_000, 7, 16, bytes(16), 0)
STAT = bytes(68)
OPEN = requests.acls(OPEN_ACL) + STAT
READER = (Acl(1, "ip", "::1"),)
NUMBERS = ZStat(*[0] * 11)
PATHS = ("/a", "/b", "/c")


class Deaf:
    """Hears only how far the server was."""

    def __init__(self) -> None:
        self.zxids: list[int] = []

    def changed(self, changes: list[Change]) -> None:
        raise AssertionError

    def answered(self, zxid: int) -> None:
        self.zxids.append(zxid)

    def rearmed(self, zxid: int) -> None:
        raise AssertionError

    def pinged(self) -> None:
        raise AssertionError

    def writable_again(self) -> None:
        raise AssertionError


class Pipe:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        pass


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def reply(xid: int, body: bytes = OPEN, *, zxid: int = 5, error: int = 0) -> bytes:
    return framed(struct.pack(">iqi", xid, zxid, error) + body)


async def opened() -> tuple[ServerConnection, Deaf, Pipe]:
    listener, pipe = Deaf(), Pipe()
    connection = ServerConnection(listener)
    connection.connection_made(pipe)  # type: ignore[arg-type]
    connection.data_received(framed(WELCOME))
    await connection.welcome
    return connection, listener, pipe


def asked(connection: ServerConnection, paths: tuple[str, ...] = PATHS) -> Call:
    call = Call(requests.get_acls(paths), 0.0, None)
    connection.send([call])
    return call


async def test_each_is_a_request_and_all_are_one_answer() -> None:
    connection, listener, pipe = await opened()
    call = asked(connection)
    codes = []
    at = 0
    while at < len(pipe.sent):
        length, xid, code, size = struct.unpack_from(">iiii", pipe.sent, at)
        codes.append((xid, code, pipe.sent[at + 16 : at + 16 + size]))
        at += 4 + length
    assert codes == [(1, requests.Op.GET_ACL, b"/a"), (2, 6, b"/b"), (3, 6, b"/c")]
    assert connection.unanswered == 3
    connection.data_received(reply(1) + reply(2, b"", error=Code.NO_NODE))
    assert not call.answer.done()
    assert connection.unanswered == 1
    connection.data_received(reply(3, requests.acls(READER) + STAT, zxid=9))
    first, second, third = call.answer.result()
    assert (first, third) == ((OPEN_ACL, NUMBERS), (READER, NUMBERS))
    assert isinstance(second, Refusal)
    assert second.code == Code.NO_NODE
    assert (call.zxid, listener.zxids, connection.unanswered) == (9, [9], 0)


async def test_answers_may_come_in_any_pieces() -> None:
    path = struct.pack(">i", 1) + b"/"
    answers = reply(1) + reply(2) + reply(3, b"", error=Code.NO_NODE) + reply(4, path)
    for size in (1, 7, len(reply(1)) - 1, len(reply(1)) + 1, len(answers)):
        connection, _, _ = await opened()
        calls = [Call(requests.get_acls(PATHS), 0.0, None), Call(requests.sync("/"), 0.0, None)]
        connection.send(calls)
        for start in range(0, len(answers), size):
            connection.data_received(answers[start : start + size])
        assert [type(one) for one in calls[0].answer.result()] == [tuple, tuple, Refusal]
        assert calls[1].answer.result() == "/"
        assert connection.unanswered == 0


async def test_numbers_of_a_bundle_follow_each_other_where_numbers_begin_anew() -> None:
    connection, _, _ = await opened()
    connection._last_xid = 2**31 - 3  # two more would do, three are needed
    call = asked(connection)
    connection.data_received(reply(1) + reply(2) + reply(3))
    assert call.answer.result() == [(OPEN_ACL, NUMBERS)] * 3


async def test_others_keep_their_turn() -> None:
    connection, _, _ = await opened()
    calls: list[Call] = [
        Call(request, 0.0, None)
        for request in (requests.sync("/"), requests.get_acls(PATHS), requests.sync("/"))
    ]
    connection.send(calls)
    path = struct.pack(">i", 1) + b"/"
    connection.data_received(reply(1, path) + reply(2) + reply(3) + reply(4) + reply(5, path))
    assert [call.answer.result() for call in calls] == ["/", [(OPEN_ACL, NUMBERS)] * 3, "/"]


async def test_a_broken_connection_gives_all_of_it_back_once() -> None:
    connection, _, _ = await opened()
    call = asked(connection)
    connection.data_received(reply(1))
    (left,) = connection.take_unanswered()
    assert left is call
    another, _, _ = await opened()
    another.send([left])
    another.data_received(reply(1) + reply(2) + reply(3))
    assert call.answer.result() == [(OPEN_ACL, NUMBERS)] * 3, "it began anew"


@pytest.mark.parametrize("wrong", [OPEN + b"\0", OPEN[:-1], b"", reply(9)])
async def test_bytes_that_are_no_answer_fail_all_of_it(wrong: bytes) -> None:
    connection, _, _ = await opened()
    call = asked(connection)
    connection.data_received(reply(1) + reply(2, wrong))
    for left in connection.take_unanswered():
        left.lose("the end")
    error = call.answer.exception()
    assert isinstance(error, ProtocolError | Unreachable)
    assert connection.lost.done()


GONE = struct.pack(">ibii", -1, 0, Code.NO_NODE, Code.NO_NODE)
END = struct.pack(">ibi", -1, 1, -1)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("answered", [0, 1, 2, 3])
async def test_a_read_of_many_has_as_many_answers(answered: int, values: bool) -> None:
    parts = requests.value_parts(["/a", "/b"])
    request = requests.get_values(parts) if values else requests.multi_read(parts)
    connection, _, _ = await opened()
    call: Call = Call(request, 0.0, None)
    connection.send([call])
    connection.data_received(reply(1, GONE * answered + END))
    if answered == len(parts):
        assert [type(part) for part in call.answer.result()] == [Refusal, Refusal]
        return
    # Told apart by their order alone, one would be taken for the answer to another.
    assert isinstance(call.answer.exception(), ProtocolError)
    assert connection.lost.done()


async def test_one_who_gave_up_is_not_told() -> None:
    connection, _, _ = await opened()
    call = asked(connection)
    call.answer.cancel()
    connection.data_received(reply(1) + reply(2) + reply(3))
    assert connection.unanswered == 0
    results: list[Any] = await asyncio.gather(call.answer, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
