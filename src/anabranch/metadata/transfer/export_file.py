"""Writing and reading export files as streams, behind `runtime.disk`."""

import asyncio
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from anabranch import limits
from anabranch.errors import Corruption, InputError, StorageError
from anabranch.metadata.paths import is_within, order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer import file_format
from anabranch.metadata.transfer.digest import Digest
from anabranch.metadata.transfer.file_format import ExportHeader, ExportTotals, Totalling
from anabranch.runtime import Disk
from anabranch.runtime.disk import DiskFile

_UNFINISHED: Final = ".part"


async def append(file: DiskFile, data: bytes, *, sync: bool) -> None:
    """Write at the end of a file, and wait until it is there.

    Raises:
        OSError: if the disk fails.
    """
    written: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    file.append([data], sync=sync, done=lambda error: _settle(written, error))
    if (failure := await written) is not None:
        raise failure


def _settle(written: asyncio.Future[OSError | None], error: OSError | None) -> None:
    if not written.done():  # else whoever waited was cancelled
        written.set_result(error)


async def write_export(
    disk: Disk,
    path: str,
    header: ExportHeader,
    records: AsyncIterator[Record],
    *,
    overwrite: bool = False,
    check: Callable[[Digest], Awaitable[None]] | None = None,
    kept: bool = True,
) -> ExportTotals:
    """Write a file that has its name only once it is whole and durable.

    Args:
        disk: where to.
        path: the name.
        header: of the file.
        records: in path order.
        overwrite: replace a file that is there.
        check: is told the digest of all records; what it raises ends the file.
        kept: otherwise it need not outlive this process, and has no digests.

    Raises:
        InputError: if there is such a file and it must not be replaced.
        StorageError: if the disk fails.
    """
    unfinished = f"{path}{_UNFINISHED}"
    try:
        if not overwrite and await disk.exists(path):
            raise InputError(f"{path} exists already: choose another name or --overwrite")
        if await disk.exists(unfinished):
            await disk.remove(unfinished)  # of an export that was interrupted
        file = await disk.open(unfinished, create=True)
        try:
            totals = await _write_blocks(file, header, records, check, kept=kept)
        except BaseException:
            await file.close()
            await disk.remove(unfinished)
            raise
        await file.close()
        await disk.rename(unfinished, posixpath.basename(path))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
    return totals


async def _write_blocks(
    file: DiskFile,
    header: ExportHeader,
    records: AsyncIterator[Record],
    check: Callable[[Digest], Awaitable[None]] | None,
    *,
    kept: bool,
) -> ExportTotals:
    start = file_format.encode_start(header)
    await append(file, start, sync=False)
    offset = len(start)
    totalling = Totalling(digests=kept)
    block = bytearray()
    async for record in records:
        block += file_format.encode_record(record)
        totalling.add(record)
        if len(block) >= limits.METADATA_EXPORT_BLOCK_BYTES_USUAL:
            encoded = file_format.encode_block(offset, file_format.NODES_BLOCK, bytes(block))
            await append(file, encoded, sync=False)
            offset += len(encoded)
            block.clear()
    totals = totalling.totals
    if check is not None:
        await check(totals.digest)
    end = b""
    if block:
        end = file_format.encode_block(offset, file_format.NODES_BLOCK, bytes(block))
    await append(file, end + file_format.encode_end(offset + len(end), totals), sync=kept)
    return totals


class ExportFile:
    """An export file that is there; every reading of it checks every byte."""

    def __init__(
        self, disk: Disk, path: str, header: ExportHeader, records_at: int, *, kept: bool
    ) -> None:
        """Use `open`."""
        self._kept = kept
        self._disk = disk
        self.path = path
        self.header = header
        self._records_at = records_at

    @classmethod
    async def open(cls, disk: Disk, path: str, *, kept: bool = True) -> "ExportFile":
        """Read the beginning of a file; `kept` as when it was written.

        Raises:
            InputError: if there is none.
            FormatError: if it is no export file, or one of a version this build does not know.
            Corruption: if it is damaged; names the position.
            StorageError: if it cannot be read.
        """
        if not await disk.exists(path):
            raise InputError(f"there is no file {path}")
        try:
            file = await disk.open(path)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        try:
            at = file_format.FILE_START_BYTES
            file_format.check_start(path, await file.read_at(0, at))
            kind, payload = await _block_at(file, path, at)
            if kind != file_format.HEADER_BLOCK:
                raise Corruption(path, at, "the header block is not where it belongs")
            header = file_format.decode_header(path, at, payload)
            records_at = at + file_format.BLOCK_HEAD_BYTES + len(payload)
            return cls(disk, path, header, records_at, kept=kept)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        finally:
            await file.close()

    async def records(self) -> AsyncGenerator[Record, None]:
        """Every node, in path order.

        Raises:
            Corruption: as soon as something is not as it was written; names the position.
            StorageError: if it cannot be read.
        """
        try:
            file = await self._disk.open(self.path)
            try:
                async for record in self._records(file):
                    yield record
            finally:
                await file.close()
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error}") from error

    async def _records(self, file: DiskFile) -> AsyncIterator[Record]:
        offset = self._records_at
        totalling = Totalling(digests=self._kept)
        last: str | None = None
        while True:
            kind, payload = await _block_at(file, self.path, offset)
            if kind != file_format.NODES_BLOCK:
                break
            for record in file_format.decode_records(self.path, offset, payload):
                key = order_key(record.path)
                if (last is not None and key <= last) or not is_within(
                    self.header.prefix, record.path
                ):
                    raise Corruption(self.path, offset, f"{record.path} is out of place")
                last = key
                totalling.add(record)
                yield record
            offset += file_format.BLOCK_HEAD_BYTES + len(payload)
        if kind != file_format.END_BLOCK:
            raise Corruption(self.path, offset, f"a block of kind {kind} does not belong here")
        file_format.check_end(self.path, offset, payload, totalling.totals)
        end = offset + file_format.BLOCK_HEAD_BYTES + len(payload)
        if await file.size() != end:
            raise Corruption(self.path, end, "there are bytes after the end block")

    async def check(self) -> ExportTotals:
        """Read all of it.

        Raises:
            Corruption: if something is not as it was written; names the position.
        """
        totalling = Totalling()
        async for record in self.records():
            totalling.add(record)
        return totalling.totals


async def _block_at(file: DiskFile, path: str, offset: int) -> tuple[int, bytes]:
    head = await file.read_at(offset, file_format.BLOCK_HEAD_BYTES)
    length = file_format.payload_length(path, offset, head)
    payload = await file.read_at(offset + len(head), length)
    return file_format.check_block(path, offset, head, payload), payload
