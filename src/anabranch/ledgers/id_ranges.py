"""A set of ids that stays small when they are dense. Pure."""

from bisect import bisect_right
from collections.abc import Iterator


class IdRanges:
    """A set of integers, kept as sorted ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        """Add all ids from `first` to `last`."""
        assert first <= last, f"range {first}..{last}"
        # The ranges that touch the new one are begin..end-1; they and it become one.
        begin = bisect_right(self._lasts, first - 2)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def __contains__(self, wanted: int) -> bool:
        at = bisect_right(self._firsts, wanted) - 1
        return at >= 0 and wanted <= self._lasts[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)
