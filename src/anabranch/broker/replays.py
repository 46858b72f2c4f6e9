"""The entries that a shared subscription has to send again, lowest first. Pure.

Adding and taking out cost the logarithm of how many there are: a consumer may hand back as many
as it may hold, one by one.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from anabranch.ids import Position

_STALE_MAX = 1000


class Replays:
    """A set of positions that is asked for its lowest ones again and again."""

    __slots__ = ("_front", "_heap", "_waiting")

    def __init__(self) -> None:
        self._waiting: set[Position] = set()
        self._heap: list[Position] = []
        """Those waiting and not in front; also some that wait no longer, and some twice."""
        self._front: list[Position] = []
        """The lowest, ascending, as they were asked for last; some may wait no longer."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, position: Position) -> bool:
        return position in self._waiting

    def add(self, positions: Iterable[Position]) -> None:
        """Put positions in; no harm if they are in."""
        for position in positions:
            if position in self._waiting:
                continue
            self._waiting.add(position)
            heappush(self._heap, position)
            if self._front and position < self._front[-1]:
                for before in self._front:
                    heappush(self._heap, before)
                self._front = []

    def discard(self, position: Position) -> None:
        """Take a position out; no harm if it is not in."""
        self._waiting.discard(position)
        if len(self._heap) > 2 * len(self._waiting) + _STALE_MAX:
            # Most of it waits no longer; with as many steps as led here it is made anew.
            self._front = []
            self._heap = list(self._waiting)
            heapify(self._heap)

    def clear(self) -> None:
        """Take all out."""
        self._waiting = set()
        self._heap = []
        self._front = []

    def lowest(self, count: int) -> list[Position]:
        """Up to `count` positions, ascending; they stay in."""
        waiting, heap = self._waiting, self._heap
        front = self._front = [position for position in self._front if position in waiting]
        while len(front) < count and heap:
            position = heappop(heap)
            if position in waiting and (not front or position > front[-1]):
                front.append(position)
        return front[:count]
