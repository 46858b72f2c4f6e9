"""Housekeeping of the embedded store: index files for sealed segments, removal of dead ones.

Runs in one background task, in slices, and only while there is something to do. It never touches
an entry; if it fails the store goes on, only starts get slower and room is not freed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from anabranch.errors import StorageError
from anabranch.journal import Journal
from anabranch.ledgers.index import LedgerIndex
from anabranch.ledgers.index_file import encode_index, encode_run, index_name, runs_of
from anabranch.limits import LEDGER_UPKEEP_SLICE
from anabranch.runtime.disk import Disk
from anabranch.runtime.tasks import Tasks

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
                else:
                    break
        except StorageError as error:
            self.failure = error
        except OSError as error:
            self.failure = StorageError(f"housekeeping in {self._folder}: {error}")
        self._task = None

    def _broke(self, task: str, error: BaseException) -> None:
        self._task = None
        self.failure = StorageError(f"{task}: {error!r}")

    def _find_dead(self) -> int | None:
        for segment in self._journal.segments():
            if segment >= self._sealed_below:
                return None
            if not self._index.segment(segment).ledgers:
                return segment
        return None

    async def _write_index(self, segment: int) -> None:
        use = self._index.segments.get(segment)
        if use is None or not use.ledgers:
            return
        runs = []
        for run in runs_of(self._index, segment):
            runs.append(encode_run(run))
            if len(runs) % LEDGER_UPKEEP_SLICE == 0:
                await asyncio.sleep(0)
        content = encode_index(segment, use.facts, runs)
        await self._disk.replace(self._path(segment), content)
        use.facts.clear()

    async def _remove(self, segment: int) -> None:
        kept = self._index.facts_to_keep(segment)
        for start in range(0, len(kept), LEDGER_UPKEEP_SLICE):
            await self._write(kept[start : start + LEDGER_UPKEEP_SLICE])
        await self._journal.remove_segment(segment)
        self._index.segments.pop(segment)
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
