"""The ledger store for one machine: all ledgers in one journal, an index of them in memory.

Opening a ledger writes a FENCE and a CLOSE behind whatever its writer has appended, and from that
moment the writer is refused. Appends in flight are before the FENCE in the journal: they are
acknowledged and in the ledger, or the journal has failed and nobody is told they are safe.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    Corruption,
    FormatError,
    InputError,
    NotFound,
    StorageError,
)
from anabranch.journal import Journal, Pressure, RecordPlace, disk_errors, list_segments
from anabranch.ledgers.embedded_ledger import EmbeddedReader, EmbeddedWriter
from anabranch.ledgers.index import Ledger, LedgerIndex
from anabranch.ledgers.index_file import index_name, restore_sealed
from anabranch.ledgers.records import KIND, Close, Create, Delete, Fact, Fence, encode_fact
from anabranch.ledgers.store import LedgerDescription, LedgerQuorums, LedgerState
from anabranch.ledgers.upkeep import Upkeep
from anabranch.limits import JOURNAL_SEGMENT_BYTES, LEDGER_ID_MAX
from anabranch.runtime.disk import Disk

_NOBODY = -1
"""The granted epoch of a ledger that no writer may append to."""


class EmbeddedLedgerStore:
    """See `LedgerStore`."""

    def __init__(self, disk: Disk, folder: str, index: LedgerIndex, journal: Journal) -> None:
        """Use `open`."""
        self.journal = journal
        self._index = index
        self._creating: set[int] = set()
        self._tail = journal.segments()[-1]
        self._upkeep = Upkeep(disk, f"{folder}/index", index, journal, self._write)

    @classmethod
    async def open_folder(
        cls,
        disk: Disk,
        folder: str,
        *,
        segment_bytes: int = JOURNAL_SEGMENT_BYTES,
        pressure: Pressure | None = None,
    ) -> "EmbeddedLedgerStore":
        """Open the store in a folder, which is made if it is not there.

        Raises:
            Corruption: if what was durable is damaged or missing.
            FormatError: if the folder holds something else or a version this build does not know.
            StorageError: if the disk fails.
        """
        path = f"{folder}/journal"
        index = LedgerIndex(path)
        with disk_errors(f"opening the ledgers in {folder}"):
            await disk.make_folder(f"{folder}/index")
            await _clear_index_leftovers(disk, folder)
        scanned: list[int] = []

        async def known(segment: int) -> bool:
            restored = await restore_sealed(disk, folder, index, segment)
            if not restored:
                scanned.append(segment)
            return restored

        journal = await Journal.open(
            disk,
            path,
            kind=KIND,
            segment_bytes=segment_bytes,
            replay=index.replay,
            sparse=True,
            known=known,
            pressure=pressure,
        )
        try:
            index.check_complete()
        except Corruption:
            await journal.close()
            raise
        store = cls(disk, folder, index, journal)
        for ledger in index.ledgers.values():
            ledger.next_entry = ledger.last_entry_id + 1
            ledger.appended_bytes = ledger.length_bytes
            ledger.granted_epoch = _NOBODY
        store._upkeep.sealed([n for n in scanned if n < store._tail], below=store._tail)
        return store

    @property
    def pressure(self) -> Pressure:
        """See `LedgerStore.pressure`."""
        return self.journal.pressure

    @property
    def failure(self) -> StorageError | None:
        """See `LedgerStore.failure`."""
        return self.journal.failure

    @property
    def upkeep_failure(self) -> StorageError | None:
        """Why housekeeping stopped or waits, if so; no entry is in danger, but no room is freed."""
        return self._upkeep.failure

    @property
    def degraded(self) -> str | None:
        """See `LedgerStore.degraded`."""
        failure = self._upkeep.failure
        return None if failure is None else f"housekeeping of the ledgers: {failure}"

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> EmbeddedWriter:
        """See `LedgerStore.create`."""
        del quorums  # there is one server
        if not 0 <= ledger_id <= LEDGER_ID_MAX:
            raise InputError(f"ledger id {ledger_id} is not in 0..{LEDGER_ID_MAX}")
        if self._index.was_used(ledger_id) or ledger_id in self._creating:
            raise ConflictError(f"ledger id {ledger_id} was used before")
        self._creating.add(ledger_id)
        try:
            await self.record(Create(ledger_id, 1, dict(custom_metadata or {})))
        except AnabranchError:
            self._creating.discard(ledger_id)
            raise
        self._creating.discard(ledger_id)
        ledger = self._index.ledgers[ledger_id]
        ledger.granted_epoch = ledger.epoch
        return EmbeddedWriter(self, ledger)

    async def open(self, ledger_id: int) -> EmbeddedReader:
        """See `LedgerStore.open`."""
        ledger = self._find(ledger_id)
        if ledger.closed_last is None:
            ledger.granted_epoch = _NOBODY
            await self.record(
                Fence(ledger_id, ledger.epoch + 1),
                Close(ledger_id, ledger.next_entry - 1, ledger.appended_bytes),
            )
            if not self.living(ledger):
                raise NotFound(f"ledger {ledger_id} was deleted")
        return EmbeddedReader(self, ledger)

    async def delete(self, ledger_id: int) -> None:
        """See `LedgerStore.delete`."""
        ledger = self._find(ledger_id)
        ledger.granted_epoch = _NOBODY
        await self.record(Delete([(ledger_id, ledger_id)]))
        self._upkeep.wake()

    async def list(self) -> AsyncIterator[int]:
        """See `LedgerStore.list`."""
        for ledger_id in sorted(self._index.ledgers):
            if self._index.get(ledger_id) is not None:
                yield ledger_id

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerStore.describe`."""
        ledger = self._find(ledger_id)
        closed = ledger.closed_last is not None
        return LedgerDescription(
            ledger_id=ledger_id,
            state=LedgerState.CLOSED if closed else LedgerState.OPEN,
            writer_epoch=ledger.epoch,
            last_entry_id=ledger.last_entry_id,
            length_bytes=ledger.length_bytes,
            custom_metadata=dict(ledger.custom_metadata),
        )

    async def tidied(self) -> None:
        """Wait until housekeeping has nothing left to do."""
        await self._upkeep.finished()

    async def close(self) -> None:
        """See `LedgerStore.close`."""
        await self._upkeep.close()
        await self.journal.close()

    def _find(self, ledger_id: int) -> Ledger:
        ledger = self._index.get(ledger_id)
        if ledger is None:
            raise NotFound(f"there is no ledger {ledger_id}")
        return ledger

    def living(self, ledger: Ledger) -> bool:
        """See `Home.living`."""
        return self._index.ledgers.get(ledger.ledger_id) is ledger

    def entry_is_durable(self, ledger: Ledger, entry_id: int, place: RecordPlace) -> None:
        """See `Home.entry_is_durable`."""
        if place.segment != self._tail:
            self._begin_segment(place.segment)
        self._index.add_entry(ledger, entry_id, place)

    async def record(self, *facts: Fact) -> None:
        """Make facts durable, then known."""
        await self._write([encode_fact(fact) for fact in facts])

    async def _write(self, records: Sequence[bytes]) -> None:
        last_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for number, record in enumerate(records, 1):
            self._write_one(record, last_done, is_last=number == len(records))
        await last_done

    def _write_one(self, record: bytes, last_done: asyncio.Future[None], *, is_last: bool) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                if place.segment != self._tail:
                    self._begin_segment(place.segment)
                self._index.learn(place.segment, record)
            if last_done.done():
                return
            if error is not None:
                last_done.set_exception(error)
            elif is_last:
                last_done.set_result(None)

        place = self.journal.append([record], done)

    def _begin_segment(self, segment: int) -> None:
        """The first durable record of a segment: the ones before are sealed."""
        older, self._tail = range(self._tail, segment), segment
        self._upkeep.sealed(older, below=segment)


async def _clear_index_leftovers(disk: Disk, folder: str) -> None:
    """Remove index files of segments that are gone, and those that were being written."""
    wanted = [index_name(number) for number in await list_segments(disk, f"{folder}/journal")]
    for name in await disk.list(f"{folder}/index"):
        stem, dot, rest = name.partition(".")
        if not stem.isdigit() or f"{dot}{rest}" not in (".index", ".index.new"):
            raise FormatError(f"{folder}/index/{name} is not a ledger index: the wrong folder?")
        if name not in wanted:
            await disk.remove(f"{folder}/index/{name}")
