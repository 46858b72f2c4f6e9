"""The files of a journal's segments: creating, reading with few open handles, removing."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anabranch.errors import Corruption, DiskFull, NotFound, StorageError
from anabranch.journal.format import (
    RECORD_HEADER_BYTES,
    RecordPlace,
    encode_header,
    is_rewriting_name,
    record_payload,
    seed_of,
    segment_name,
)
from anabranch.limits import JOURNAL_OPEN_FILES_MAX
from anabranch.runtime.disk import Disk, DiskFile
from anabranch.runtime.network import Buffer

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the operating system says into our own errors."""
    try:
        yield
    except OSError as error:
        raise storage_error(doing, error) from error


def storage_error(doing: str, error: OSError) -> StorageError:
    """The error for a failed disk call: `DiskFull` if there was no room."""
    text = f"{doing}: {error.strerror or error}"
    return DiskFull(text) if error.errno in _NO_ROOM else StorageError(text)


async def append_durably(file: DiskFile, buffers: Sequence[Buffer]) -> None:
    """Write and sync.

    Raises:
        OSError: as the disk gives it.
    """
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: OSError | None) -> None:
        if written.cancelled():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)

    file.append(buffers, sync=True, done=done)
    await written


class _Handle:
    __slots__ = ("file", "readers", "retired")

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self.readers = 0
        self.retired = False


class SegmentFiles:
    """Open files by segment number; the least recently read ones are closed when there are many."""

    def __init__(self, disk: Disk, folder: str, kind: bytes) -> None:
        self.disk = self._disk = disk
        self._folder = folder
        self.kind = kind
        self._open: dict[int, _Handle] = {}
        self._writing: int | None = None
        self._held: int | None = None
        self._swaps = 0

    def path(self, segment: int) -> str:
        """Where the segment's bytes are."""
        return f"{self._folder}/{segment_name(segment)}"

    async def create(self, segment: int) -> DiskFile:
        """Make a durable segment that holds nothing but its header.

        Raises:
            OSError: as the disk gives it.
        """
        file = await self._disk.open(self.path(segment), create=True)
        await append_durably(file, [encode_header(self.kind, segment)])
        await self._disk.sync_folder(self._folder)
        return file

    def write_to(self, segment: int, file: DiskFile) -> None:
        """Keep a file open as the one that is appended to."""
        self._open[segment] = _Handle(file)
        self._writing = segment

    async def read(self, segment: int, offset: int, length: int) -> bytes:
        """Bytes of a segment; fewer only at its end.

        Raises:
            NotFound: if the segment was removed.
            StorageError: if the disk cannot read.
        """
        while (handle := self._open.pop(segment, None)) is None:
            await self._open_for_reading(segment)
        self._open[segment] = handle  # the youngest now
        handle.readers += 1
        try:
            with disk_errors(f"reading {self.path(segment)} at byte {offset}"):
                return await handle.file.read_at(offset, length)
        finally:
            handle.readers -= 1
            if handle.retired and not handle.readers:
                await handle.file.close()
            if len(self._open) > JOURNAL_OPEN_FILES_MAX:
                await self._close_oldest()

    async def read_records(self, places: Sequence[RecordPlace]) -> list[memoryview]:
        """The payloads of records of one segment, in ascending places, with one disk read.

        Raises:
            Corruption: if one of them is not what was written.
        """
        segment, start, _ = places[0]
        _, last, length = places[-1]
        wanted = last + RECORD_HEADER_BYTES + length - start
        data = memoryview(await self.read(segment, start, wanted))
        seed = seed_of(segment)
        payloads = []
        for place in places:
            assert place.segment == segment
            assert place.offset >= start
            at = place.offset - start
            payload = record_payload(data[at : at + RECORD_HEADER_BYTES + place.length], seed)
            if payload is None or len(payload) != place.length:
                detail = f"a record of {place.length} bytes is damaged"
                raise Corruption(self.path(segment), place.offset, detail)
            payloads.append(payload)
        return payloads

    async def _open_for_reading(self, segment: int) -> None:
        path = self.path(segment)
        swaps = self._swaps
        try:
            file = await self._disk.open(path, read_only=True)
        except FileNotFoundError as error:
            raise NotFound(f"there is no journal segment {path}") from error
        except OSError as error:
            raise storage_error(f"opening {path}", error) from error
        if segment in self._open or self._swaps != swaps:
            await file.close()  # the name may lead to another file by now
        else:
            self._open[segment] = _Handle(file)

    async def _close_oldest(self) -> None:
        for segment in list(self._open):
            if segment not in (self._writing, self._held):
                await self.retire(segment)
                return

    async def retire(self, segment: int) -> None:
        """Close a segment's file, once its readers are done."""
        handle = self._open.pop(segment, None)
        if handle is None:
            return
        handle.retired = True
        if not handle.readers:
            await handle.file.close()

    async def size(self, segment: int) -> int:
        """Length of a segment's file in bytes."""
        while (handle := self._open.get(segment)) is None:
            await self._open_for_reading(segment)
        return await handle.file.size()

    async def swap(self, segment: int, beside: str, swapped: Callable[[], None]) -> None:
        """Let the file `beside` be the segment; `swapped` is called as reads begin to go there.

        Raises:
            StorageError: if the disk fails. Reads go on from the file that was there, which is
                kept open, since nobody knows which one its name leads to.
        """
        while (handle := self._open.get(segment)) is None:
            await self._open_for_reading(segment)
        self._held = segment
        with disk_errors(f"replacing {self.path(segment)}"):
            await self._disk.rename(beside, segment_name(segment))
        self._held = None
        self._swaps += 1
        del self._open[segment]
        handle.retired = True
        swapped()
        if not handle.readers:
            await handle.file.close()

    async def clear_leftovers(self) -> None:
        """Remove what was to take the place of a segment when the process ended."""
        for name in await self._disk.list(self._folder):
            if is_rewriting_name(name):
                await self._disk.remove(f"{self._folder}/{name}")

    async def remove(self, segment: int) -> None:
        """Remove a segment durably."""
        await self.retire(segment)
        path = self.path(segment)
        with disk_errors(f"removing {path}"):
            await self._disk.remove(path)

    async def close(self) -> None:
        """Close every file."""
        for segment in list(self._open):
            await self.retire(segment)
