"""Values kept by name, bounded in number and bytes: the one used longest ago goes first.

Pure. Knows nothing of stores; what may be kept is decided by `cache.py`.
"""

from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar

from anabranch.metadata.store import Stat

T = TypeVar("T")
ENTRY_OVERHEAD_BYTES = 500
"""What an entry costs in memory besides its name and stored value."""


class Entry(NamedTuple, Generic[T]):
    """One kept value; without a stat it says that there is nothing."""

    value: T
    stat: Stat | None
    size_bytes: int
    read_s: float
    """When it was read or written, by the monotonic clock."""


class BoundedEntries(Generic[T]):
    """A dictionary that forgets."""

    def __init__(self, *, entries_max: int, bytes_max: int) -> None:
        self._entries: OrderedDict[str, Entry[T]] = OrderedDict()
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Entry[T] | None:
        """The entry, which counts as used now."""
        entry = self._entries.get(name)
        if entry is not None:
            self._entries.move_to_end(name)
        return entry

    def peek(self, name: str) -> Entry[T] | None:
        """The entry, without counting it as used."""
        return self._entries.get(name)

    def keep(self, name: str, entry: Entry[T]) -> None:
        """Replace an entry; others go if there is no room, or it is not kept if it never fits."""
        self.drop(name)
        if entry.size_bytes > self._bytes_max:
            return
        self._entries[name] = entry
        self.bytes_held += entry.size_bytes
        while len(self._entries) > self._entries_max or self.bytes_held > self._bytes_max:
            _, old = self._entries.popitem(last=False)
            self.bytes_held -= old.size_bytes

    def drop(self, name: str) -> None:
        """Forget an entry."""
        old = self._entries.pop(name, None)
        if old is not None:
            self.bytes_held -= old.size_bytes

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes_held = 0
