"""Rows of an Arrow batch as the messages of a batch, all of them at once. Pure.

What is said about a message is written for all rows side by side, field by field in the order in
which protobuf writes them, so that a row costs no object of its own. Rows with properties, or with
a topic or partition of their own, are left to `sink_rows`.
"""

import base64
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.client.limits import MESSAGE_OVERHEAD_BYTES
from anabranch.client.packing import PackedBatch
from pyspark_anabranch.arrays import Bools, Int64s, Octets
from pyspark_anabranch.sink_rows import event_times_of

_KEY, _SIZE, _EVENT_TIME, _IN_BASE64, _NUMBER, _NULL = 0x12, 0x18, 0x28, 0x30, 0x40, 0x48
"""The tags of `SingleMessageMetadata` that a row may need, upwards as they are written."""
_LENGTH_BYTES: Final = 4
"""In front of what is said about a message stands how long that is."""
_SEVEN: Final = 7
_BATCH_BYTES_MAX: Final = 2**30
"""What is larger is not packed at once: Arrow counts the bytes of a column in 31 bits."""


class PackedRows:
    """Rows that go to one partition, packed one behind the other."""

    def __init__(
        self, parts: pa.Array, sizes: Int64s, numbers: Int64s, keys: pa.Array | None
    ) -> None:
        self.numbers = numbers
        """The place of each among the rows of its task; they go upwards."""
        self.largest = int(sizes.max()) if len(sizes) else 0
        """What the largest takes, as `Outgoing.size` says it."""
        self._ends = np.cumsum(sizes)
        self._keys = keys
        self._offsets = np.frombuffer(parts.buffers()[1], np.int32)[parts.offset :]
        self._content = memoryview(parts.buffers()[2] or b"")

    def __len__(self) -> int:
        return len(self.numbers)

    def end_of(self, start: int, count: int, room: int) -> int:
        """Behind the last row that fits, of so many from `start` on."""
        before = int(self._ends[start - 1]) if start else 0
        return min(start + count, int(np.searchsorted(self._ends, before + room, "right")))

    def cut(self, start: int, end: int, first_number: int) -> PackedBatch:
        """Some of the rows, numbered from there."""
        payload = self._content[int(self._offsets[start]) : int(self._offsets[end])]
        size = int(self._ends[end - 1]) - (int(self._ends[start - 1]) if start else 0)
        key = None if self._keys is None else self._keys[start].as_py()
        first, last = int(self.numbers[start]), int(self.numbers[end - 1])
        return PackedBatch(
            payload, end - start, first_number + first, first_number + last, size, key
        )


class Columns(NamedTuple):
    """What is written of an Arrow batch."""

    values: pa.Array
    keys: pa.Array | None
    """As they are; None if there are none."""
    event_times: pa.Array | None

    def take(self, rows: Int64s) -> "Columns":
        """Some of the rows."""
        return Columns(*(None if column is None else column.take(rows) for column in self))


def columns_of(batch: pa.RecordBatch) -> Columns | None:
    """The columns of a batch that can be packed; None if it has to be sent row by row."""
    if batch.nbytes > _BATCH_BYTES_MAX:
        return None
    there = {name: batch.column(name) for name in batch.schema.names}
    for name in ("topic", "partition"):
        if name in there and there[name].null_count < batch.num_rows:
            return None
    if "properties" in there and _has_pairs(there["properties"]):
        return None
    values, keys = there["value"].cast(pa.binary()), there.get("key")
    times = event_times_of(there["event_time"]) if "event_time" in there else None
    if times is not None and (pc.min(times).as_py() or 0) < 0:
        return None  # no message can say that
    return Columns(values, _unless_null(keys), _unless_null(times))


def _has_pairs(properties: pa.Array) -> bool:
    return bool(properties.offsets[0] != properties.offsets[len(properties)])


def _unless_null(column: pa.Array | None) -> pa.Array | None:
    return None if column is None or column.null_count == len(column) else column


def packed(columns: Columns, numbers: Int64s, first_number: int) -> PackedRows:
    """Pack rows, numbered upwards.

    Args:
        columns: what to pack.
        numbers: the place of each row among those of its task.
        first_number: what is added to that.
    """
    values = columns.values
    value_sizes = _sizes_of(values)
    rest = _Fields(len(values))
    rest.number(_SIZE, value_sizes)
    if columns.event_times is not None:
        times = columns.event_times
        rest.number(_EVENT_TIME, _numbers(times), ~_nulls(times))
    sizes = value_sizes + MESSAGE_OVERHEAD_BYTES
    front, keys = _Fields(len(values)), columns.keys
    written = None
    if keys is not None:
        has_key = ~_nulls(keys)
        sizes = sizes + 2 * _lengths_of(keys) * has_key
        written = _written(keys)
        front.number(_KEY, _sizes_of(written), has_key)
        if not pa.types.is_string(keys.type):
            rest.number(_IN_BASE64, has_key.astype(np.int64), has_key)
    rest.number(_NUMBER, numbers + first_number)
    if values.null_count:
        nulls = _nulls(values)
        rest.number(_NULL, nulls.astype(np.int64), nulls)
    said = front.widths + rest.widths
    if written is None:
        parts = _joined(_lengths_and(said, rest), values)
    else:
        said = said + _sizes_of(written)
        parts = _joined(_lengths_and(said, front), written, rest.column(), values)
    return PackedRows(parts, sizes, numbers, keys)


class _Fields:
    """Fields of many messages, one column of bytes behind the other."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._octets: list[Octets] = []
        self._there: list[Bools] = []
        self.widths: Int64s = np.zeros(count, np.int64)

    def octets(self, octets: Octets, there: Bools) -> None:
        """So many columns of bytes, and which messages have each."""
        self._octets.append(octets)
        self._there.append(there)
        self.widths = self.widths + there.sum(axis=0)

    def number(self, tag: int, numbers: Int64s, has: Bools | None = None) -> None:
        """A field that is a number, of those messages that have it."""
        everyone = np.ones(self._count, np.bool_) if has is None else has
        width = max(1, -(-int(numbers.max(initial=0)).bit_length() // _SEVEN))
        octets = np.empty((width + 1, self._count), np.uint8)
        there = np.empty((width + 1, self._count), np.bool_)
        octets[0], there[0] = tag, everyone
        left, is_there = numbers, everyone
        for index in range(1, width + 1):
            more = left >> _SEVEN
            goes_on = more > 0
            octets[index] = (left & 0x7F) | (goes_on << _SEVEN)
            there[index] = is_there
            left, is_there = more, is_there & goes_on
        self.octets(octets, there)

    def column(self, before: Octets | None = None) -> pa.Array:
        """What is said, by message; behind so many bytes that all have."""
        octets, there, widths = list(self._octets), list(self._there), self.widths
        if before is not None:
            octets.insert(0, before)
            there.insert(0, np.ones(before.shape, np.bool_))
            widths = widths + len(before)
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(widths, out=offsets[1:])
        if octets:
            content = np.concatenate(octets).T[np.concatenate(there).T]
        else:
            content = np.empty(0, np.uint8)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), self._count, buffers)


def _lengths_and(said: Int64s, fields: _Fields) -> pa.Array:
    lengths = said.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES).T
    return fields.column(lengths)


def _joined(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(
        *columns, pa.scalar(b""), null_handling="replace", null_replacement=b""
    )


def _written(keys: pa.Array) -> pa.Array:
    """Keys as they stand in messages: bytes that need not be text are in Base64."""
    if pa.types.is_string(keys.type):
        return keys.cast(pa.binary())
    return pa.array(
        [None if key is None else base64.b64encode(key) for key in keys.to_pylist()], pa.binary()
    )


def _sizes_of(column: pa.Array) -> Int64s:
    """The bytes of each; null has none."""
    return _numbers(pc.binary_length(column))


def _lengths_of(keys: pa.Array) -> Int64s:
    """As Python counts them: characters of a text, else bytes."""
    if pa.types.is_string(keys.type):
        return _numbers(pc.utf8_length(keys))
    return _sizes_of(keys)


def _numbers(column: pa.Array) -> Int64s:
    found: Int64s = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _nulls(column: pa.Array) -> Bools:
    found: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return found
