"""Path order for records of a store that exports in another one, in bounded memory.

Pieces of the stream are sorted in memory; if there are several, they wait in files of the export
format until they are merged. A piece is sorted in short runs, which are merged as they are read:
others need the event loop, too.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace, merge
from typing import Final

from anabranch import limits
from anabranch.metadata.paths import order_key
from anabranch.metadata.store import Record
from anabranch.metadata.transfer.export_file import ExportFile, write_export
from anabranch.metadata.transfer.file_format import ExportHeader
from anabranch.metadata.transfer.keeping import Keeping
from anabranch.runtime import Runtime

_RECORD_OVERHEAD_BYTES: Final = 400
_RUN_NODES: Final = 1_000
"""Sorted at once: a millisecond."""
_TURN_NODES: Final = 100
"""Handed on before others have their turn."""


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
        pieces = SortedPieces(self)
        try:
            await pieces.take(records)
            async with aclosing(pieces.records()) as merged:
                async for record in merged:
                    yield record
        finally:
            await pieces.remove()


class SortedPieces:
    """Records that were taken once and can be read in path order as often as wanted."""

    def __init__(self, sorting: Sorting) -> None:
        self._sorting = sorting
        self._files: list[ExportFile] = []
        self._last: list[list[Record]] = []
        """The runs of the last piece, which waits in no file."""

    async def take(self, records: AsyncIterator[Record]) -> None:
        """Take all records, in any order."""
        token = self._sorting.runtime.entropy.token_hex(8)
        runs: list[list[Record]] = [[]]
        size_bytes = 0
        async for record in records:
            if len(runs[-1]) == _RUN_NODES:
                runs[-1].sort(key=_place)
                runs.append([])
            runs[-1].append(record)
            size_bytes += len(record.value) + len(record.path) + _RECORD_OVERHEAD_BYTES
            if size_bytes >= self._sorting.piece_bytes:
                await self._store(runs, f"{token}-{len(self._files)}")
                runs, size_bytes = [[]], 0
        runs[-1].sort(key=_place)
        self._last = runs

    async def _store(self, runs: list[list[Record]], name: str) -> None:
        disk = self._sorting.runtime.disk
        path = f"{self._sorting.folder}/anabranch-sorting-{name}"
        runs[-1].sort(key=_place)
        # Read by whoever wrote it: the checksums of blocks tell all there is to know.
        await write_export(disk, path, ExportHeader("", "/", 0), _each(runs), kept=False)
        self._files.append(await ExportFile.open(disk, path, kept=False))

    async def records(self) -> AsyncGenerator[Record, None]:
        """All that were taken."""
        streams = [*(file.records() for file in self._files), _each(self._last)]
        try:
            nodes = 0
            async for record in _merged(streams):
                yield record
                nodes += 1
                if nodes % _TURN_NODES == 0:
                    await asyncio.sleep(0)  # what waits in memory never has to be waited for
        finally:
            for stream in streams:
                await stream.aclose()

    async def remove(self) -> None:
        """Let go of the files."""
        files, self._files, self._last = self._files, [], []
        for file in files:
            await self._sorting.runtime.disk.remove(file.path)


def _place(record: Record) -> str:
    return order_key(record.path)


async def _each(runs: list[list[Record]]) -> AsyncGenerator[Record, None]:
    for record in merge(*runs, key=_place):
        yield record


async def _merged(streams: list[AsyncGenerator[Record, None]]) -> AsyncIterator[Record]:
    heads: list[tuple[str, int, Record]] = []
    for number, stream in enumerate(streams):
        if (record := await anext(stream, None)) is not None:
            heads.append((_place(record), number, record))
    heapify(heads)
    while heads:
        _, number, record = heads[0]
        yield record
        following = await anext(streams[number], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (_place(following), number, following))
