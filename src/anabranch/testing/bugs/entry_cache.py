"""Planted bugs of the cache of entries."""

from anabranch.ledgers.store import Entry
from anabranch.managed_ledger.cache import TopicCache
from anabranch.testing.planted import planted


@planted(
    "cached_entries_of_another_ledger", target="anabranch.managed_ledger.cache:TopicCache.read"
)
def cached_entries_of_another_ledger(
    self: TopicCache, ledger_id: int, first: int, max_entries: int, max_bytes: int
) -> list[Entry]:
    """An entry is looked for by its number alone, in whichever ledger comes first."""
    for tail in self._tails:
        if found := tail.take(first, max_entries, max_bytes):
            return [Entry(ledger_id, entry.entry_id, entry.payload) for entry in found]
    return []
