"""Entries that wait to be sent, in line by the hash of their key. Pure."""

from bisect import bisect_left, insort

from anabranch.ids import Position


class KeyedReplays:
    """Positions in one line per hash, each line ascending."""

    __slots__ = ("_hashes", "_lines")

    def __init__(self) -> None:
        self._lines: dict[int, list[Position]] = {}
        self._hashes: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, position: Position) -> bool:
        return position in self._hashes

    def add(self, position: Position, key_hash: int) -> None:
        """Put a position in its line; no harm if it is in."""
        if position not in self._hashes:
            self._hashes[position] = key_hash
            insort(self._lines.setdefault(key_hash, []), position)

    def discard(self, position: Position) -> None:
        """Take a position out; no harm if it is not in."""
        key_hash = self._hashes.pop(position, None)
        if key_hash is None:
            return
        line = self._lines[key_hash]
        del line[bisect_left(line, position)]
        if not line:
            del self._lines[key_hash]

    def clear(self) -> None:
        """Take all out."""
        self._lines = {}
        self._hashes = {}

    def hash_of(self, position: Position) -> int | None:
        """In which line a position is; None if it is in none."""
        return self._hashes.get(position)

    def line(self, key_hash: int) -> list[Position]:
        """Those with a hash, ascending; not to be changed."""
        return self._lines.get(key_hash, [])

    def hashes(self) -> list[int]:
        """The hashes that somebody waits with."""
        return list(self._lines)
