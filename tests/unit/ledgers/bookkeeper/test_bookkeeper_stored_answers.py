"""Answers that are known by their form, and who is told of them."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.connection import BookieConnection
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.stored_answers import stored_digits, stored_run
from anabranch.ledgers.bookkeeper.writer import Add
from anabranch.testing.bookies.conversation import answer_to_add, requests_in, stored

KEY = bytes(20)


def digits_of(message: bytes) -> bytes:
    """As found among other bytes."""
    return stored_digits(b"before" + message + b"behind", 6, 6 + len(message))


@pytest.mark.parametrize("number", [1, 127, 128, 2**20, 2**40])
def test_the_usual_answer_to_an_add_is_known_without_parsing(number: int) -> None:
    response = answer_to_add(number)
    message = response.SerializeToString()
    assert digits_of(message) == frames.varint(number)
    for cut in range(len(message)):
        assert digits_of(message[:cut]) in (b"", frames.varint(number))
        assert stored_digits(message, 0, cut) in (b"", frames.varint(number))
    assert stored_digits(message, 0, len(message) - 1) == b"", "its own end"
    response.header.priority = 100
    unusual = response.SerializeToString()
    assert digits_of(unusual) != frames.varint(number), "to be parsed"
    response.header.ClearField("priority")
    response.add.status = pb.EFENCED
    assert digits_of(response.SerializeToString()) == b""
    response.status = pb.EIO
    assert digits_of(response.SerializeToString()) == b""
    response.header.operation = pb.READ_ENTRY
    assert digits_of(response.SerializeToString()) == b""


def test_answers_of_one_form_are_found_together() -> None:
    many = b"".join(frames.frame(answer_to_add(number)) for number in range(2, 100, 2))
    longer = frames.frame(answer_to_add(200))
    refused = frames.frame(answer_to_add(100, pb.EFENCED))
    numbers, behind = stored_run(b"rest" + many + longer + refused, 4)
    assert numbers == [frames.varint(number) for number in range(2, 100, 2)]
    assert behind == 4 + len(many)
    assert stored_run(longer + refused, 0) == ((frames.varint(200),), len(longer))
    assert stored_run(refused + many, 0) == ((), 0)
    for cut in range(len(longer)):
        assert stored_run(longer[:cut], 0) == ((), 0), "not there as a whole"
        numbers, behind = stored_run(longer + longer[:cut], 0)
        assert (list(numbers), behind) == ([frames.varint(200)], len(longer))


class Pipe:
    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.sent += b"".join(pieces)

    def abort(self) -> None:
        pass


class Ledger:
    """Has entries stored, and notes what it is told of them."""

    def __init__(self, ledger_id: int, numbers: Iterator[int]) -> None:
        self.ledger_id = ledger_id
        self.told: list[tuple[int, Status]] = []
        self.together: list[int] = []
        self.when_told: Callable[[], None] = lambda: None
        self._requests = frames.AddRequests(ledger_id, KEY, numbers)

    def adds(self, entry_ids: range, payload: bytes = b"payload") -> list[Add]:
        requests = [self._requests.add(number, b"header", payload) for number in entry_ids]
        return [
            Add(entry_id, request, 1, 1, (0,), None)
            for entry_id, request in zip(entry_ids, requests, strict=True)
        ]

    def stored(self, adds: list[Add]) -> None:
        self.told += [(add.entry_id, Status.OK) for add in adds]
        self.together.append(len(adds))
        self.when_told()

    def replied(self, add: Add, status: Status, _: pb.Response | None) -> None:
        self.told.append((add.entry_id, status))
        self.when_told()


class Bench:
    def __init__(self) -> None:
        self.lost: list[BookieConnection] = []
        self.connection = BookieConnection("bookie", 5.0, self.lost.append)
        self.pipe = Pipe()
        self.connection.connection_made(self.pipe)  # type: ignore[arg-type]
        numbers = count(2, 2)
        self.one, self.other = Ledger(5, numbers), Ledger(6, numbers)

    def sent(self) -> list[pb.Request]:
        """What has gone out."""
        data, self.pipe.sent = self.pipe.sent, b""
        return requests_in(data)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_who_stored_many_entries_is_told_once_for_each_run_of_answers(bench: Bench) -> None:
    connection, one, other = bench.connection, bench.one, bench.other
    connection.store(one.adds(range(3)), one)
    connection.store(other.adds(range(2)), other)
    connection.store(one.adds(range(3, 5)), one)
    assert bench.pipe.sent == b"", "not before the turn ends"
    connection.flush()
    asked = bench.sent()
    assert [(r.add.ledger_id, r.add.entry_id) for r in asked] == [
        (5, 0), (5, 1), (5, 2), (6, 0), (6, 1), (5, 3), (5, 4),
    ]  # fmt: skip
    connection.data_received(b"".join(map(stored, asked)))
    assert one.told == [(number, Status.OK) for number in range(5)]
    assert other.told == [(0, Status.OK), (1, Status.OK)]
    assert (one.together, other.together) == ([3, 2], [2])
    connection.data_received(b"".join(map(stored, asked)))
    assert (len(one.told), len(other.told)) == (5, 2), "an answer that comes twice is passed over"


async def test_refusals_and_other_answers_among_those_that_went_well(bench: Bench) -> None:
    connection, one = bench.connection, bench.one
    read: list[tuple[Status, pb.Response | None]] = []
    connection.store(one.adds(range(4)), one)
    connection.ask(frames.read(5, 0), lambda _, *heard: read.append(heard), None)
    connection.flush()
    first, second, third, fourth, reading = bench.sent()
    fenced = answer_to_add(second.header.txn_id, pb.EFENCED)
    entry = pb.Response(header=reading.header, status=pb.EOK)
    entry.read.CopyFrom(pb.ReadResponse(status=pb.EOK, ledger_id=5, entry_id=0, body=b"entry"))
    stream = stored(first) + frames.frame(fenced) + frames.frame(entry) + stored(third)
    for at in range(0, len(stream), 7):
        connection.data_received(stream[at : at + 7])
    unusual = answer_to_add(fourth.header.txn_id)
    unusual.header.priority = 100
    connection.data_received(frames.frame(unusual))
    assert one.told == [
        (0, Status.OK), (1, Status.FENCED), (2, Status.OK), (3, Status.OK),
    ]  # fmt: skip
    assert [(status, found and found.read.body) for status, found in read] == [
        (Status.OK, b"entry")
    ]


async def test_an_entry_that_is_sent_once_more_to_the_same_bookie_is_another_request(
    bench: Bench,
) -> None:
    connection, one = bench.connection, bench.one
    adds = one.adds(range(2))
    connection.store(adds, one)
    connection.store(adds, one)
    connection.flush()
    asked = bench.sent()
    assert len({request.header.txn_id for request in asked}) == 4
    assert [request.add.entry_id for request in asked] == [0, 1, 0, 1]
    connection.data_received(b"".join(map(stored, asked)))
    assert one.told == [(0, Status.OK), (1, Status.OK)] * 2


async def test_each_entry_is_told_of_once_though_its_owner_ends_the_connection(
    bench: Bench,
) -> None:
    connection, one, other = bench.connection, bench.one, bench.other
    one.when_told = connection.abort
    connection.store(one.adds(range(2)), one)
    connection.store(other.adds(range(3)), other)
    connection.store(one.adds(range(2, 4)), one)
    connection.flush()
    connection.data_received(b"".join(map(stored, bench.sent())))
    assert bench.lost == [connection]
    assert sorted(entry_id for entry_id, _ in one.told) == [0, 1, 2, 3]
    assert sorted(entry_id for entry_id, _ in other.told) == [0, 1, 2]
    late = other.adds(range(3, 4))
    connection.store(late, other)
    assert len(other.told) == 3, "never within the call"
    await asyncio.sleep(0)
    assert other.told[-1] == (3, Status.UNREACHABLE)


async def test_what_was_stored_is_told_though_the_next_answer_is_none(bench: Bench) -> None:
    connection, one = bench.connection, bench.one
    connection.store(one.adds(range(3)), one)
    connection.flush()
    first, second, third = map(stored, bench.sent())
    # Of the same form, but for nobody, and not to be parsed: an id does not end.
    broken = frames.frame(answer_to_add(100, ledger_id=5))[:-1] + b"\xff"
    assert len(stored_run(second + broken, 0)[0]) == 2
    connection.data_received(first + second + broken + third)
    assert one.told[:2] == [(0, Status.OK), (1, Status.OK)]
    assert one.told[2:] == [(2, Status.UNREACHABLE)], "the connection was ended"
    assert bench.lost == [connection]


async def test_long_entries_are_sent_as_they_are(bench: Bench) -> None:
    connection, one = bench.connection, bench.one
    long = bytes(range(256)) * 100
    connection.store(one.adds(range(1)), one)
    connection.store(one.adds(range(1, 3), long), one)
    connection.flush()
    assert [request.add.body for request in bench.sent()] == [
        b"headerpayload",
        b"header" + long,
        b"header" + long,
    ]


async def test_a_bookie_that_does_not_read_is_sent_nothing_until_it_does(bench: Bench) -> None:
    connection, one = bench.connection, bench.one
    connection.pause_writing()
    connection.store(one.adds(range(2)), one)
    connection.flush()
    assert bench.sent() == []
    connection.resume_writing()
    assert [request.add.entry_id for request in bench.sent()] == [0, 1]
