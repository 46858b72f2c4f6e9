"""Entries to be asked for again after a while. Pure."""

from anabranch.ids import Position


class Later:
    """Which entries are due when."""

    def __init__(self) -> None:
        self._due_s: dict[Position, float] = {}

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, position: Position, due_s: float) -> None:
        """Note an entry; a later word on it counts."""
        self._due_s[position] = due_s

    def drop(self, position: Position) -> None:
        """The entry need not come again."""
        self._due_s.pop(position, None)

    def next_s(self) -> float | None:
        """When the next one is due."""
        return min(self._due_s.values(), default=None)

    def take(self, now_s: float) -> list[Position]:
        """Those that are due, in the order of the topic."""
        due = sorted(position for position, due_s in self._due_s.items() if due_s <= now_s)
        for position in due:
            del self._due_s[position]
        return due

    def clear(self) -> None:
        """Forget all."""
        self._due_s.clear()
