"""Path order for records of a store that exports in another one, in bounded memory.

Pieces of the stream are sorted in memory; if there are several, they wait in files of the export
format until they are merged.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from anabranch import limits
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.runtime import Runtime

_RECORD_OVERHEAD_BYTES = 400


@dataclass(frozen=True, slots=True)
class Sorting:
    """Where records wait that come in the wrong order."""

    runtime: Runtime
    folder: str = "."
    piece_bytes: int = limits.METADATA_SORT_BYTES_MAX

    def in_path_order(
        self, records: AsyncIterator[Record], keeping: Keeping
    ) -> AsyncIterator[Record]:
        """The records of a kind of store, in path order."""
        return records if keeping.path_order else self._sorted(records)

    async def _sorted(self, records: AsyncIterator[Record]) -> AsyncIterator[Record]:
        token = self.runtime.entropy.token_hex(8)
        runs: list[ExportFile] = []
        streams: list[AsyncGenerator[Record, None]] = []
        try:
            piece: list[Record] = []
            size_bytes = 0
            async for record in records:
                piece.append(record)
                size_bytes += len(record.value) + len(record.path) + _RECORD_OVERHEAD_BYTES
                if size_bytes >= self.piece_bytes:
                    runs.append(await self._stored(piece, f"{token}-{len(runs)}"))
                    piece, size_bytes = [], 0
            streams = [run.records() for run in runs]
            streams.append(_each(sorted(piece, key=_place)))
            async for record in _merged(streams):
                yield record
        finally:
            for stream in streams:
                await stream.aclose()
            for run in runs:
                await self.runtime.disk.remove(run.path)

    async def _stored(self, piece: list[Record], name: str) -> ExportFile:
        disk = self.runtime.disk
        path = f"{self.folder}/anabranch-sorting-{name}"
        piece.sort(key=_place)
        await write_export(disk, path, ExportHeader("", "/", 0), _each(piece))
        return await ExportFile.open(disk, path)


def _place(record: Record) -> str:
    return order_key(record.path)


async def _each(records: list[Record]) -> AsyncGenerator[Record, None]:
    for record in records:
        yield record


async def _merged(streams: list[AsyncGenerator[Record, None]]) -> AsyncIterator[Record]:
    heads: list[tuple[str, int, Record]] = []
    for number, stream in enumerate(streams):
        async for record in stream:
            heads.append((_place(record), number, record))
            break
    while heads:
        first = min(heads, key=lambda head: head[:2])
        yield first[2]
        heads.remove(first)
        async for record in streams[first[1]]:
            heads.append((_place(record), first[1], record))
            break
