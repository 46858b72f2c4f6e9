"""A set of entry ids of one ledger, kept as disjoint closed ranges. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise


class EntryRanges:
    """Ranges `first..last`, ascending, with a gap of at least one id between two of them."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, entry_id: int) -> bool:
        index = bisect_right(self._firsts, entry_id) - 1
        return index >= 0 and entry_id <= self._lasts[index]

    def add(self, first: int, last: int) -> int:
        """Add `first..last`; return how many of them are new."""
        assert first <= last, f"range {first}..{last} is empty"
        # Everything from low to high - 1 overlaps or touches the new range.
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        known = 0
        for index in range(low, high):
            overlap = min(self._lasts[index], last) - max(self._firsts[index], first) + 1
            known += max(overlap, 0)
        added = last - first + 1 - known
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]
        return added

    def end_of(self, entry_id: int) -> int:
        """The last id of the range that holds `entry_id`."""
        index = bisect_right(self._firsts, entry_id) - 1
        assert index >= 0, f"{entry_id} is in no range"
        assert entry_id <= self._lasts[index], f"{entry_id} is in no range"
        return self._lasts[index]

    def drop_through(self, entry_id: int) -> int:
        """Remove every id up to `entry_id`; return how many were removed."""
        index = bisect_right(self._lasts, entry_id)
        removed = sum(self._lasts[i] - self._firsts[i] + 1 for i in range(index))
        del self._firsts[:index]
        del self._lasts[:index]
        if self._firsts and self._firsts[0] <= entry_id:
            removed += entry_id - self._firsts[0] + 1
            self._firsts[0] = entry_id + 1
        return removed

    def count(self) -> int:
        """How many ids are in the set."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def validate(self) -> None:
        """Assert what must always hold."""
        assert len(self._firsts) == len(self._lasts)
        assert all(first <= last for first, last in self)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(self)), "ranges neither overlap nor touch"
