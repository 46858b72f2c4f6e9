"""Entries that come piece by piece made Arrow batches: the same for every way to read them."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Protocol

import pyarrow as pa
import uvloop

from anabranch.ids import TopicName
from pyspark_anabranch.chunked_messages import BeginsBefore, ChunkedMessages
from pyspark_anabranch.encrypted_entries import NO_KEYS, Unlocking
from pyspark_anabranch.entry_rows import Rows, StoredEntry, rows_of
from pyspark_anabranch.limits import CHUNK_BYTES
from pyspark_anabranch.look_back import LookBack
from pyspark_anabranch.planning import Task
from pyspark_anabranch.row_columns import Column, Origin, record_batch


class EntrySource(Protocol):
    """A way to the entries of a range. All of them come, in order, or an error names a place."""

    async def open(self) -> None:
        """Get ready, once."""
        ...

    async def entries(self, bytes_max: int) -> list[StoredEntry]:
        """Return the next entries, about so many bytes; none at the end of the range.

        Raises:
            DamagedEntry: naming an entry that cannot be read.
            MissingEntry: naming an entry that did not come, or is not there.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; also after `open` has failed."""
        ...


def batches_of(
    source: EntrySource,
    task: Task,
    columns: Sequence[Column],
    look_back: LookBack,
    unlocking: Unlocking = NO_KEYS,
) -> Generator[pa.RecordBatch, None, None]:
    """Read a source to its end.

    Raises:
        DamagedEntry: naming an entry that cannot be read.
        MissingEntry: naming an entry that did not come, or is not there.
        NotDecrypted: naming an entry that no key opens.
    """
    origin = Origin(task.topic, TopicName.parse(task.topic).partition)
    chunks = ChunkedMessages()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(source.open())
            while entries := runner.run(source.entries(CHUNK_BYTES)):
                wanted = [task.part_of(entry) for entry in entries]
                rows, chunks = _rows_of(wanted, chunks, look_back, unlocking)
                if rows.count:
                    yield record_batch(rows, columns, origin)
        finally:
            runner.run(source.close())


def _rows_of(
    entries: Sequence[StoredEntry],
    before: ChunkedMessages,
    look_back: LookBack,
    unlocking: Unlocking,
) -> tuple[Rows, ChunkedMessages]:
    while True:
        chunks = before.copy()
        try:
            return rows_of(entries, chunks, unlocking), chunks
        except BeginsBefore as missing:
            look_back.complete(before, missing)
