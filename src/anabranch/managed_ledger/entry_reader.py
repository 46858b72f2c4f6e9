"""Reading entries of a chain, from the cache if they are there, else from their ledger."""

from anabranch import limits
from anabranch.errors import AlreadyClosed, NotFound, StorageError
from anabranch.ids import Position
from anabranch.ledgers.clusters import LedgerKey, StorageClusters
from anabranch.ledgers.stamps import LedgerPlace
from anabranch.ledgers.store import Entry, LedgerReader
from anabranch.managed_ledger.cache import TopicCache
from anabranch.managed_ledger.published_chain import PublishedChain
from anabranch.managed_ledger.storage_figures import StorageFigures


class EntryReader:
    """Reads one managed ledger."""

    __slots__ = ("_cached", "_chain", "_figures", "_ledgers", "_name", "_published", "_readers")

    def __init__(
        self,
        name: str,
        published: PublishedChain,
        cached: TopicCache,
        ledgers: StorageClusters,
        figures: StorageFigures,
    ) -> None:
        self._name = name
        self._published = published
        self._chain = published.chain
        self._cached = cached
        self._ledgers = ledgers
        self._figures = figures
        self._readers: dict[LedgerKey, LedgerReader] = {}

    def read_cached(self, start: Position, max_entries: int, max_bytes: int) -> list[Entry] | None:
        """See `ManagedLedger.read_cached`."""
        assert max_entries > 0, "a read asks for at least one entry"
        ledger_id, first = self._chain.ceiling(start)
        if first >= self._chain.entries_of(ledger_id):
            return []
        return self._cached.read(ledger_id, first, max_entries, max_bytes) or None

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[Entry]:
        """See `ManagedLedger.read`."""
        while True:
            cached = self.read_cached(start, max_entries, max_bytes)
            if cached is not None:
                return cached
            ledger_id, first = self._chain.ceiling(start)
            last = min(first + max_entries, self._chain.entries_of(ledger_id)) - 1
            try:
                reader = await self._reader(ledger_id)
                entries = await reader.read(first, last, max_bytes=max_bytes)
            except NotFound as error:
                # Trimmed meanwhile: what `start` means now is the first entry that is left.
                if self._chain.entries_of(ledger_id):
                    raise StorageError(
                        f"entries {first} to {last} of ledger {ledger_id} of managed ledger "
                        f"{self._name} are not in the ledger store"
                    ) from error
            else:
                self._figures.reads += len(entries)
                return entries

    def forget_below(self, ledger_id: int) -> None:
        """Let go of ledgers that were removed."""
        self._cached.drop_ledgers_below(ledger_id)
        for old in [key for key in self._readers if key[1] < ledger_id]:
            del self._readers[old]

    def clear(self) -> None:
        """Let go of everything."""
        self._cached.clear()
        self._readers.clear()

    async def _reader(self, ledger_id: int) -> LedgerReader:
        if ledger_id == self._chain.open_id:
            # Opening it would fence our own writer.
            if self._published.writer is None:
                raise AlreadyClosed(f"managed ledger {self._name} is being closed or deleted")
            return self._published.writer
        place = LedgerPlace(ledger_id, self._chain.stamp_of(ledger_id))
        key = self._ledgers.key(place)
        reader = self._readers.get(key)
        if reader is None:
            reader = await self._ledgers.open(place)
            while len(self._readers) >= limits.LEDGER_READERS_PER_TOPIC_MAX:
                del self._readers[next(iter(self._readers))]
            self._readers[key] = reader
        return reader
