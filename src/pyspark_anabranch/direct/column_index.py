"""The columns of a sealed ledger but its payloads, kept in a folder as Arrow, one file for each.

    HASH-LEDGER/index.json      format, version, of which ledger, rows, checksums of the files
    HASH-LEDGER/COLUMN.arrow    a stream of Arrow batches; the same batches for every column

A sealed ledger does not change, nor does its index. It is written by whoever first reads the whole
ledger without payloads, beside its place, and moved there when it is complete. One that is damaged,
or of another version or ledger, is never trusted: the ledger is read, and the index written anew.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from pyspark_anabranch.arrays import Bools
from pyspark_anabranch.places import Place, Span
from pyspark_anabranch.row_columns import COLUMNS, COLUMNS_BY_NAME, Column, Origin, arrow_schema

FORMAT: Final = "anabranch-ledger-columns"
VERSION: Final = 1
_HEAD: Final = "index.json"
_NOT_KEPT: Final = ("value", "topic", "partition")
"""Payloads, and what is the same for a whole ledger."""
KEPT: Final = tuple(column for column in COLUMNS if column.name not in _NOT_KEPT)
_POSITION: Final = COLUMNS_BY_NAME["position"]


@dataclass(frozen=True, slots=True)
class IndexedLedger:
    """A sealed ledger of which there may be an index."""

    folder: Path
    store: str
    """The URL of the ledger store: ids of ledgers are those of one store."""
    origin: Origin
    ledger_id: int
    entries: int

    @property
    def place(self) -> Path:
        """Where its index is."""
        whose = hashlib.sha256(f"{self.store} {self.origin.topic}".encode()).hexdigest()[:16]
        return self.folder / f"{whose}-{self.ledger_id}"

    def _head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "store": self.store,
            "topic": self.origin.topic,
            "ledger": self.ledger_id,
            "entries": self.entries,
        }

    # --- reading ------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[Column], span: Span, start: Place, end: Place
    ) -> Iterator[pa.RecordBatch] | None:
        """The rows of some entries, as far as they are within a range; None without an index."""
        is_whole = self.has_all(span, start, end)
        wanted = [column for column in columns if column in KEPT]
        if not wanted or (not is_whole and _POSITION not in wanted):
            wanted.append(_POSITION)
        streams = self._streams(wanted)
        if streams is None:
            return None
        return self._rows(streams, columns, None if is_whole else (span, start, end))

    def has_all(self, span: Span, start: Place, end: Place) -> bool:
        """Whether nothing of the ledger is left out."""
        cut = any(at.ledger_id == self.ledger_id and at.batch_index > 0 for at in (start, end))
        return (span.first, span.until) == (0, self.entries) and not cut

    def _streams(self, columns: Sequence[Column]) -> dict[str, list[pa.Array]] | None:
        try:
            head = json.loads((self.place / _HEAD).read_bytes())
            if {name: head[name] for name in self._head()} != self._head():
                return None
            return {each.name: self._stream(each, head) for each in columns}
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return None

    def _stream(self, column: Column, head: dict[str, Any]) -> list[pa.Array]:
        with pa.memory_map(str(self.place / f"{column.name}.arrow")) as file:
            content = file.read_buffer()
            if checksum(content) != head["columns"][column.name]:
                raise ValueError(f"{column.name} fails its checksum")
            batches = list(pa.ipc.open_stream(content))
        if sum(batch.num_rows for batch in batches) != head["rows"]:
            raise ValueError(f"{column.name} has another number of rows")
        return [batch.column(0) for batch in batches]

    def _rows(
        self,
        streams: dict[str, list[pa.Array]],
        columns: Sequence[Column],
        part: tuple[Span, Place, Place] | None,
    ) -> Iterator[pa.RecordBatch]:
        for arrays in zip(*streams.values(), strict=True):
            batch = pa.RecordBatch.from_arrays(list(arrays), names=list(streams))
            if part is not None:
                batch = batch.filter(pa.array(_is_within(batch.column("position"), *part)))
            if batch.num_rows:
                yield self.chosen(batch, columns)

    def chosen(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
        """The columns that a query wants, of a batch that has all that are kept."""
        constant = {"topic": self.origin.topic, "partition": self.origin.partition}
        arrays = [
            pa.repeat(pa.scalar(constant[each.name], each.arrow), batch.num_rows)
            if each.name in constant
            else batch.column(each.name)
            for each in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    # --- writing ------------------------------------------------------------------------------

    def write(
        self, batches: Generator[pa.RecordBatch, None, None], columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """Pass on what a query wants of a whole ledger, and keep it all once it has come."""
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
        try:
            rows = 0
            with ExitStack() as held:
                held.enter_context(closing(batches))
                writers = [
                    held.enter_context(
                        pa.ipc.new_stream(str(beside / f"{each.name}.arrow"), arrow_schema([each]))
                    )
                    for each in KEPT
                ]
                for batch in batches:
                    rows += batch.num_rows
                    for writer, column in zip(writers, KEPT, strict=True):
                        array = batch.column(column.name)
                        schema = arrow_schema([column])
                        writer.write_batch(pa.RecordBatch.from_arrays([array], schema=schema))
                    yield self.chosen(batch, columns)
            sums = {
                each.name: checksum((beside / f"{each.name}.arrow").read_bytes()) for each in KEPT
            }
            head = {**self._head(), "rows": rows, "columns": sums}
            (beside / _HEAD).write_text(json.dumps(head))
            self._put(beside)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _put(self, beside: Path) -> None:
        """Have the index where it belongs, in place of one that nobody can trust."""
        if self._streams(KEPT) is None:
            shutil.rmtree(self.place, ignore_errors=True)
        try:
            beside.rename(self.place)
        except OSError:
            if not (self.place / _HEAD).exists():
                raise
            # Another task was as fast: it has written the same.


def checksum(content: bytes) -> int:
    """What tells a file of an index from a damaged one."""
    return crc32c(content)


def _is_within(positions: pa.StructArray, span: Span, start: Place, end: Place) -> Bools:
    """Which rows of one ledger are of some entries, and within a range."""
    entries = positions.field("entry").to_numpy()
    # A message with an entry of its own is the first in it.
    batches = np.maximum(positions.field("batch").to_numpy(), 0)
    wanted = (entries >= span.first) & (entries < span.until)
    if start.ledger_id == span.ledger_id:
        wanted &= (entries != start.entry_id) | (batches >= start.batch_index)
    if end.ledger_id == span.ledger_id:
        wanted &= (entries != end.entry_id) | (batches < end.batch_index)
    return np.asarray(wanted, np.bool_)
