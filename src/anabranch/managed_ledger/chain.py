"""The chain of ledgers that make up a topic, and arithmetic on the positions in it.

Pure. Every position is turned into a rank, the number of entries at or before it; counting,
stepping and searching follow from ranks, also for positions in ledgers that are gone.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.stamps import NO_STAMP, LedgerPlace, Stamp


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """One ledger of a chain."""

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    closed_ms: int = 0
    """When it was closed; 0 while it is open."""
    extra: bytes = b""
    """What others keep about it, such as where it was offloaded to; written back as it was."""
    stamp: Stamp = NO_STAMP
    """In which storage cluster it is."""

    @property
    def place(self) -> LedgerPlace:
        """Which ledger it is."""
        return LedgerPlace(self.ledger_id, self.stamp)

    @property
    def last(self) -> Position:
        """Its last entry; entry -1 if it is empty."""
        return Position(self.ledger_id, self.entries - 1)


class Chain:
    """Closed ledgers in order, and at most one open ledger at the end."""

    __slots__ = (
        "_closed",
        "_ids",
        "_ranks",
        "last_confirmed",
        "open_bytes",
        "open_entries",
        "open_id",
        "open_stamp",
    )

    def __init__(
        self, closed: Sequence[LedgerSpan], open_id: int | None, open_stamp: Stamp = NO_STAMP
    ) -> None:
        assert closed or open_id is not None, "a chain has a ledger"
        self.open_id = open_id
        self.open_stamp = open_stamp
        self.open_entries = 0
        self.open_bytes = 0
        self.last_confirmed = EARLIEST
        self._closed: list[LedgerSpan] = []
        self._ids: list[int] = []
        self._ranks: list[int] = [0]
        self._replace_closed(closed)
        self.last_confirmed = self._position_at(self.total - 1) if self.total else self._bottom()

    def _replace_closed(self, closed: Sequence[LedgerSpan]) -> None:
        self._closed = list(closed)
        self._ids = [span.ledger_id for span in closed]
        self._ranks = [0]
        for span in closed:
            self._ranks.append(self._ranks[-1] + span.entries)

    def _bottom(self) -> Position:
        return Position(self.lowest_id, -1)

    def _open(self) -> int:
        assert self.open_id is not None, "the chain has no open ledger"
        return self.open_id

    @property
    def closed(self) -> Sequence[LedgerSpan]:
        """The closed ledgers, oldest first."""
        return self._closed

    @property
    def spans(self) -> tuple[LedgerSpan, ...]:
        """All ledgers as they are published: an open one without its entries."""
        open_span = (
            () if self.open_id is None else (LedgerSpan(self.open_id, stamp=self.open_stamp),)
        )
        return (*self._closed, *open_span)

    @property
    def highest_id(self) -> int:
        """The newest ledger's id; the next one must be above it."""
        return self._ids[-1] if self.open_id is None else self.open_id

    @property
    def lowest_id(self) -> int:
        """The oldest ledger's id."""
        return self._ids[0] if self._ids else self._open()

    @property
    def total(self) -> int:
        """How many entries the chain holds."""
        return self._ranks[-1] + self.open_entries

    @property
    def size_bytes(self) -> int:
        """How many bytes the chain holds."""
        return sum(span.size_bytes for span in self._closed) + self.open_bytes

    # --- changes ------------------------------------------------------------------------------

    def extend(self, entry_id: int, size_bytes: int) -> Position:
        """Count one more durable entry of the open ledger."""
        assert entry_id == self.open_entries, (
            f"entry {entry_id} of ledger {self.open_id} became durable before {self.open_entries}"
        )
        self.open_entries += 1
        self.open_bytes += size_bytes
        self.last_confirmed = position = Position(self._open(), entry_id)
        return position

    def roll(self, closed_ms: int, next_id: int | None, next_stamp: Stamp = NO_STAMP) -> None:
        """Close the open ledger and go on with `next_id`, or with none for good."""
        span = self.closing_span(closed_ms)
        assert next_id is None or next_id > span.ledger_id, "ledger ids only rise"
        self._replace_closed([*self._closed, span])
        self.open_id = next_id
        self.open_stamp = next_stamp
        self.open_entries = self.open_bytes = 0

    def closing_span(self, closed_ms: int) -> LedgerSpan:
        """What the open ledger becomes when it is closed now."""
        return LedgerSpan(
            self._open(), self.open_entries, self.open_bytes, closed_ms, stamp=self.open_stamp
        )

    def stamp_of(self, ledger_id: int) -> Stamp:
        """In which storage cluster a ledger of the chain is."""
        if ledger_id == self.open_id:
            return self.open_stamp
        index = bisect_right(self._ids, ledger_id) - 1
        assert self._ids[index : index + 1] == [ledger_id], f"ledger {ledger_id} is not here"
        return self._closed[index].stamp

    def drop_oldest(self, count: int) -> None:
        """Forget the oldest closed ledgers."""
        assert count < len(self._closed) + (self.open_id is not None), "one ledger always stays"
        self._replace_closed(self._closed[count:])
        if not self.total:
            self.last_confirmed = max(self.last_confirmed, self._bottom())

    # --- positions ----------------------------------------------------------------------------

    def rank(self, position: Position) -> int:
        """How many entries are at or before a position."""
        ledger_id, entry_id = position
        below = self._ranks[-1]
        if self.open_id is not None and ledger_id >= self.open_id:
            if ledger_id > self.open_id:
                return below + self.open_entries
            return below + min(max(entry_id + 1, 0), self.open_entries)
        index = bisect_right(self._ids, ledger_id)
        if index and self._ids[index - 1] == ledger_id:
            entries = self._closed[index - 1].entries
            return self._ranks[index - 1] + min(max(entry_id + 1, 0), entries)
        return self._ranks[index]

    def _position_at(self, rank: int) -> Position:
        """The entry that `rank` entries come before."""
        if rank >= self._ranks[-1]:
            return Position(self._open(), rank - self._ranks[-1])
        index = bisect_right(self._ranks, rank) - 1
        return Position(self._ids[index], rank - self._ranks[index])

    def contains(self, position: Position) -> bool:
        """Whether there is a durable entry at this position."""
        ledger_id, entry_id = position
        if ledger_id == self.open_id:
            return 0 <= entry_id < self.open_entries
        index = bisect_right(self._ids, ledger_id) - 1
        return (
            index >= 0
            and self._ids[index] == ledger_id
            and 0 <= entry_id < self._closed[index].entries
        )

    def entries_of(self, ledger_id: int) -> int:
        """How many durable entries a ledger has; 0 if it is not in the chain."""
        if ledger_id == self.open_id:
            return self.open_entries
        index = bisect_right(self._ids, ledger_id) - 1
        found = index >= 0 and self._ids[index] == ledger_id
        return self._closed[index].entries if found else 0

    def next_position(self, position: Position) -> Position:
        """The entry after a position: the next durable one, or where the next will be."""
        rank = self.rank(position)
        if rank < self.total:
            return self._position_at(rank)
        if self.open_id is None:
            end = Position(self._ids[-1], self._closed[-1].entries)
        else:
            end = Position(self.open_id, self.open_entries)
        return max(end, Position(position.ledger_id, position.entry_id + 1))

    def ceiling(self, position: Position) -> Position:
        """The position itself if an entry is or may come there, else the next one."""
        return self.next_position(Position(position.ledger_id, position.entry_id - 1))

    def previous_position(self, position: Position) -> Position:
        """The last durable entry before a position; entry -1 of the first ledger if none is."""
        rank = self.rank(Position(position.ledger_id, position.entry_id - 1))
        return self._position_at(rank - 1) if rank else self._bottom()

    def position_after(self, position: Position, count: int) -> Position:
        """The entry that comes `count` entries after a position; there must be as many."""
        rank = self.rank(position) + count
        assert 0 < rank <= self.total, f"there are no {count} entries after {position}"
        return self._position_at(rank - 1)

    def first_position(self) -> Position:
        """The oldest entry that is kept, or where the first one will be."""
        return self.next_position(EARLIEST)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """How many entries are after one position and not after the other."""
        return max(self.rank(up_to) - self.rank(after), 0)

    def validate(self) -> None:
        """Assert what must always hold."""
        assert all(a < b for a, b in pairwise(self._ids)), "ledger ids rise"
        assert self.open_id is None or not self._ids or self._ids[-1] < self.open_id
        assert self._ranks[-1] == sum(span.entries for span in self._closed)
        assert self.open_id is not None or self.open_entries == 0
        assert self.total == 0 or self.last_confirmed == self._position_at(self.total - 1)
