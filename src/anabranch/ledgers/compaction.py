"""Makes a segment small again of which most belongs to deleted ledgers.

What living ledgers have in it is copied, in its order, to a file that then takes the segment's
place; nothing goes through the end of the journal, so that appends share only the disk with it.
The copying goes in slices at a limited rate. In the new file all facts are behind all entries:
facts merge, so that their order does not matter, and no entry is behind the end of its ledger.
"""

import asyncio
import heapq
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

from anabranch.errors import Corruption, DiskFull
from anabranch.journal import Journal, RecordPlace, SegmentRewriting
from anabranch.ledgers.index import Ledger, LedgerIndex, pack_place, unpack_place
from anabranch.limits import (
    LEDGER_COMPACTION_BYTES_PER_S_MAX,
    LEDGER_COMPACTION_SLICE_BYTES,
    LEDGER_READ_GAP_BYTES_MAX,
    LEDGER_UPKEEP_SLICE,
)

_Slice = list[tuple[RecordPlace, int]]
"""Places that are worth one read, each with the number of its ledger's run."""


class Compaction:
    """Writes one sealed segment anew."""

    def __init__(self, index: LedgerIndex, journal: Journal, segment: int) -> None:
        self._index = index
        self._journal = journal
        self._segment = segment
        self._rewriting = SegmentRewriting(journal.files, segment)
        ledgers = index.segments[segment].ledgers
        self._ledgers: list[Ledger] = [index.ledgers[ledger_id] for ledger_id in ledgers]
        self._moved = [array("Q") for _ in self._ledgers]

    async def copy(self, facts: Sequence[bytes], give_up: Callable[[], bool]) -> bool:
        """Copy what is needed beside the segment; False if asked to give up meanwhile.

        Raises:
            Corruption: if an entry is damaged. It stays where it is, for somebody to look at.
            StorageError: if the disk fails; `DiskFull` if there is no room for the copy.
        """
        try:
            await self._rewriting.begin()
            for places in self._slices():
                if give_up():
                    await self._rewriting.abandon()
                    return False
                await asyncio.sleep(await self._copy(places) / LEDGER_COMPACTION_BYTES_PER_S_MAX)
            for start in range(0, len(facts), LEDGER_UPKEEP_SLICE):
                await self._rewriting.add(facts[start : start + LEDGER_UPKEEP_SLICE])
            await self._rewriting.seal()
        except (Corruption, DiskFull):
            await self._rewriting.abandon()
            raise
        return True

    async def _copy(self, places: _Slice) -> int:
        records = await self._journal.read_run([place for place, _ in places])
        offsets = await self._rewriting.add(records)
        for (place, number), offset in zip(places, offsets, strict=True):
            self._moved[number].append(pack_place(offset, place.length))
        return sum(map(len, records))

    async def replace(self) -> None:
        """Put the copy in the segment's place, on the disk and in the index."""
        await self._rewriting.finish(self._swapped)

    def _swapped(self) -> None:
        for ledger, places in zip(self._ledgers, self._moved, strict=True):
            if self._index.ledgers.get(ledger.ledger_id) is ledger:
                ledger.move_run(self._segment, places)
        self._index.segments[self._segment].total_bytes = self._rewriting.size_bytes

    def _slices(self) -> Iterator[_Slice]:
        """All entries in the order of the disk, those together that are close to each other."""
        runs = [ledger.run(self._segment)[1] for ledger in self._ledgers]
        in_order = heapq.merge(*(zip(run, repeat(number)) for number, run in enumerate(runs)))
        gathered: _Slice = []
        for packed, number in in_order:
            place = unpack_place(self._segment, packed)
            if gathered and not _belongs(gathered, place):
                yield gathered
                gathered = []
            gathered.append((place, number))
        if gathered:
            yield gathered


def _belongs(gathered: _Slice, place: RecordPlace) -> bool:
    first, last = gathered[0][0], gathered[-1][0]
    end = place.offset + place.length
    return (
        end - first.offset <= LEDGER_COMPACTION_SLICE_BYTES
        and place.offset - (last.offset + last.length) <= LEDGER_READ_GAP_BYTES_MAX
        and len(gathered) < LEDGER_UPKEEP_SLICE
    )
