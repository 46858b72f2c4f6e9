"""The newest entries of all topics of a process, bounded by bytes over all of them.

When the bound is passed, the topics that hold most give up their oldest entries: topics are kept
in classes by the power of two of their bytes, and the highest class gives first. So a topic with
less than half of what the largest holds loses nothing, and finding the victim costs no search.
"""

from bisect import bisect_right

from anabranch.ledgers.store import Entry

_ENTRY_OVERHEAD_BYTES = 256
"""What an entry costs in memory besides its payload; keeps many tiny entries within the bound."""
_GONE = Entry(-1, -1, b"")


class _Tail:
    """Consecutive entries of one ledger; those before `head` were evicted."""

    __slots__ = ("dropped_bytes", "ends", "entries", "first_id", "head", "ledger_id")

    def __init__(self, ledger_id: int, first_id: int) -> None:
        self.ledger_id = ledger_id
        self.first_id = first_id
        self.entries: list[Entry] = []
        self.ends: list[int] = []
        """Bytes of this and all earlier entries, so that a byte limit is found by bisection."""
        self.dropped_bytes = 0
        self.head = 0

    def take(self, entry_id: int, max_entries: int, max_bytes: int) -> list[Entry]:
        index = entry_id - self.first_id
        if not self.head <= index < len(self.entries):
            return []
        before = self.ends[index - 1] if index else self.dropped_bytes
        fitting = bisect_right(self.ends, before + max_bytes, index)
        return self.entries[index : min(max(fitting, index + 1), index + max_entries)]

    def evict_oldest(self) -> int:
        size = len(self.entries[self.head].payload)
        # Taken off the list later, but let go of now: it is not counted any more.
        self.entries[self.head] = _GONE
        self.head += 1
        if self.head * 2 > len(self.entries):
            self.dropped_bytes = self.ends[self.head - 1]
            del self.entries[: self.head]
            del self.ends[: self.head]
            self.first_id += self.head
            self.head = 0
        return size


class TopicCache:
    """The cached entries of one topic."""

    __slots__ = ("_cache", "_tails", "bytes_held")

    def __init__(self, cache: "EntryCache") -> None:
        self._cache = cache
        # A list: there are few of them, and an empty deque is half a kibibyte for each topic.
        self._tails: list[_Tail] = []
        self.bytes_held = 0

    def add(self, entry: Entry) -> None:
        """Keep an entry that follows the last one kept, or begins anew."""
        tails = self._tails
        tail = tails[-1] if tails else None
        if (
            tail is None
            or tail.ledger_id != entry.ledger_id
            or tail.first_id + len(tail.entries) != entry.entry_id
        ):
            tail = _Tail(entry.ledger_id, entry.entry_id)
            tails.append(tail)
        size = len(entry.payload)
        ends = tail.ends
        ends.append((ends[-1] if ends else tail.dropped_bytes) + size)
        tail.entries.append(entry)
        self._cache.resized(self, size + _ENTRY_OVERHEAD_BYTES)

    def read(self, ledger_id: int, first: int, max_entries: int, max_bytes: int) -> list[Entry]:
        """Consecutive entries from `first` on; [] if that one is not here.

        At least one, then as many as fit `max_bytes`.
        """
        for tail in reversed(self._tails):
            if tail.ledger_id == ledger_id:
                if found := tail.take(first, max_entries, max_bytes):
                    return found
            elif tail.ledger_id < ledger_id:
                break
        return []

    def drop_ledgers_below(self, ledger_id: int) -> None:
        """Forget the entries of ledgers that were removed."""
        while self._tails and self._tails[0].ledger_id < ledger_id:
            self._drop_oldest_tail()

    def clear(self) -> None:
        """Forget everything."""
        while self._tails:
            self._drop_oldest_tail()

    def _drop_oldest_tail(self) -> None:
        tail = self._tails.pop(0)
        kept = tail.entries[tail.head :]
        freed = sum(len(entry.payload) + _ENTRY_OVERHEAD_BYTES for entry in kept)
        self._cache.resized(self, -freed)

    def evict_oldest(self) -> int:
        """Forget the oldest entry and return how much that freed."""
        tail = self._tails[0]
        freed = tail.evict_oldest() + _ENTRY_OVERHEAD_BYTES
        if not tail.entries:
            del self._tails[0]
        return freed


class EntryCache:
    """All cached entries of a process."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        # Dicts as ordered sets: within a class, whoever came in first gives first.
        self._classes: list[dict[TopicCache, None]] = [{} for _ in range(64)]
        self._highest = 0

    def topic(self) -> TopicCache:
        """Return a new, empty part for one topic."""
        return TopicCache(self)

    def resized(self, topic: TopicCache, change_bytes: int) -> None:
        """Account for a topic that grew or shrank, and evict if that was too much."""
        before = topic.bytes_held
        topic.bytes_held = after = before + change_bytes
        self.bytes_held += change_bytes
        if before.bit_length() != after.bit_length():
            self._reclassify(topic, before, after)
        while self.bytes_held > self.bytes_max:
            while not self._classes[self._highest]:
                self._highest -= 1
            largest = next(iter(self._classes[self._highest]))
            freed = largest.evict_oldest()
            before = largest.bytes_held
            largest.bytes_held = after = before - freed
            self.bytes_held -= freed
            self._reclassify(largest, before, after)

    def _reclassify(self, topic: TopicCache, before: int, after: int) -> None:
        assert after >= 0, "a topic freed more than it held"
        old, new = before.bit_length(), after.bit_length()
        if old == new:
            return
        if old:
            del self._classes[old][topic]
        if new:
            self._classes[new][topic] = None
            self._highest = max(self._highest, new)

    def validate(self) -> None:
        """Assert what must always hold."""
        topics = [topic for members in self._classes for topic in members]
        assert self.bytes_held == sum(topic.bytes_held for topic in topics)
        assert self.bytes_held <= self.bytes_max
        for size_class, members in enumerate(self._classes):
            assert all(topic.bytes_held.bit_length() == size_class for topic in members)
            assert not members or size_class <= self._highest
