"""The record log: append with group commit, read back by place, roll, remove old segments.

One write with one sync is under way, and behind it one more if that is large; what is appended
meanwhile gathers and goes with the next. A failed write or sync ends the journal: nothing is
acknowledged after it, until it is opened again. A record whose append failed may or may not be
there after that.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from crc32c import crc32c

from anabranch.errors import (
    AlreadyClosed,
    DiskFull,
    InputError,
    StorageError,
    StoreFailed,
)
from anabranch.journal.completions import AppendDone, Completions
from anabranch.journal.files import SegmentFiles, disk_errors, storage_error
from anabranch.journal.format import (
    HEADER_BYTES,
    MARK_BYTES,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    RecordPlace,
    seed_of,
)
from anabranch.journal.group import Group
from anabranch.journal.next_file import NextFile
from anabranch.journal.pressure import Pressure
from anabranch.journal.progress import Progress
from anabranch.journal.recovery import Known, Recovered, Replay, recover
from anabranch.limits import (
    JOURNAL_GROUP_BYTES_MAX,
    JOURNAL_IDLE_MARK_S,
    JOURNAL_RECORD_BYTES_MAX,
    JOURNAL_SEGMENT_BYTES,
    JOURNAL_WRITE_AHEAD_BYTES,
)
from anabranch.runtime.disk import Disk, DiskFile
from anabranch.runtime.network import Buffer


class Journal:
    """A checksummed, segmented record log in a folder of its own."""

    def __init__(
        self, disk: Disk, folder: str, kind: bytes, segment_bytes: int, pressure: Pressure
    ) -> None:
        """Use `open`."""
        assert segment_bytes > HEADER_BYTES + MARK_BYTES
        self._folder = folder
        self._segment_bytes = segment_bytes
        self.files = SegmentFiles(disk, folder, kind)
        self._loop = asyncio.get_running_loop()
        self._next = NextFile(self.files, self._next_is_ready)
        self._sealed: list[int] = []
        # Where the next item will be, ahead of what is written.
        self._segment = 0
        self._offset = 0
        self._previous = 0
        self._synced = 0
        self._unsynced_mark = False
        self._seed = 0
        # What is written.
        self._file: DiskFile | None = None
        self._file_segment = 0
        self._durable = (0, 0)
        self._queue: deque[Group] = deque()
        self._gathering: Group | None = None
        self._in_flight: deque[Group] = deque()
        self._completions = Completions()
        self._flush_scheduled = False
        self._mark_timer: asyncio.TimerHandle | None = None
        self._unmarked = False
        self.pressure = pressure
        self._failure: StorageError | None = None
        self._closing = False
        self._progress = Progress()

    @classmethod
    async def open(
        cls,
        disk: Disk,
        folder: str,
        *,
        kind: bytes,
        replay: Replay,
        segment_bytes: int = JOURNAL_SEGMENT_BYTES,
        from_segment: int = 0,
        sparse: bool = False,
        known: Known | None = None,
        pressure: Pressure | None = None,
    ) -> "Journal":
        """Replay what is there, cut a torn tail, and be ready to append.

        Args:
            disk: where to keep the files.
            folder: belongs to the journal alone; made if it is not there.
            kind: four bytes that say what the records are; another kind is refused.
            replay: called with every intact record, oldest first. The view ends with the call.
            segment_bytes: a segment at least this long is sealed.
            from_segment: older segments are kept but not replayed.
            sparse: whether segments may have been removed singly, so that a gap is no damage.
            known: tells of sealed segments whose records need not be replayed.
            pressure: counts what waits; one of the journal's own if it shares none.

        Raises:
            Corruption: if bytes that were durable are damaged or missing.
            FormatError: if the folder holds something else or a version this build does not know.
            StorageError: if the disk fails.
        """
        journal = cls(disk, folder, kind, segment_bytes, pressure or Pressure())
        with disk_errors(f"opening the journal in {folder}"):
            await disk.make_folder(folder)
            found = await recover(
                disk,
                folder,
                kind=kind,
                replay=replay,
                from_segment=from_segment,
                sparse=sparse,
                known=known,
            )
            await journal.files.clear_leftovers()
            await journal._resume(disk, found)
        return journal

    async def _resume(self, disk: Disk, found: Recovered) -> None:
        # Newest first: a stop in between must not leave a gap below a segment that stayed.
        for number in reversed(found.discard):
            await disk.remove(self.files.path(number))
        if found.tail_bytes:
            file = await disk.open(self.files.path(found.tail))
            if found.torn_bytes:
                await file.truncate(found.tail_bytes)
            offset = found.tail_bytes
            self._unmarked = offset > found.proven_bytes + MARK_BYTES
            if offset > found.proven_bytes:
                # What was replayed must not be lost from here on, and it may be nowhere but in
                # the page cache: a killed process did not sync it, or its sync failed. That goes
                # for a mark at the end too: lost behind later records, it would look like damage.
                await file.write_again(found.proven_bytes)
        else:
            file = await self.files.create(found.tail)
            offset = HEADER_BYTES
        self._sealed = found.sealed
        self._durable = (found.tail, offset)
        self._begin_segment(found.tail, offset, previous=0)
        self._synced = found.proven_bytes
        self._unsynced_mark = not self._unmarked
        self._use_file(found.tail, file)
        self._mark()

    @property
    def failure(self) -> StorageError | None:
        """Why nothing can be appended any more, None while all is well."""
        return self._failure

    def segments(self) -> list[int]:
        """The segments there are, oldest first; the last one is being appended to."""
        return [*self._sealed, self._segment]

    def append(self, parts: Sequence[Buffer], done: AppendDone) -> RecordPlace:
        """Add a record made of `parts`; `done` is called when it is durable, in order.

        The parts must not change until then. After a failure `done` gets a `StoreFailed`, or a
        `DiskFull` for records that were in the write which found no room.

        Raises:
            InputError: if the record is empty or too large.
            AlreadyClosed: after `close`.
        """
        length = 0
        for part in parts:
            length += len(part)
        if not 0 < length <= JOURNAL_RECORD_BYTES_MAX:
            raise InputError(f"a record has 1 to {JOURNAL_RECORD_BYTES_MAX} bytes, not {length}")
        if self._closing:
            raise AlreadyClosed(f"the journal in {self._folder} is closed")
        if self._failure is not None:
            self._completions.add([done], self._failure)
            self._completions.run_soon()
            return RecordPlace(self._segment, self._offset, length)
        size = RECORD_HEADER_BYTES + length
        if self._offset >= self._segment_bytes:
            self.roll()
        group = self._gathering
        if group is None or group.size + size > JOURNAL_GROUP_BYTES_MAX:
            group = self._start_group(sync=True)
        crc = self._seed ^ length
        for part in parts:
            crc = crc32c(part, crc)
        place = RecordPlace(self._segment, self._offset, length)
        group.buffers.append(RECORD_HEADER.pack(length, crc))
        group.buffers += parts
        group.dones.append(done)
        group.size += size
        self._offset += size
        group.end = self._offset
        self.pressure.pending_bytes += size
        if group.size >= JOURNAL_WRITE_AHEAD_BYTES and len(self._in_flight) < 2:
            self._flush()
        elif not self._in_flight and not self._flush_scheduled:
            self._schedule_flush()
        return place

    def _schedule_flush(self) -> None:
        # Not at once: everything appended in this turn of the loop shares the sync.
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def roll(self) -> int:
        """Let the next record begin a new segment; return the number of that segment."""
        if self._offset > HEADER_BYTES and self._failure is None:
            if self._unsynced_mark:
                self._start_group(sync=True)  # all of a sealed segment is durable
            self._sealed.append(self._segment)
            self._begin_segment(self._segment + 1, HEADER_BYTES, previous=self._offset)
            self._gathering = None
            self._schedule_flush()
        return self._segment

    def _begin_segment(self, segment: int, offset: int, *, previous: int) -> None:
        self._segment = segment
        self._offset = offset
        self._previous = previous
        self._seed = seed_of(segment)

    def _start_group(self, *, sync: bool) -> Group:
        if self._offset == HEADER_BYTES:
            synced = self._previous
        else:
            synced = self._synced = self._synced if self._unsynced_mark else self._offset
        group = Group(self._segment, self._offset, synced, sync=sync)
        self._offset = group.end
        self._unsynced_mark = not sync
        self._queue.append(group)
        self._gathering = group
        return group

    def _flush(self) -> None:
        self._flush_scheduled = False
        while self._failure is None and self._may_write():
            group = self._queue.popleft()
            if group is self._gathering:
                self._gathering = None
            self._in_flight.append(group)
            assert self._file is not None
            self._file.append(group.buffers, sync=group.sync, done=self._written)
            if group.end * 2 > self._segment_bytes:
                self._next.prepare(group.segment + 1)

    def _may_write(self) -> bool:
        """Whether the first queued group may go to the disk, in the file it belongs to."""
        first = self._queue[0] if self._queue else None
        wanted = first.segment if first is not None else self._segment
        if self._in_flight:
            # One more may wait at the disk, if it is large enough to be worth its own sync.
            large = first is not None and first.size >= JOURNAL_WRITE_AHEAD_BYTES
            return large and wanted == self._file_segment and len(self._in_flight) == 1
        if wanted != self._file_segment and not self._turn_to_next_file():
            return False
        return first is not None

    def _written(self, error: OSError | None) -> None:
        if not self._in_flight:
            return  # the write before this one failed, and with it all that followed
        if error is not None:
            self._fail(f"writing {self.files.path(self._in_flight[0].segment)}", error)
            return
        group = self._in_flight.popleft()
        self._unmarked = bool(group.dones)
        if group.sync:
            self._durable = (group.segment, group.end)
        self._completions.add(group.dones, None)
        self._flush()
        if not self._in_flight:
            if self._unmarked and self._mark_timer is None and not self._closing:
                self._mark_timer = self._loop.call_later(JOURNAL_IDLE_MARK_S, self._mark)
            self._progress.wake()
        self.pressure.settle(group.size)
        self._completions.run()

    def _mark(self) -> None:
        """Note that all is durable, so that damage to the last group is known for what it is."""
        self._mark_timer = None
        idle = not self._in_flight and not self._queue and self._failure is None
        if idle and self._unmarked and self._file_segment == self._segment:
            self._start_group(sync=False)
            self._flush()

    def _fail(self, doing: str, error: OSError) -> None:
        """End the journal: the failed write's records learn why, later ones that it is over."""
        reason = storage_error(doing, error)
        over = StoreFailed(f"the journal in {self._folder} has failed while {reason}")
        over.__cause__ = error
        self._failure = over
        doomed = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        for group in doomed:
            told = reason if isinstance(reason, DiskFull) and group is doomed[0] else over
            self._completions.add(group.dones, told)
        self._completions.run_soon()
        self.pressure.clear()
        self._progress.wake()

    def _turn_to_next_file(self) -> bool:
        """Append to the next segment from now on; False if its file is not there yet."""
        segment = self._file_segment + 1
        if self._next.failure is not None:
            self._fail(f"creating {self.files.path(segment)}", self._next.failure)
            return False
        file = self._next.take()
        if file is None:
            self._next.prepare(segment)
            return False
        self._use_file(segment, file)
        self._progress.wake()
        return True

    def _use_file(self, segment: int, file: DiskFile) -> None:
        self._file = file
        self._file_segment = segment
        self.files.write_to(segment, file)

    def _next_is_ready(self) -> None:
        if self._next.broken is not None and self._failure is None:
            self._fail(f"creating {self.files.path(self._file_segment + 1)}", self._next.broken)
        self._flush()
        self._progress.wake()

    async def remove_segment(self, segment: int) -> None:
        """Remove a sealed segment durably; its records cannot be read any more.

        Raises:
            StoreFailed: if the journal failed before the segment was sealed on disk.
            StorageError: if the disk cannot remove it.
        """
        assert segment in self._sealed, f"segment {segment} is not sealed: {self.segments()}"
        while self._file_segment <= segment:
            if self._failure is not None:
                raise self._failure
            await self._progress.wait()
        if segment in self._sealed:
            # Taken off the list first: another caller may want to remove it as well.
            self._sealed.remove(segment)
            await self.files.remove(segment)

    async def drop_segments_below(self, segment: int) -> None:
        """Remove all segments before the given one, oldest first; see `remove_segment`."""
        while self._sealed and self._sealed[0] < segment:
            await self.remove_segment(self._sealed[0])

    async def read_run(self, places: Sequence[RecordPlace]) -> list[memoryview]:
        """Return the payloads of durable records of one segment, with one disk read.

        The places must ascend. What lies between them is read too, and kept in memory as long as
        any of the views, so they had better be close to each other.

        Raises:
            Corruption: if the stored bytes are damaged.
            NotFound: if the segment was removed.
            StorageError: if the disk cannot read.
            AlreadyClosed: after `close`.
        """
        last = places[-1]
        if self._closing:
            raise AlreadyClosed(f"the journal in {self._folder} is closed")
        assert (last.segment, last.offset) < self._durable, f"{last} is not durable yet"
        return await self.files.read_records(places)

    async def close(self) -> None:
        """Finish what was appended, then let go of the files; harmless if done twice."""
        if self._closing:
            return
        self._closing = True
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        await self._settle()
        if self._unmarked and self._failure is None:
            self._start_group(sync=True)
            self._flush()
            await self._settle()
        while self._next.is_being_made:
            await self._progress.wait()
        await self._next.close()
        await self.files.close()

    async def _settle(self) -> None:
        """Wait until nothing is queued or in flight."""
        while self._in_flight or self._queue:
            await self._progress.wait()
