"""Looking into the folder of an embedded store that nobody uses, without changing anything in it.

Nothing is recovered here: no tail is cut, no file is made or removed. What a start would do with
the folder is only said.
"""

import heapq
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import repeat

from anabranch.errors import Corruption, FormatError, NotFound
from anabranch.journal import disk_errors, list_segments, segment_name
from anabranch.journal.files import SegmentFiles
from anabranch.journal.format import (
    HEADER_BYTES,
    MARK_BYTES,
    REWRITTEN_VERSION,
    RecordPlace,
    check_header,
    is_torn_header,
    parse_items,
)
from anabranch.journal.recovery import ScannedSegment, check_torn, recover
from anabranch.ledgers.index import Ledger, LedgerIndex, pack_place, unpack_place
from anabranch.ledgers.index_file import restore_sealed
from anabranch.ledgers.records import ENTRY, ENTRY_HEADER_BYTES, KIND
from anabranch.ledgers.store import Entry
from anabranch.limits import JOURNAL_SCAN_BYTES
from anabranch.runtime.disk import Disk, DiskFile

Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been checked."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something stored that is not as it was written."""

    file: str
    offset: int
    detail: str
    entry: str
    """Which entry lies there, as LEDGER:ENTRY; empty if that is not known."""

    def __str__(self) -> str:
        what = f"entry {self.entry}: " if self.entry else ""
        return f"{self.file} at byte {self.offset}: {what}{self.detail}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of a whole store found."""

    segments: int
    bytes_read: int
    entries: int
    torn_bytes: int
    """At the end of the journal, by a crash; nobody was promised them, and a start cuts them."""
    damage: tuple[Damage, ...]


class StoredLedgers:
    """The ledgers in a folder, as a start would find them."""

    def __init__(self, disk: Disk, folder: str, index: LedgerIndex) -> None:
        """Use `load`."""
        self._disk = disk
        self._folder = folder
        self._files = SegmentFiles(disk, f"{folder}/journal", KIND)
        self._index = index

    @classmethod
    async def load(cls, disk: Disk, folder: str) -> "StoredLedgers":
        """Read index files, and the segments that have none.

        Raises:
            NotFound: if there is no store in the folder.
            Corruption: if a segment that had to be read is damaged, or one is missing.
            FormatError: if something in the folder is foreign or of an unknown version.
        """
        stored = await cls._bare(disk, folder)
        await stored._fill()
        stored._index.check_complete()
        return stored

    @classmethod
    async def _bare(cls, disk: Disk, folder: str) -> "StoredLedgers":
        if not await disk.exists(f"{folder}/journal"):
            raise NotFound(f"there is no ledger store in {folder}: it has no folder 'journal'")
        return cls(disk, folder, LedgerIndex(f"{folder}/journal"))

    async def _fill(self) -> None:
        async def known(segment: int) -> bool:
            with disk_errors(f"reading the index files in {self._folder}"):
                return await restore_sealed(self._disk, self._folder, self._index, segment)

        await recover(
            self._disk,
            f"{self._folder}/journal",
            kind=KIND,
            replay=self._index.replay,
            from_segment=0,
            sparse=True,
            known=known,
        )

    def ledgers(self) -> list[Ledger]:
        """All ledgers by id."""
        return [ledger for _, ledger in sorted(self._index.ledgers.items())]

    def ledger(self, ledger_id: int) -> Ledger:
        """One of them.

        Raises:
            NotFound: if there is none of that id.
        """
        found = self._index.get(ledger_id)
        if found is None:
            raise NotFound(f"there is no ledger {ledger_id} in {self._folder}")
        return found

    async def read(self, ledger: Ledger, first: int, last: int) -> AsyncIterator[Entry]:
        """Entries first..last that are there, in order.

        Raises:
            Corruption: at the first one that is damaged.
        """
        at = first
        while at <= min(last, ledger.last_entry_id):
            for places in ledger.select(at, min(last, ledger.last_entry_id), JOURNAL_SCAN_BYTES):
                for record in await self._files.read_records(places):
                    yield Entry(ledger.ledger_id, at, record[ENTRY_HEADER_BYTES:])
                    at += 1

    async def close(self) -> None:
        """Let go of open files."""
        await self._files.close()


async def check_store(disk: Disk, folder: str, progress: Progress) -> Checked:
    """Read every byte of a store and hold it to its checksums.

    Raises:
        NotFound: if there is no store in the folder.
        FormatError: if something in the folder is foreign.
        StorageError: if the disk cannot read.
    """
    stored = await StoredLedgers._bare(disk, folder)
    check = _Check(disk, folder, stored._index, progress)
    try:
        await stored._fill()
        stored._index.check_complete()
    except Corruption as error:
        # Reported again by the scan if it is in a segment; a lost one is seen only here.
        check.first_failure = error
    await check.run()
    return check.result()


class _Check:
    """A scan of all segments that goes on behind damage, where the index knows how."""

    def __init__(self, disk: Disk, folder: str, index: LedgerIndex, progress: Progress) -> None:
        self._disk = disk
        self._folder = f"{folder}/journal"
        self._index = index
        self._progress = progress
        self.first_failure: Corruption | None = None
        self._damage: list[Damage] = []
        self._segments = 0
        self._bytes = 0
        self._total = 0
        self._entries = 0
        self._torn = 0

    def result(self) -> Checked:
        """What was found."""
        damage = list(self._damage)
        failure = self.first_failure
        if failure is not None and not damage:
            damage.append(Damage(failure.file, failure.offset, failure.detail, ""))
        return Checked(self._segments, self._bytes, self._entries, self._torn, tuple(damage))

    async def run(self) -> None:
        """Scan everything."""
        with disk_errors(f"checking {self._folder}"):
            numbers = await list_segments(self._disk, self._folder)
            for number in numbers:
                file = await self._open(number)
                self._total += await file.size()
                await file.close()
            for position, number in enumerate(numbers):
                file = await self._open(number)
                try:
                    await self._segment(number, file, numbers[position + 1 :])
                finally:
                    await file.close()

    async def _open(self, number: int) -> DiskFile:
        path = f"{self._folder}/{segment_name(number)}"
        return await self._disk.open(path, read_only=True)

    async def _segment(self, number: int, file: DiskFile, later: list[int]) -> None:
        size = await file.size()
        self._segments += 1
        header = await file.read_at(0, HEADER_BYTES)
        if size <= HEADER_BYTES and is_torn_header(header, KIND, number):
            self._advance(size)
            return
        try:
            version = check_header(header, file.path, KIND, number)
        except (Corruption, FormatError) as error:
            self._damage.append(Damage(file.path, 0, str(error), ""))
            self._advance(size)
            return
        self._advance(HEADER_BYTES)
        known = self._places(number)
        offset, synced = HEADER_BYTES, -1
        while offset < size:
            offset, marked, damage = await self._items(number, file, offset, size)
            synced = max(synced, marked)
            if not damage:
                continue
            segment = ScannedSegment(number, file.path, size, offset, damage, synced, None)
            if version != REWRITTEN_VERSION and await self._is_torn(segment, later):
                self._torn += size - offset
                self._advance(size - offset)
                return
            offset = self._skip(number, file.path, known, offset, damage, size)
        if version == REWRITTEN_VERSION and synced != size - MARK_BYTES:
            self._damage.append(Damage(file.path, size, "the end of the segment is missing", ""))

    def _places(self, number: int) -> list[tuple[int, int]]:
        """Packed place and ledger of every living entry that the index knows in a segment."""
        use = self._index.segments.get(number)
        ledgers = [] if use is None else [self._index.ledgers[n] for n in use.ledgers]
        # A ledger that lost a segment does not know its runs before that any more.
        whole = [ledger for ledger in ledgers if number in ledger.run_segments]
        runs = (zip(ledger.run(number)[1], repeat(ledger.ledger_id)) for ledger in whole)
        return list(heapq.merge(*runs))

    async def _items(
        self, number: int, file: DiskFile, offset: int, size: int
    ) -> tuple[int, int, str]:
        """Parse one piece; where it ends, what its marks vouch for, and what is wrong there."""
        wanted = 0
        while True:
            data = memoryview(await file.read_at(offset, max(JOURNAL_SCAN_BYTES, wanted)))
            parsed = parse_items(data, number, offset, self._replay)
            self._advance(parsed.consumed)
            end = offset + parsed.consumed
            if parsed.consumed or parsed.damage:
                return end, parsed.synced, parsed.damage
            wanted = parsed.wanted_bytes
            if size - end < wanted:
                left = f"{size - end} bytes are left of an item of at least {wanted}"
                return end, parsed.synced, left

    def _replay(self, _place: RecordPlace, record: memoryview) -> None:
        self._entries += record[0] == ENTRY

    async def _is_torn(self, segment: ScannedSegment, later: list[int]) -> bool:
        """Whether it is what a crash leaves: nothing that anybody was promised."""
        try:
            await check_torn(self._disk, self._folder, segment, later)
        except Corruption:
            return False
        return True

    def _skip(
        self,
        number: int,
        path: str,
        known: list[tuple[int, int]],
        offset: int,
        damage: str,
        size: int,
    ) -> int:
        """Report damage and return where the next entry that the index knows begins."""
        at = bisect_left(known, (pack_place(offset, 1), -1))
        entry = ""
        if at < len(known) and unpack_place(number, known[at][0]).offset == offset:
            entry = self._name(number, *known[at])
            at += 1
        self._damage.append(Damage(path, offset, damage, entry))
        following = unpack_place(number, known[at][0]).offset if at < len(known) else size
        self._advance(following - offset)
        return following

    def _name(self, number: int, packed: int, ledger_id: int) -> str:
        first, places = self._index.ledgers[ledger_id].run(number)
        return f"{ledger_id}:{first + places.index(packed)}"

    def _advance(self, byte_count: int) -> None:
        self._bytes += byte_count
        self._progress(self._bytes, self._total)
