"""What ledgers append in one turn of the loop goes to each bookie with one write."""

import asyncio
from itertools import count
from typing import Any, cast

from anabranch.ledgers.bookkeeper import frames
from anabranch.ledgers.bookkeeper.connection import BookieConnection, OnReply
from anabranch.ledgers.bookkeeper.ensemble import Quorums
from anabranch.ledgers.bookkeeper.frames import Request, Status
from anabranch.ledgers.bookkeeper.lanes import Lane, Turn
from anabranch.ledgers.bookkeeper.link import BookieLink
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting
from anabranch.testing.bookies.conversation import requests_in, stored

NUMBERS = count(2, 2)


class Pipe:
    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def entries(self) -> list[list[tuple[int, int]]]:
        """Ledger and entry of each request, by write."""
        return [
            [(request.add.ledger_id, request.add.entry_id) for request in requests_in(data)]
            for data in self.writes
        ]


class Link:
    """The way to a bookie, with a connection or without."""

    def __init__(self, bookie: str, *, connected: bool = True) -> None:
        self.bookie = bookie
        self.pipe = Pipe()
        self.asked: list[tuple[Request, OnReply, Any]] = []
        self.connection: BookieConnection | None = None
        if connected:
            self.connection = BookieConnection(bookie, 5.0, lambda _: None)
            self.connection.connection_made(cast("Any", self.pipe))

    def ask(self, request: Request, on_reply: OnReply, context: Any) -> None:
        self.asked.append((request, on_reply, context))


class Ledger:
    """A ledger's decisions on bookies of their own lanes; also their `WriterOutput`."""

    def __init__(self, ledger_id: int, links: list[Link], turn: Turn) -> None:
        self.completed: list[int] = []
        self.lost: list[tuple[int, int, Status]] = []
        self.quorums = Quorums(len(links), len(links), 2)
        self.core = LedgerWriting(self, self.quorums, tuple(link.bookie for link in links))
        self._lanes = [
            Lane(self, place, cast("BookieLink", link), turn) for place, link in enumerate(links)
        ]
        self._requests = frames.AddRequests(ledger_id, bytes(20), NUMBERS)

    def append(self) -> None:
        entry_id = self.core.next_entry_id
        request = self._requests.add(entry_id, b"header", b"payload")
        places = self.quorums.write_set(entry_id)
        self.core.add(Add(entry_id, request, 1, entry_id + 1, places, None))

    def send(self, add: Add, place: int, bookie: str) -> None:
        self._lanes[place].send(add)

    def complete(self, add: Add) -> None:
        self.completed.append(add.entry_id)

    def fail(self, add: Add, error: Exception) -> None:
        raise AssertionError("nobody stops this writer")

    def change_ensemble(self, *_: object) -> None:
        raise AssertionError("no bookie is given up")

    def not_stored(self, add: Add, place: int, bookie: str, status: Status) -> None:
        self.lost.append((add.entry_id, place, status))


async def test_all_ledgers_share_the_write_of_a_turn() -> None:
    links, turn = [Link("a"), Link("b"), Link("c")], Turn()
    one, other = Ledger(1, links, turn), Ledger(2, links, turn)
    one.append()
    other.append()
    one.append()
    assert [link.pipe.writes for link in links] == [[], [], []], "not before the turn ends"
    await asyncio.sleep(0)
    for link in links:
        (only,) = link.pipe.entries()
        assert sorted(only) == [(1, 0), (1, 1), (2, 0)]
    one.append()
    await asyncio.sleep(0)
    assert [link.pipe.entries()[1:] for link in links] == [[[(1, 2)]]] * 3


async def test_entries_are_confirmed_by_as_many_bookies_as_must_have_them() -> None:
    links, turn = [Link("a"), Link("b"), Link("c")], Turn()
    ledger = Ledger(1, links, turn)
    for _ in range(3):
        ledger.append()
    await asyncio.sleep(0)
    confirmed_by: list[list[int]] = [[], [0, 1, 2], [0, 1, 2]]
    for link, confirmed in zip(links, confirmed_by, strict=True):
        assert link.connection is not None
        (data,) = link.pipe.writes
        link.connection.data_received(b"".join(map(stored, requests_in(data))))
        assert ledger.completed == confirmed


async def test_without_a_connection_each_entry_waits_for_one() -> None:
    links, turn = [Link("a"), Link("b", connected=False)], Turn()
    ledger = Ledger(1, links, turn)
    ledger.append()
    ledger.append()
    await asyncio.sleep(0)
    assert len(links[0].pipe.writes) == 1
    waiting = links[1].asked
    assert [context.entry_id for _, _, context in waiting] == [0, 1]
    for _, on_reply, context in waiting:
        on_reply(context, Status.UNREACHABLE, None)
    assert ledger.lost == [(0, 1, Status.UNREACHABLE), (1, 1, Status.UNREACHABLE)]
