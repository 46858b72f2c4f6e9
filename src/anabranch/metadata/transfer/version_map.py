"""The file that says which versions a copy could not keep: one line per path, source and target.

    anabranch-version-map <tab> 1
    /path <tab> version in the source <tab> version in the target
    end <tab> number of paths <tab> CRC-32C of all bytes before this line

A path has no control characters, so tabs and line ends tell the fields apart. The file has its name
only once it is whole.
"""

import posixpath
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from anabranch.errors import Corruption, FormatError, StorageError
from anabranch.metadata.transfer.export_file import append
from anabranch.runtime import Disk
from anabranch.runtime.disk import DiskFile

HEAD: Final = b"anabranch-version-map\t1\n"
_MAGIC: Final = HEAD.partition(b"\t")[0]
_UNFINISHED: Final = ".part"


class ChangedVersion(NamedTuple):
    """A node whose version the target could not keep."""

    path: str
    source: int
    target: int


def encode_lines(changes: Sequence[ChangedVersion]) -> bytes:
    """The lines of some nodes."""
    lines = [f"{change.path}\t{change.source}\t{change.target}\n" for change in changes]
    return "".join(lines).encode()


def encode_end(count: int, before: int) -> bytes:
    """The last line; `before` is the checksum of all bytes before it."""
    return f"end\t{count}\t{before:08x}\n".encode()


def decode(file: str, content: bytes) -> dict[str, ChangedVersion]:
    """Read a whole map, by path.

    Raises:
        FormatError: if it is none, or one of a version this build does not know.
        Corruption: if it is damaged or cut off.
    """
    first, _, _ = content.partition(b"\n")
    if first.partition(b"\t")[0] != _MAGIC:
        raise FormatError(f"{file} is not a version map")
    if not content.startswith(HEAD):
        raise FormatError(f"{file} has format {first.partition(b'	')[2]!r}: this build knows 1")
    start = content[:-1].rfind(b"\n") + 1
    lines = content[len(HEAD) : start].splitlines()
    if content[start:] != encode_end(len(lines), crc32c(content[:start])):
        raise Corruption(file, start, "the last line does not vouch for those before: cut off?")
    changes: dict[str, ChangedVersion] = {}
    for line in lines:
        path, source, target = line.decode().split("\t")
        changes[path] = ChangedVersion(path, int(source), int(target))
    return changes


class VersionMapWriter:
    """Writes a map while a copy goes on; the file is made with the first line."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: DiskFile | None = None
        self._checksum = crc32c(HEAD)
        self.size_bytes = 0
        """Durable; 0: there is no file yet."""
        self.count = 0

    async def resume(self, size_bytes: int, count: int) -> None:
        """Go on with a file that has this much of what was copied, and perhaps more.

        Raises:
            Corruption: if it has less.
            StorageError: if the disk fails.
        """
        unfinished = f"{self._path}{_UNFINISHED}"
        try:
            if not await self._disk.exists(unfinished) and await self._disk.exists(self._path):
                # The copy was interrupted between its last two steps.
                await self._disk.rename(self._path, posixpath.basename(unfinished))
            self._file = await self._disk.open(unfinished)
            content = await self._file.read_at(0, size_bytes)
            if len(content) < size_bytes or not content.startswith(HEAD):
                raise Corruption(unfinished, len(content), "it does not belong to the checkpoint")
            await self._file.truncate(size_bytes)
        except OSError as error:
            raise StorageError(f"cannot go on with {unfinished}: {error}") from error
        self._checksum = crc32c(content)
        self.size_bytes = size_bytes
        self.count = count

    async def add(self, changes: Sequence[ChangedVersion]) -> None:
        """Write some lines durably.

        Raises:
            StorageError: if the disk fails.
        """
        if not changes:
            return
        data = encode_lines(changes)
        try:
            if self._file is None:
                unfinished = f"{self._path}{_UNFINISHED}"
                if await self._disk.exists(unfinished):
                    await self._disk.remove(unfinished)  # of a copy that nobody went on with
                self._file = await self._disk.open(unfinished, create=True)
                data = HEAD + data
                self._checksum = 0
            await append(self._file, data, sync=True)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error}") from error
        self._checksum = crc32c(data, self._checksum)
        self.size_bytes += len(data)
        self.count += len(changes)

    async def finish(self) -> None:
        """Write the last line and give the file its name.

        Raises:
            StorageError: if the disk fails.
        """
        if self._file is None:
            return
        try:
            await append(self._file, encode_end(self.count, self._checksum), sync=True)
            await self.close()
            await self._disk.rename(f"{self._path}{_UNFINISHED}", posixpath.basename(self._path))
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error}") from error

    async def close(self) -> None:
        """Let go of the file, finished or not."""
        if self._file is not None:
            file, self._file = self._file, None
            await file.close()
