"""Ledgers in memory, for tests and simulations: an append counts as durable one loop turn later."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from anabranch.errors import AlreadyClosed, ConflictError, Fenced, InputError, NotFound
from anabranch.journal import Pressure
from anabranch.ledgers.store import AppendDone, Entry, LedgerDescription, LedgerQuorums, LedgerState
from anabranch.limits import JOURNAL_RECORD_BYTES_MAX, LEDGER_ID_MAX
from anabranch.runtime.network import Buffer


class _Ledger:
    def __init__(self, ledger_id: int, custom_metadata: Mapping[str, bytes]) -> None:
        self.ledger_id = ledger_id
        self.custom_metadata = custom_metadata
        self.epoch = 1
        self.closed = False
        self.deleted = False
        self.appended = 0
        self.entries: list[bytes] = []
        self.length_bytes = 0


class MemoryReader:
    """See `LedgerReader`."""

    def __init__(self, ledger: _Ledger) -> None:
        self._ledger = ledger

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader.ledger_id`."""
        return self._ledger.ledger_id

    @property
    def last_entry_id(self) -> int:
        """See `LedgerReader.last_entry_id`."""
        return len(self._ledger.entries) - 1

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[Entry]:
        """See `LedgerReader.read`."""
        ledger = self._ledger
        if not 0 <= first <= last:
            raise InputError(f"entries {first}..{last} of ledger {ledger.ledger_id} are no range")
        if ledger.deleted:
            raise NotFound(f"ledger {ledger.ledger_id} was deleted")
        if first > self.last_entry_id:
            raise NotFound(
                f"ledger {ledger.ledger_id} has entries up to {self.last_entry_id}, not {first}"
            )
        found: list[Entry] = []
        for entry_id in range(first, min(last, self.last_entry_id) + 1):
            payload = ledger.entries[entry_id]
            max_bytes -= len(payload)
            if max_bytes < 0 and found:
                break
            found.append(Entry(ledger.ledger_id, entry_id, payload))
        return found


class MemoryWriter(MemoryReader):
    """See `LedgerWriter`."""

    def __init__(self, store: "MemoryLedgerStore", ledger: _Ledger) -> None:
        super().__init__(ledger)
        self._store = store
        self._epoch = ledger.epoch
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def append(self, payload: Buffer, done: AppendDone) -> int:
        """See `LedgerWriter.append`."""
        ledger = self._ledger
        self._check_owner()
        if self._closed or self._store.is_closed:
            raise AlreadyClosed(f"ledger {ledger.ledger_id} is closed")
        if len(payload) > JOURNAL_RECORD_BYTES_MAX:
            raise InputError(f"an entry of {len(payload)} bytes is too large")
        entry_id = ledger.appended
        ledger.appended += 1
        self._store.pressure.pending_bytes += len(payload)
        self._loop.call_soon(self._durable, entry_id, payload, done)
        return entry_id

    def _check_owner(self) -> None:
        if self._ledger.deleted or self._ledger.epoch != self._epoch:
            raise Fenced(f"ledger {self.ledger_id} was opened or deleted by somebody else")

    def _durable(self, entry_id: int, payload: Buffer, done: AppendDone) -> None:
        self._ledger.entries.append(bytes(payload))
        self._ledger.length_bytes += len(payload)
        done(entry_id, None)
        self._store.pressure.settle(len(payload))

    async def close(self) -> int:
        """See `LedgerWriter.close`."""
        self._check_owner()
        self._closed = True
        await asyncio.sleep(0)  # appends of this turn complete before
        self._check_owner()
        self._ledger.closed = True
        return self.last_entry_id


class MemoryLedgerStore:
    """See `LedgerStore`."""

    def __init__(self, pressure: Pressure | None = None) -> None:
        self.pressure = pressure or Pressure()
        self.is_closed = False
        self._ledgers: dict[int, _Ledger] = {}
        self._used: set[int] = set()

    @property
    def failure(self) -> None:
        """See `LedgerStore.failure`: memory does not fail."""

    @property
    def degraded(self) -> None:
        """See `LedgerStore.degraded`."""

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> MemoryWriter:
        """See `LedgerStore.create`."""
        del quorums  # there is one server
        self._check_open()
        if not 0 <= ledger_id <= LEDGER_ID_MAX:
            raise InputError(f"ledger id {ledger_id} is not in 0..{LEDGER_ID_MAX}")
        if ledger_id in self._used:
            raise ConflictError(f"ledger id {ledger_id} was used before")
        self._used.add(ledger_id)
        ledger = self._ledgers[ledger_id] = _Ledger(ledger_id, dict(custom_metadata or {}))
        return MemoryWriter(self, ledger)

    async def open(self, ledger_id: int) -> MemoryReader:
        """See `LedgerStore.open`."""
        ledger = self._find(ledger_id)
        if not ledger.closed:
            ledger.epoch += 1
            await asyncio.sleep(0)  # appends in flight complete before
            ledger.closed = True
        return MemoryReader(ledger)

    async def delete(self, ledger_id: int) -> None:
        """See `LedgerStore.delete`."""
        ledger = self._find(ledger_id)
        ledger.deleted = True
        del self._ledgers[ledger_id]

    async def list(self) -> AsyncIterator[int]:
        """See `LedgerStore.list`."""
        for ledger_id in sorted(self._ledgers):
            yield ledger_id

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerStore.describe`."""
        ledger = self._find(ledger_id)
        return LedgerDescription(
            ledger_id=ledger_id,
            state=LedgerState.CLOSED if ledger.closed else LedgerState.OPEN,
            writer_epoch=ledger.epoch,
            last_entry_id=len(ledger.entries) - 1,
            length_bytes=ledger.length_bytes,
            custom_metadata=dict(ledger.custom_metadata),
        )

    async def close(self) -> None:
        """See `LedgerStore.close`."""
        self.is_closed = True
        await asyncio.sleep(0)

    def _find(self, ledger_id: int) -> _Ledger:
        self._check_open()
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            raise NotFound(f"there is no ledger {ledger_id}")
        return ledger

    def _check_open(self) -> None:
        if self.is_closed:
            raise AlreadyClosed("the ledger store is closed")
