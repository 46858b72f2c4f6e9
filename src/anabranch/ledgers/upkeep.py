"""Housekeeping of the embedded store: index files, removal of dead segments, compaction.

Runs in one background task, in slices, and only while there is something to do. If it fails the
store goes on, only starts get slower and room is not freed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from anabranch.errors import Corruption, DiskFull, FormatError, StorageError
from anabranch.journal import Journal
from anabranch.ledgers.compaction import Compaction
from anabranch.ledgers.index import LedgerIndex
from anabranch.ledgers.index_file import (
    decode_index,
    encode_index,
    encode_run,
    index_name,
    runs_of,
)
from anabranch.limits import LEDGER_UPKEEP_SLICE
from anabranch.runtime.disk import Disk
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("ledgers")

WriteFacts = Callable[[Sequence[bytes]], Awaitable[None]]


class Upkeep:
    """Keeps the folder of a store in order."""

    def __init__(
        self, disk: Disk, folder: str, index: LedgerIndex, journal: Journal, write: WriteFacts
    ) -> None:
        """`folder` is for the index files; `write` makes facts durable and known."""
        self._disk = disk
        self._folder = folder
        self._index = index
        self._journal = journal
        self._write = write
        self._tasks = Tasks(self._broke)
        self._to_index: list[int] = []
        self._sealed_below = journal.segments()[-1]
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._left_alone: set[int] = set()
        """Segments that could not be compacted: damaged ones, or there was no room for the copy."""
        self.failure: StorageError | None = None

    def sealed(self, segments: Iterable[int], *, below: int) -> None:
        """These segments will not change any more, nor will any below the given one."""
        self._to_index += segments
        self._sealed_below = below
        self.wake()

    def wake(self) -> None:
        """Look for work."""
        if self._task is None and self.failure is None and not self._closing:
            self._task = self._tasks.spawn("ledger-upkeep", self._run())

    async def _run(self) -> None:
        try:
            while not self._closing:
                if self._to_index:
                    await self._write_index(self._to_index.pop(0))
                elif (segment := self._find_dead()) is not None:
                    await self._remove(segment)
                elif (segment := self._find_mostly_dead()) is not None:
                    await self._compact(segment)
                else:
                    break
        except StorageError as error:
            self._fail(error)
        except OSError as error:
            self._fail(StorageError(f"housekeeping in {self._folder}: {error}"))
        self._task = None

    def _fail(self, error: StorageError) -> None:
        self.failure = error
        _log.error("ledger_upkeep_stopped", error=str(error))

    def _broke(self, task: str, error: BaseException) -> None:
        self._task = None
        self._fail(StorageError(f"{task}: {error!r}"))

    def _find_dead(self) -> int | None:
        for segment in self._journal.segments():
            if segment >= self._sealed_below:
                return None
            if not self._index.segment(segment).ledgers:
                return segment
        return None

    def _find_mostly_dead(self) -> int | None:
        for segment in self._journal.segments():
            if segment >= self._sealed_below:
                return None
            if self._index.segment(segment).is_mostly_dead and segment not in self._left_alone:
                return segment
        return None

    async def _compact(self, segment: int) -> None:
        use = self._index.segments[segment]
        try:
            facts = decode_index(await self._disk.read(self._path(segment)), segment).facts
            use.facts = self._index.facts_to_copy(segment, facts)
            compaction = Compaction(self._index, self._journal, segment)
            if not await compaction.copy(use.facts, lambda: self._closing):
                return
        except (Corruption, DiskFull, FormatError) as error:
            use.facts.clear()
            self._left_alone.add(segment)
            _log.error("segment_not_compacted", segment=segment, error=str(error))
            return
        await self._forget_index(segment)
        await compaction.replace()
        await self._write_index(segment)

    async def _forget_index(self, segment: int) -> None:
        # It tells of the offsets in the old file; without it a start scans the segment.
        await self._disk.remove(self._path(segment))

    async def _write_index(self, segment: int) -> None:
        use = self._index.segments.get(segment)
        if use is None or not use.ledgers:
            return
        use.total_bytes = await self._journal.files.size(segment)
        runs = []
        for run in runs_of(self._index, segment):
            runs.append(encode_run(run))
            if len(runs) % LEDGER_UPKEEP_SLICE == 0:
                await asyncio.sleep(0)
        content = encode_index(segment, use.total_bytes, use.facts, runs)
        await self._disk.replace(self._path(segment), content)
        use.facts.clear()

    async def _remove(self, segment: int) -> None:
        kept = self._index.facts_to_keep(segment)
        for start in range(0, len(kept), LEDGER_UPKEEP_SLICE):
            await self._write(kept[start : start + LEDGER_UPKEEP_SLICE])
        await self._journal.remove_segment(segment)
        self._index.drop_segment(segment)
        if await self._disk.exists(self._path(segment)):
            await self._disk.remove(self._path(segment))

    def _path(self, segment: int) -> str:
        return f"{self._folder}/{index_name(segment)}"

    async def finished(self) -> None:
        """Wait until there is nothing to do."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stop after the step under way; what is left is done by the next life."""
        self._closing = True
        await self.finished()
        await self._tasks.close()
