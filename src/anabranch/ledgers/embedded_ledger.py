"""Reading and writing one ledger of the embedded store."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from anabranch.errors import (
    AlreadyClosed,
    Corruption,
    Fenced,
    InputError,
    NotFound,
    StorageError,
    StoreBusy,
)
from anabranch.journal import Journal, RecordPlace
from anabranch.ledgers.index import Ledger
from anabranch.ledgers.records import ENTRY, ENTRY_HEADER, ENTRY_HEADER_BYTES, Close
from anabranch.ledgers.store import AppendDone, Entry
from anabranch.limits import STORE_PENDING_BYTES_MAX
from anabranch.runtime.network import Buffer


class Home(Protocol):
    """What a ledger needs of its store."""

    journal: Journal

    def living(self, ledger: Ledger) -> bool:
        """Whether the ledger is not deleted."""
        ...

    def entry_is_durable(self, ledger: Ledger, entry_id: int, place: RecordPlace) -> None:
        """Take an entry into the index."""
        ...

    async def record(self, *facts: Close) -> None:
        """Make facts durable and known."""
        ...


class EmbeddedReader:
    """See `LedgerReader`."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self._home = home
        self._ledger = ledger
        self._journal = home.journal

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader.ledger_id`."""
        return self._ledger.ledger_id

    @property
    def last_entry_id(self) -> int:
        """See `LedgerReader.last_entry_id`."""
        return self._ledger.last_entry_id

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """See `LedgerReader.read`."""
        ledger = self._ledger
        if not 0 <= first <= last:
            raise InputError(f"entries {first}..{last} of ledger {ledger.ledger_id} are no range")
        if not self._home.living(ledger):
            raise NotFound(f"ledger {ledger.ledger_id} was deleted")
        if first > ledger.last_entry_id:
            raise NotFound(
                f"ledger {ledger.ledger_id} has entries up to {ledger.last_entry_id}, not {first}"
            )
        last = min(last, ledger.last_entry_id)
        while True:
            moves = ledger.moves
            try:
                return await self._read(first, last, max_bytes)
            except (Corruption, NotFound, StorageError) as error:
                if not self._home.living(ledger):
                    raise NotFound(f"ledger {ledger.ledger_id} was deleted") from error
                if ledger.moves == moves:
                    if first == last or isinstance(error, NotFound):
                        raise
                    # Damage further on is for those to hear of who begin there.
                    last = (first + last) // 2

    async def _read(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Read as the index tells; entries that move meanwhile are not found, or seem damaged."""
        ledger = self._ledger
        entries: list[Entry] = []
        for places in ledger.select(first, last, max_bytes):
            records = await self._journal.read_run(places)
            useful = sum(map(len, records))
            # A view keeps all that was read in memory; where most of that is not ours, copy.
            span = places[-1].offset + places[-1].length - places[0].offset
            for place, record in zip(places, records, strict=True):
                entry_id = first + len(entries)
                self._check(place, record, entry_id)
                payload = record[ENTRY_HEADER_BYTES:]
                kept = bytes(payload) if span > 2 * useful else payload
                entries.append(Entry(ledger.ledger_id, entry_id, kept))
        return entries

    def _check(self, place: RecordPlace, record: memoryview, entry_id: int) -> None:
        kind, ledger_id, _, found = ENTRY_HEADER.unpack_from(record)
        if (kind, ledger_id, found) != (ENTRY, self._ledger.ledger_id, entry_id):
            detail = f"entry {ledger_id}:{found} is where {self.ledger_id}:{entry_id} should be"
            raise Corruption(self._journal.files.path(place.segment), place.offset, detail)


class EmbeddedWriter(EmbeddedReader):
    """See `LedgerWriter`."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        super().__init__(home, ledger)
        self._epoch = ledger.epoch
        self._pending: deque[tuple[int, RecordPlace, AppendDone]] = deque()
        self._append: Callable[..., RecordPlace] = self._journal.append
        self._on_durable = self._durable
        self._pressure = self._journal.pressure
        self._closed = False

    def append(self, payload: Buffer, done: AppendDone) -> int:
        """See `LedgerWriter.append`."""
        ledger = self._ledger
        if self._closed or ledger.granted_epoch != self._epoch:
            self._refuse()
        if self._pressure.pending_bytes > STORE_PENDING_BYTES_MAX:
            raise StoreBusy(f"{self._pressure.pending_bytes} bytes wait for the disk")
        entry_id = ledger.next_entry
        header = ENTRY_HEADER.pack(ENTRY, ledger.ledger_id, self._epoch, entry_id)
        place = self._append((header, payload), self._on_durable)
        ledger.next_entry = entry_id + 1
        ledger.appended_bytes += len(payload)
        self._pending.append((entry_id, place, done))
        return entry_id

    def _refuse(self) -> None:
        if self._ledger.granted_epoch != self._epoch:
            raise Fenced(f"ledger {self.ledger_id} was opened or deleted by somebody else")
        raise AlreadyClosed(f"ledger {self.ledger_id} is closed")

    def _durable(self, error: Exception | None) -> None:
        # The journal completes in the order of appends.
        entry_id, place, done = self._pending.popleft()
        if error is None:
            self._home.entry_is_durable(self._ledger, entry_id, place)
        done(entry_id, error)

    async def close(self) -> int:
        """See `LedgerWriter.close`."""
        ledger = self._ledger
        if ledger.granted_epoch != self._epoch:
            self._refuse()
        self._closed = True
        last = ledger.next_entry - 1
        if ledger.closed_last is None:
            # Behind every entry in the journal, so it is durable only if all of them are.
            await self._home.record(Close(ledger.ledger_id, last, ledger.appended_bytes))
        return last
