"""The decisions of a ledger's one writer. Pure: what is to be done is said to a `WriterOutput`.

Every entry goes to the bookies of its write set at once. It is confirmed when `ack` of them have it
and every entry before it is confirmed. A place whose bookie fails is left out until another bookie
takes it. Three rules keep confirmed entries where the metadata say they are:

- one change of the ensemble at a time, and while one is under way nothing is confirmed: so the
  first entry of the new segment is still the first unconfirmed one when the metadata are written;
- until then entries go to the old ensemble; when it is done, a new bookie gets every entry that is
  not confirmed, and what its predecessor said of them is forgotten;
- whatever a bookie says that does not have the place any more counts for nothing.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.ensemble import Quorums, replaced
from anabranch.ledgers.bookkeeper.frames import Request


class Add:
    """One entry on its way."""

    __slots__ = ("acks", "context", "entry_id", "length", "places", "request", "size_bytes")

    def __init__(
        self,
        entry_id: int,
        request: Request,
        size_bytes: int,
        length: int,
        places: Sequence[int],
        context: Any,
    ) -> None:
        self.entry_id = entry_id
        self.request = request
        self.size_bytes = size_bytes
        self.length = length
        """Of all payloads of the ledger up to and with this one."""
        self.places = places
        self.acks = 0
        """A bit for each place whose bookie has it."""
        self.context = context


class WriterOutput(Protocol):
    """Who carries out what a `LedgerWriting` decides."""

    def send(self, add: Add, place: int, bookie: str, /) -> None:
        """Send an entry; then call `confirmed`, or `place_failed`, never within this."""

    def complete(self, add: Add, /) -> None:
        """The entry is durable."""

    def fail(self, add: Add, error: AnabranchError, /) -> None:
        """Nobody will know from this writer whether the entry is durable."""

    def change_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], places: tuple[int, ...], /
    ) -> None:
        """Find other bookies for these places and write that down; then call `changed`.

        With what the metadata say then: an empty mapping if there is nobody, and not at all, but
        `stop`, if the ledger is not this writer's any more.
        """


class LedgerWriting:
    """See the module."""

    def __init__(
        self,
        output: WriterOutput,
        quorums: Quorums,
        bookies: tuple[str, ...],
        *,
        last_confirmed: int = -1,
        length: int = 0,
    ) -> None:
        self.quorums = quorums
        self.bookies = bookies
        self.last_confirmed = last_confirmed
        self.length = length
        """Of all confirmed payloads."""
        self.next_entry_id = last_confirmed + 1
        self.pushed_length = length
        self.pending: deque[Add] = deque()
        self.stopped: AnabranchError | None = None
        self._output = output
        self._failed: dict[int, None] = {}
        self._unreplaced: set[int] = set()
        self._changing = False

    @property
    def changing(self) -> bool:
        """Whether a change of the ensemble is under way."""
        return self._changing

    @property
    def missing(self) -> tuple[int, ...]:
        """Places whose bookie failed and that nobody was found for."""
        return tuple(sorted(self._unreplaced))

    @property
    def stuck(self) -> bool:
        """Whether the first entry cannot be confirmed by the bookies that are left."""
        if not self.pending:
            return False
        head = self.pending[0]
        hopeful = sum(
            bool(head.acks >> place & 1) or place not in self._failed for place in head.places
        )
        return hopeful < self.quorums.ack

    # --- entries ------------------------------------------------------------------------------

    def add(self, add: Add) -> None:
        """Take the next entry and send it."""
        assert add.entry_id == self.next_entry_id, "entries have no gaps"
        assert self.stopped is None, "a writer that stopped takes nothing"
        self.next_entry_id += 1
        self.pushed_length = add.length
        self.pending.append(add)
        for place in add.places:
            if place not in self._failed:
                self._output.send(add, place, self.bookies[place])

    def confirmed(self, adds: Sequence[Add], place: int, bookie: str) -> None:
        """A bookie has some entries."""
        if self.bookies[place] != bookie:
            return
        bit = 1 << place
        for add in adds:
            add.acks |= bit
        self._confirm()

    def place_failed(self, place: int, bookie: str) -> bool:
        """A bookie did not take an entry, whether others did or not; says whether that is new."""
        if self.stopped is not None or self.bookies[place] != bookie or place in self._failed:
            return False
        self._failed[place] = None
        self._want_change()
        return True

    def stop(self, error: AnabranchError) -> None:
        """Confirm nothing any more."""
        if self.stopped is not None:
            return
        self.stopped = error
        while self.pending:
            self._output.fail(self.pending.popleft(), error)

    def _confirm(self) -> None:
        needed = self.quorums.ack
        pending = self.pending
        while pending and not self._changing and pending[0].acks.bit_count() >= needed:
            add = pending.popleft()
            self.last_confirmed = add.entry_id
            self.length = add.length
            self._output.complete(add)

    # --- the ensemble -------------------------------------------------------------------------

    def _want_change(self) -> None:
        if self._changing or all(place in self._unreplaced for place in self._failed):
            return
        self._changing = True
        places = tuple(sorted(self._failed))
        self._output.change_ensemble(self.last_confirmed + 1, self.bookies, places)

    def changed(self, replacements: Mapping[int, str], tried: Sequence[int]) -> None:
        """A change is over: the metadata have these bookies, and nobody for the others tried."""
        assert self._changing, "nobody asked for a change"
        if self.stopped is not None:
            return
        self.bookies = replaced(self.bookies, replacements)
        self._unreplaced.update(tried)
        for place in replacements:
            self._failed.pop(place, None)
            self._unreplaced.discard(place)
        for add in self.pending:
            for place in add.places:
                if place in replacements:
                    add.acks &= ~(1 << place)
                    self._output.send(add, place, self.bookies[place])
        self._changing = False
        self._confirm()
        self._want_change()

    def restored(self, place: int, bookie: str) -> None:
        """The bookie of a place that nobody was found for is back."""
        if self.stopped is not None or self._changing or self.bookies[place] != bookie:
            return
        if place not in self._failed:
            return
        del self._failed[place]
        self._unreplaced.discard(place)
        for add in self.pending:
            if place in add.places and not add.acks >> place & 1:
                self._output.send(add, place, bookie)

    def look_again(self) -> None:
        """Bookies may have come: ask once more for those that are missing."""
        if self.stopped is None and self._unreplaced:
            self._unreplaced.clear()
            self._want_change()
