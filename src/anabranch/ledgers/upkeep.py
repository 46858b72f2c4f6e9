"""Housekeeping of the embedded store: index files, removal of dead segments, compaction.

Runs in one background task, in slices, and only while there is something to do. Where it finds no
room it tries again later, ever more rarely. A disk that fails in another way ends it: the store
goes on, only starts get slower and room is not freed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from anabranch.errors import AnabranchError, Corruption, DiskFull, FormatError, StorageError
from anabranch.journal import Journal, disk_errors
from anabranch.ledgers.compaction import Compaction
from anabranch.ledgers.index import LedgerIndex
from anabranch.ledgers.index_file import (
    decode_index,
    encode_index,
    index_name,
    runs_of,
)
from anabranch.limits import (
    LEDGER_DAMAGED_RETRY_S,
    LEDGER_FACTS_SPARE_BYTES,
    LEDGER_INDEX_SLICE_ENTRIES,
    LEDGER_UPKEEP_RETRY_S,
    LEDGER_UPKEEP_RETRY_S_MAX,
    LEDGER_UPKEEP_SLICE,
    LEDGER_UPKEEP_SPARE_BYTES,
)
from anabranch.runtime.disk import Disk
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("ledgers")

WriteFacts = Callable[[Sequence[bytes]], Awaitable[None]]
_Step = tuple[Callable[[int], Awaitable[None]], int]
"""What to do with which segment."""


class _Postponed(NamedTuple):
    """A segment that housekeeping could not deal with: it is damaged, or there was no room."""

    until: float
    wait_s: float
    error: AnabranchError


@contextmanager
def _no_second_try() -> Iterator[None]:
    """Around changes of names: if one fails nobody knows what the name leads to."""
    try:
        with disk_errors("changing a name"):
            yield
    except DiskFull as error:
        raise StorageError(str(error)) from error


async def _paced(steps: Generator[int, None, bytearray]) -> bytearray:
    """Take all steps, and let others have the loop after some."""
    entries = 0
    while True:
        try:
            entries += next(steps)
        except StopIteration as end:
            content: bytearray = end.value
            return content
        if entries >= LEDGER_INDEX_SLICE_ENTRIES:
            entries = 0
            await asyncio.sleep(0)


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
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(self._broke)
        self._to_index: list[int] = []
        self._sealed_below = journal.segments()[-1]
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._over: StorageError | None = None
        self._postponed: dict[_Step, _Postponed] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def failure(self) -> StorageError | None:
        """Why housekeeping has ended, or what it lacks room for; None while all is well."""
        lacking = (p.error for p in self._postponed.values() if isinstance(p.error, DiskFull))
        return self._over or next(lacking, None)

    def sealed(self, segments: Iterable[int], *, below: int) -> None:
        """These segments will not change any more, nor will any below the given one."""
        self._to_index += segments
        self._sealed_below = below
        self.wake()

    def wake(self) -> None:
        """Look for work."""
        if self._task is None and self._over is None and not self._closing:
            self._task = self._tasks.spawn("ledger-upkeep", self._run())

    async def _run(self) -> None:
        # What is put off in this run waits for the next, or one full disk would keep it for ever.
        began = self._loop.time()
        try:
            while not self._closing and (step := self._next_step(began)) is not None:
                await self._do(step)
        except StorageError as error:
            self._fail(error)
        self._task = None
        self._wake_later()

    async def _do(self, step: _Step) -> None:
        work, segment = step
        try:
            with disk_errors(f"housekeeping in {self._folder}"):
                await work(segment)
        except (Corruption, DiskFull, FormatError) as error:
            if self._journal.failure is not None:
                raise self._journal.failure from error
            self._postpone(step, error)
        else:
            self._postponed.pop(step, None)

    def _next_step(self, began: float) -> _Step | None:
        for step in self._steps():
            postponed = self._postponed.get(step)
            if postponed is None or postponed.until <= began:
                return step
        return None

    def _steps(self) -> Iterator[_Step]:
        sealed = [n for n in self._journal.segments() if n < self._sealed_below]
        # Removals make room for the rest.
        for segment in sealed:
            if not self._index.segment(segment).ledgers:
                yield self._remove, segment
        for segment in self._to_index:
            yield self._write_index, segment
        for segment in sealed:
            # Facts are read from the index file, so that it must be there.
            if self._index.segment(segment).is_mostly_dead and segment not in self._to_index:
                yield self._compact, segment

    def _postpone(self, step: _Step, error: AnabranchError) -> None:
        """Nothing was changed, and the segment is left alone for a while."""
        before = self._postponed.get(step)
        if not isinstance(error, DiskFull):
            wait_s = LEDGER_DAMAGED_RETRY_S
        elif before is None or not isinstance(before.error, DiskFull):
            wait_s = LEDGER_UPKEEP_RETRY_S
        else:
            wait_s = min(2 * before.wait_s, LEDGER_UPKEEP_RETRY_S_MAX)
        self._postponed[step] = _Postponed(self._loop.time() + wait_s, wait_s, error)
        _log.error("ledger_upkeep_postponed", segment=step[1], retry_s=wait_s, error=str(error))

    def _wake_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._postponed and self._over is None and not self._closing:
            soonest = min(postponed.until for postponed in self._postponed.values())
            self._timer = self._loop.call_at(soonest, self.wake)

    def _fail(self, error: StorageError) -> None:
        self._over = error
        _log.error("ledger_upkeep_stopped", error=str(error))

    def _broke(self, task: str, error: BaseException) -> None:
        self._task = None
        self._fail(StorageError(f"{task}: {error!r}"))

    async def _need_room(self, wanted_bytes: int, spare_bytes: int) -> None:
        free = await self._disk.free_bytes(self._folder)
        if free < wanted_bytes + spare_bytes:
            raise DiskFull(
                f"there is no room for {wanted_bytes} bytes beside {spare_bytes} to spare: "
                f"{free} are free; make room on the disk of {self._folder}"
            )

    async def _compact(self, segment: int) -> None:
        use = self._index.segments[segment]
        await self._need_room(use.needed_bytes, LEDGER_UPKEEP_SPARE_BYTES)
        try:
            facts = decode_index(await self._disk.read(self._path(segment)), segment).facts
            use.facts = self._index.facts_to_copy(segment, facts)
            compaction = Compaction(self._index, self._journal, segment)
            if not await compaction.copy(use.facts, lambda: self._closing):
                return
            await self._forget_index(segment)
        except (Corruption, DiskFull, FormatError):
            use.facts.clear()
            raise
        with _no_second_try():
            await compaction.replace()
        self._to_index.insert(0, segment)

    async def _forget_index(self, segment: int) -> None:
        # It tells of the offsets in the old file; without it a start scans the segment.
        with _no_second_try():
            await self._disk.remove(self._path(segment))

    async def _write_index(self, segment: int) -> None:
        use = self._index.segments.get(segment)
        if use is not None and use.ledgers:
            use.total_bytes = await self._journal.files.size(segment)
            runs = runs_of(self._index, segment)
            content = await _paced(encode_index(segment, use.total_bytes, use.facts, runs))
            await self._need_room(len(content), LEDGER_UPKEEP_SPARE_BYTES)
            await self._disk.replace(self._path(segment), content)
            use.facts.clear()
        self._to_index.remove(segment)

    async def _remove(self, segment: int) -> None:
        kept = self._index.facts_to_keep(segment)
        if kept:
            # A write of the journal that finds no room would end the store.
            await self._need_room(sum(map(len, kept)), LEDGER_FACTS_SPARE_BYTES)
        for start in range(0, len(kept), LEDGER_UPKEEP_SLICE):
            await self._write(kept[start : start + LEDGER_UPKEEP_SLICE])
        with _no_second_try():
            await self._journal.remove_segment(segment)
            self._index.drop_segment(segment)
            if await self._disk.exists(self._path(segment)):
                await self._disk.remove(self._path(segment))
        if segment in self._to_index:
            self._to_index.remove(segment)
        for work in (self._write_index, self._compact):
            self._postponed.pop((work, segment), None)

    def _path(self, segment: int) -> str:
        return f"{self._folder}/{index_name(segment)}"

    async def finished(self) -> None:
        """Wait until nothing is left to do but what was put off."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stop after the step under way; what is left is done by the next life."""
        self._closing = True
        self._wake_later()
        await self.finished()
        await self._tasks.close()
