"""Sealed ledgers in the folder of an embedded store, read while its server writes there.

Nothing is locked, recovered or written. A server changes a folder in three ways: it appends to the
last segment, writes a sealed segment anew with less in it, and removes one that nobody needs. So a
file is opened before its index file is read, and both belong together if the index names the
length of the file: whoever writes a segment anew makes it smaller, and removes its index before.
The end of the last segment may be half written; but what a server has told anybody of is whole.
"""

from collections.abc import AsyncIterator, Collection

from anabranch.errors import Corruption, FormatError, NotFound
from anabranch.journal import RecordPlace, disk_errors, list_segments, segment_name
from anabranch.journal.format import (
    HEADER_BYTES,
    RECORD_HEADER_BYTES,
    check_header,
    is_torn_header,
    parse_items,
    record_payload,
    seed_of,
)
from anabranch.ledgers.index import Ledger, LedgerIndex
from anabranch.ledgers.index_file import SegmentIndex, decode_index, index_name
from anabranch.ledgers.limits import SEALED_LEDGERS_LOOKS_MAX
from anabranch.ledgers.records import (
    ENTRY,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    KIND,
    Delete,
    decode_fact,
)
from anabranch.ledgers.store import Entry, LedgerDescription, LedgerState
from anabranch.limits import JOURNAL_SCAN_BYTES
from anabranch.runtime.disk import Disk, DiskFile


class SealedLedgers:
    """Some ledgers of a folder, found once; their files stay open until `close`."""

    def __init__(self, disk: Disk, folder: str, wanted: Collection[int]) -> None:
        """Use `find`."""
        self._disk = disk
        self._folder = folder
        self._wanted = frozenset(wanted)
        self._index = LedgerIndex(f"{folder}/journal")
        self._files: dict[int, DiskFile] = {}
        self._damage: Corruption | None = None
        """Behind it a segment could not be looked through."""

    @classmethod
    async def find(cls, disk: Disk, folder: str, wanted: Collection[int]) -> "SealedLedgers":
        """Find out where the entries of some ledgers are.

        Raises:
            NotFound: if there is no store in the folder.
            Corruption: if one of the ledgers lacks something, however often one looks.
            FormatError: if something in the folder is foreign or of an unknown version.
            StorageError: if the disk cannot read.
        """
        if not await disk.exists(f"{folder}/journal"):
            raise NotFound(f"there is no ledger store in {folder}: it has no folder 'journal'")
        looks = 0
        while True:
            found = cls(disk, folder, wanted)
            looks += 1
            try:
                with disk_errors(f"looking for ledgers in {folder}"):
                    await found._look()
                return found
            except Corruption:
                await found.close()
                if looks == SEALED_LEDGERS_LOOKS_MAX:
                    raise
            except BaseException:
                await found.close()
                raise

    # --- finding ------------------------------------------------------------------------------

    async def _look(self) -> None:
        for number in await list_segments(self._disk, f"{self._folder}/journal"):
            path = f"{self._folder}/journal/{segment_name(number)}"
            try:
                file = await self._disk.open(path, read_only=True)
            except FileNotFoundError:
                continue  # nobody needed it; what it said of ledgers is in a later one by now
            self._files[number] = file
            await self._take_in(number, file)
            if not self._is_needed(number):
                await self._files.pop(number).close()
        try:
            self._index.check_complete()
        except Corruption as lack:
            raise self._damage or lack from None

    async def _take_in(self, number: int, file: DiskFile) -> None:
        size = await file.size()
        content = await self._index_of(number)
        if content is None:
            await self._scan(number, file, size)
        elif content.segment_bytes != size:
            detail = f"the segment has {size} bytes; its index knows {content.segment_bytes}"
            raise Corruption(file.path, 0, detail)
        else:
            for run in content.runs:
                if run.ledger_id in self._wanted:
                    self._index.add_run(
                        number, run.ledger_id, run.first_entry, run.places, run.length_bytes
                    )
            for record in content.facts:
                self._learn(number, record)

    async def _index_of(self, number: int) -> SegmentIndex | None:
        try:
            content = await self._disk.read(f"{self._folder}/index/{index_name(number)}")
            return decode_index(content, number)
        except (FileNotFoundError, FormatError):
            return None  # as at a start: such a segment is read

    async def _scan(self, number: int, file: DiskFile, size: int) -> None:
        """Take in whatever is whole."""
        header = await file.read_at(0, HEADER_BYTES)
        if is_torn_header(header, KIND, number):
            return
        check_header(header, file.path, KIND, number)
        offset, wanted_bytes = HEADER_BYTES, 0
        while offset < size:
            asked_bytes = max(JOURNAL_SCAN_BYTES, wanted_bytes)
            data = await file.read_at(offset, asked_bytes)
            parsed = parse_items(memoryview(data), number, offset, self._replay)
            offset += parsed.consumed
            wanted_bytes = parsed.wanted_bytes
            if parsed.damage:
                self._damage = Corruption(file.path, offset, parsed.damage)
                return
            if len(data) < asked_bytes:
                return

    def _replay(self, place: RecordPlace, record: memoryview) -> None:
        if record[0] != ENTRY:
            self._learn(place.segment, bytes(record))
        elif ENTRY_HEADER.unpack_from(record)[1] in self._wanted:
            self._index.replay(place, record)

    def _learn(self, segment: int, record: bytes) -> None:
        fact = decode_fact(memoryview(record))
        if isinstance(fact, Delete) or fact.ledger_id in self._wanted:
            self._index.learn(segment, record)

    def _is_needed(self, number: int) -> bool:
        use = self._index.segments.get(number)
        return use is not None and bool(use.ledgers)

    # --- reading ------------------------------------------------------------------------------

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """What is known of one of the ledgers.

        Raises:
            NotFound: if there is none of that id.
            Corruption: if it may be behind something that cannot be read.
        """
        ledger = self._ledger(ledger_id)
        if ledger.closed_last is None and self._damage is not None:
            raise self._damage
        return LedgerDescription(
            ledger_id,
            LedgerState.OPEN if ledger.closed_last is None else LedgerState.CLOSED,
            ledger.epoch,
            ledger.last_entry_id,
            ledger.length_bytes,
            ledger.custom_metadata,
        )

    async def read(self, ledger_id: int, first: int, last: int) -> AsyncIterator[Entry]:
        """Entries first..last that are there, in order.

        Raises:
            Corruption: at the first one that is damaged.
        """
        ledger = self._ledger(ledger_id)
        last = min(last, ledger.last_entry_id)
        while first <= last:
            for places in ledger.select(first, last, JOURNAL_SCAN_BYTES):
                start = places[0].offset
                data = await self._bytes_at(places)
                for place in places:
                    at = place.offset - start
                    record = data[at : at + RECORD_HEADER_BYTES + place.length]
                    yield Entry(ledger_id, first, self._payload(place, record, ledger_id, first))
                    first += 1

    async def _bytes_at(self, places: list[RecordPlace]) -> memoryview:
        segment, start, _ = places[0]
        end = places[-1].offset + RECORD_HEADER_BYTES + places[-1].length
        file = self._files[segment]
        with disk_errors(f"reading {file.path} at byte {start}"):
            return memoryview(await file.read_at(start, end - start))

    def _payload(
        self, place: RecordPlace, data: memoryview, ledger_id: int, entry_id: int
    ) -> memoryview:
        record = record_payload(data, seed_of(place.segment))
        detail = ""
        if record is None or len(record) != place.length:
            detail = f"entry {ledger_id}:{entry_id} is damaged"
        else:
            kind, found_ledger, _, found = ENTRY_HEADER.unpack_from(record)
            if (kind, found_ledger, found) == (ENTRY, ledger_id, entry_id):
                return record[ENTRY_HEADER_BYTES:]
            detail = f"entry {found_ledger}:{found} is where {ledger_id}:{entry_id} should be"
        raise Corruption(self._files[place.segment].path, place.offset, detail)

    def _ledger(self, ledger_id: int) -> Ledger:
        found = self._index.get(ledger_id)
        if found is None:
            if self._damage is not None and ledger_id not in self._index.deleted:
                raise self._damage
            raise NotFound(f"there is no ledger {ledger_id} in {self._folder}")
        return found

    async def close(self) -> None:
        """Let go of the files."""
        files, self._files = self._files, {}
        for file in files.values():
            await file.close()
