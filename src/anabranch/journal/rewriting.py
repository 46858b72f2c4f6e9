"""Writing a sealed segment once more, without the records that nobody needs any more.

The new file is whole and durable before it takes the segment's name, so that after any stop there
is either the old segment or the new one. Its records have the same checksums: the number stays.
"""

from collections.abc import Callable, Sequence

from crc32c import crc32c

from anabranch.journal.files import SegmentFiles, append_durably, disk_errors
from anabranch.journal.format import (
    HEADER_BYTES,
    MARK_BYTES,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    REWRITTEN_VERSION,
    encode_header,
    encode_mark,
    seed_of,
)
from anabranch.runtime.disk import DiskFile
from anabranch.runtime.network import Buffer

REWRITTEN_BYTES_MIN = HEADER_BYTES + 2 * MARK_BYTES
"""The length of a rewritten segment without records."""


class SegmentRewriting:
    """A file beside a sealed segment that is to take its place."""

    def __init__(self, files: SegmentFiles, segment: int) -> None:
        """Nothing is written before `begin`."""
        self._files = files
        self._segment = segment
        self._seed = seed_of(segment)
        self._beside = f"{files.path(segment)}.new"
        self._file: DiskFile | None = None
        self.size_bytes = 0

    async def begin(self) -> None:
        """Create the file.

        Raises:
            StorageError: if the disk fails; so does every other step.
        """
        with disk_errors(f"creating {self._beside}"):
            if await self._files.disk.exists(self._beside):
                await self._files.disk.remove(self._beside)
            self._file = await self._files.disk.open(self._beside, create=True)
        header = encode_header(self._files.kind, self._segment, REWRITTEN_VERSION)
        await self._write([header, encode_mark(self._segment, HEADER_BYTES, 0)])

    async def add(self, payloads: Sequence[Buffer]) -> list[int]:
        """Write records durably; return their offsets."""
        offsets = []
        buffers: list[Buffer] = []
        offset = self.size_bytes
        for payload in payloads:
            length = len(payload)
            offsets.append(offset)
            buffers += (RECORD_HEADER.pack(length, crc32c(payload, self._seed ^ length)), payload)
            offset += RECORD_HEADER_BYTES + length
        if buffers:
            await self._write(buffers)
        return offsets

    async def seal(self) -> None:
        """Vouch for all that was added; nothing more is written after it."""
        await self._write([encode_mark(self._segment, self.size_bytes, self.size_bytes)])
        await self._close()

    async def finish(self, swapped: Callable[[], None]) -> None:
        """Take the segment's place, sealed; see `SegmentFiles.swap`."""
        await self._files.swap(self._segment, self._beside, swapped)

    async def abandon(self) -> None:
        """Leave the segment as it is."""
        await self._close()
        with disk_errors(f"removing {self._beside}"):
            if await self._files.disk.exists(self._beside):
                await self._files.disk.remove(self._beside)

    async def _write(self, buffers: Sequence[Buffer]) -> None:
        assert self._file is not None, "begin first"
        with disk_errors(f"writing {self._beside}"):
            await append_durably(self._file, buffers)
        self.size_bytes += sum(map(len, buffers))

    async def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await file.close()
