"""Rows that no broker takes, found before any row beside them is sent. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.client.limits import ENTRY_METADATA_BYTES, MESSAGE_OVERHEAD_BYTES
from anabranch.client.packing import Outgoing, Packer
from anabranch.errors import InputError
from anabranch.wire.compression import Compression, compression_number
from pyspark_anabranch.arrays import Int64s
from pyspark_anabranch.sink_rows import event_times_of, sink_rows

_LAST_NUMBER: Final = 2**63 - 1
_SCHEMA_VERSION_BYTES: Final = 8
_SMALL: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.large_binary(): pa.binary(),
    pa.large_string(): pa.string(),
    pa.map_(pa.large_string(), pa.large_string()): pa.map_(pa.string(), pa.string()),
}


class LookedAt:
    """Arrow batches of a task, each looked at before it is handed on."""

    def __init__(self, batches: Iterator[pa.RecordBatch], *, rows_name_topics: bool) -> None:
        """Take them.

        Args:
            batches: the rows of the task.
            rows_name_topics: whether no option says where rows go that do not say it themselves.
        """
        self._batches = batches
        self._rows_name_topics = rows_name_topics
        self.rows = 0
        """How many were handed on."""
        self.largest_bytes = 0
        """What the largest of them takes at most."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for given in self._batches:
            batch = with_small_offsets(given)
            check_rows(batch, self.rows, rows_name_topics=self._rows_name_topics)
            self.largest_bytes = max(self.largest_bytes, int(row_sizes(batch).max(initial=0)))
            self.rows += batch.num_rows
            yield batch


def with_small_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in the types of Arrow that Spark has unless `useLargeVarTypes` is set."""
    types = [_SMALL.get(field.type, field.type) for field in batch.schema]
    if types == batch.schema.types:
        return batch
    columns = [column.cast(type_) for column, type_ in zip(batch.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def check_rows(batch: pa.RecordBatch, first: int, *, rows_name_topics: bool) -> None:
    """Refuse rows that cannot be messages.

    Args:
        batch: the rows.
        first: which row of its task the first is.
        rows_name_topics: whether each of them has to say where it goes.

    Raises:
        InputError: naming one, by its place in its task, and what is wrong with it.
    """
    for name, check in _CHECKS.items():
        at = batch.schema.get_field_index(name)
        if at >= 0 and (found := check(batch.column(at))) is not None:
            raise InputError(f"row {first + found[0]} of the task: {found[1]}")
    if rows_name_topics and batch.num_rows:
        named = pc.fill_null(pc.greater(pc.binary_length(batch.column("topic")), 0), False)
        if (at := pc.index(named, False).as_py()) >= 0:
            raise InputError(f"row {first + at} of the task: it names no topic")


def check_sizes(
    batch: pa.RecordBatch, first: int, message_bytes_max: int, compression: Compression, name: str
) -> None:
    """Refuse rows that are larger than what a broker takes, once they are compressed.

    Args:
        batch: the rows.
        first: which row of its task the first is.
        message_bytes_max: what the broker takes.
        compression: of the rows.
        name: under which they are sent.

    Raises:
        InputError: naming one, by its place in its task.
    """
    room = message_bytes_max - ENTRY_METADATA_BYTES
    packer = Packer(compression_number(compression))
    # As much as can be said about a message, so that what passes here passes there.
    packer.producer_name, packer.schema_version = name, bytes(_SCHEMA_VERSION_BYTES)
    for at in np.flatnonzero(row_sizes(batch) > room).tolist():
        (row,) = sink_rows(iter([batch.slice(at, 1)]))
        message = Outgoing(
            row.value, row.key, None, row.properties, row.event_time_ms, _LAST_NUMBER
        )
        size = message.size
        if size <= message_bytes_max or compression != "none":
            size = len(packer.single(message, _LAST_NUMBER))
        if size > message_bytes_max:
            raise InputError(
                f"row {first + at} of the task: a message of {size} bytes is too large; "
                f"the broker takes at most {message_bytes_max}"
            )


def row_sizes(batch: pa.RecordBatch) -> Int64s:
    """What rows take as messages, not less than `Outgoing.size` says."""
    there = {name: batch.column(name) for name in batch.schema.names}
    sizes = _octets_of(there["value"]) + MESSAGE_OVERHEAD_BYTES
    if "key" in there:
        sizes = sizes + 2 * _octets_of(there["key"])
    if "properties" in there and len(properties := there["properties"]):
        pairs = _octets_of(properties.keys) + _octets_of(properties.items) + MESSAGE_OVERHEAD_BYTES
        before = np.concatenate(([0], np.cumsum(pairs)))
        offsets = properties.offsets.to_numpy()
        sizes = sizes + before[offsets[1:]] - before[offsets[:-1]]
    return sizes


def _octets_of(column: pa.Array) -> Int64s:
    lengths = pc.fill_null(pc.binary_length(column), 0)
    found: Int64s = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


Found = tuple[int, str] | None
"""Which row is wrong, and what is; None if none is."""


def _event_times(column: pa.Array) -> Found:
    times = event_times_of(column)
    if (pc.min(times).as_py() or 0) >= 0:
        return None
    at = pc.index(pc.less(times, 0), True).as_py()
    return at, f"its event_time, {column[at]}, is before 1970, which no message can say"


def _keys(column: pa.Array) -> Found:
    return _no_text(column, "key")


def _topics(column: pa.Array) -> Found:
    return _no_text(column, "topic")


def _no_text(column: pa.Array, name: str) -> Found:
    if not pa.types.is_string(column.type) or _is_text(column):
        return None
    for at, octets in enumerate(column.cast(pa.binary()).to_pylist()):
        if octets is not None and not _decodes(octets):
            return at, f"its {name} is no valid text: {octets!r}"
    return None


def _properties(column: pa.Array) -> Found:
    names, texts = column.keys, column.items
    if not texts.null_count and _is_text(names) and _is_text(texts):
        return None
    names, texts = (each.cast(pa.binary()).to_pylist() for each in (names, texts))
    offsets = column.offsets.to_pylist()
    for at in range(len(column)):
        for pair in range(offsets[at], offsets[at + 1]):
            if texts[pair] is None:
                return at, f"its property {names[pair]!r} is null; a property is text"
            if not _decodes(names[pair]) or not _decodes(texts[pair]):
                return at, f"a property is no valid text: {names[pair]!r}: {texts[pair]!r}"
    return None


def _is_text(column: pa.Array) -> bool:
    """Whether it is; Spark makes text of any bytes, and what it hands over need not be any."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


_CHECKS: Final[Mapping[str, Callable[[pa.Array], Found]]] = {
    "event_time": _event_times,
    "key": _keys,
    "topic": _topics,
    "properties": _properties,
}
