"""The ways of entries to the places of an ensemble, and the end of a turn of the loop.

What a ledger appends in one turn is gathered for each of its bookies and handed over at once, and
what a bookie has stored is told to the ledger for many entries at once: so an entry costs little
for each of its bookies.
"""

import asyncio
from typing import Protocol

from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.ledgers.bookkeeper.connection import BookieConnection
from anabranch.ledgers.bookkeeper.frames import Status
from anabranch.ledgers.bookkeeper.link import BookieLink
from anabranch.ledgers.bookkeeper.writer import Add, LedgerWriting


class LaneOwner(Protocol):
    """Whose entries go along a lane."""

    core: LedgerWriting

    def not_stored(self, add: Add, place: int, bookie: str, status: Status, /) -> None:
        """A bookie does not have an entry, as far as we know."""


class Turn:
    """Has everything that was gathered in a turn of the loop sent at its end.

    One write for each connection, however many ledgers have something for it.
    """

    __slots__ = ("_lanes", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lanes: list[Lane] = []

    def ends_for(self, lane: "Lane") -> None:
        """A lane has something to hand over."""
        if not self._lanes:
            self._loop.call_soon(self._end)
        self._lanes.append(lane)

    def _end(self) -> None:
        lanes, self._lanes = self._lanes, []
        connections: dict[BookieConnection, None] = {}
        for lane in lanes:
            connection = lane.hand_over()
            if connection is not None:
                connections[connection] = None
        for connection in connections:
            connection.flush()


class Lane:
    """The way of a ledger's entries to one place of its ensemble, as long as one bookie has it."""

    __slots__ = ("_gathered", "_owner", "_turn", "bookie", "link", "place")

    def __init__(self, owner: LaneOwner, place: int, link: BookieLink, turn: Turn) -> None:
        self.place = place
        self.link = link
        self.bookie = link.bookie
        self._owner = owner
        self._turn = turn
        self._gathered: list[Add] = []

    def send(self, add: Add) -> None:
        """Send an entry with what else is sent in this turn of the loop."""
        if not self._gathered:
            self._turn.ends_for(self)
        self._gathered.append(add)

    def hand_over(self) -> BookieConnection | None:
        """Give what was gathered to the connection, if there is one; it is to be flushed then."""
        adds, self._gathered = self._gathered, []
        connection = self.link.connection
        if connection is not None:
            connection.store(adds, self)
        else:
            for add in adds:
                self.link.ask(add.request, self.replied, add)
        return connection

    def stored(self, adds: list[Add]) -> None:
        """The bookie has these entries."""
        self._owner.core.confirmed(adds, self.place, self.bookie)

    def replied(self, add: Add, status: Status, _: pb.Response | None) -> None:
        """The bookie has answered for one entry, or will not."""
        if status is Status.OK:
            self.stored([add])
        else:
            self._owner.not_stored(add, self.place, self.bookie, status)
