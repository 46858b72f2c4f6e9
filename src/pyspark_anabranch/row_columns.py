"""The columns of a topic, and how rows become Arrow arrays of them. Pure.

Variable-sized columns are taken out of the chunk's bytes by Arrow itself: the places of all values
and of the gaps between them are one array of offsets, and every second element is wanted.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.generated.pulsar_api_pb2 import MessageMetadata
from anabranch.wire.compression import COMPRESSIONS
from pyspark_anabranch.arrays import Int64s
from pyspark_anabranch.entry_rows import Rows
from pyspark_anabranch.key_hashes import key_hashes

_US_PER_MS: Final = 1000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_ENCRYPTION: Final = pa.struct(
    [
        ("keys", pa.map_(pa.string(), pa.binary())),
        ("parameter", pa.binary()),
        ("algorithm", pa.string()),
        ("compression", pa.string()),
        ("uncompressed_size", pa.int64()),
        ("messages", pa.int32()),
        ("uuid", pa.string()),
        ("chunk", pa.int32()),
        ("chunks", pa.int32()),
    ]
)
_POSITION: Final = pa.struct([("ledger", pa.int64()), ("entry", pa.int64()), ("batch", pa.int32())])


@dataclass(frozen=True, slots=True)
class Origin:
    """What rows cannot know: the topic they are of."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column that every topic has."""

    name: str
    arrow: pa.DataType
    spark: str
    words: str
    make: Callable[[Rows, Int64s, Origin], pa.Array]


def _bytes_between(
    rows: Rows, starts: Int64s, ends: Int64s, wanted: Int64s, nulls: np.ndarray | None
) -> pa.Array:
    """Take the bytes between places that go upwards."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    whole = pa.Array.from_buffers(
        pa.binary(),
        max(0, len(offsets) - 1),
        [None, pa.py_buffer(offsets), pa.py_buffer(rows.data)],
    )
    return whole.take(pa.array(wanted * 2, mask=nulls))


def _value(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    nulls = rows.fields.null_values[wanted] != 0
    return _bytes_between(
        rows, rows.value_starts, rows.value_ends, wanted, nulls if nulls.any() else None
    )


def _key(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    fields = rows.fields
    # A message without a key has none anywhere; the place before its value keeps the order.
    absent = (fields.key_sizes < 0) | (fields.null_keys != 0)
    starts = np.where(fields.key_sizes < 0, rows.value_starts, fields.key_starts)
    ends = starts + np.maximum(fields.key_sizes, 0)
    nulls = absent[wanted]
    keys = _bytes_between(rows, starts, ends, wanted, nulls if nulls.any() else None)
    packed = fields.keys_in_base64[wanted] != 0
    return _from_base64(keys, packed.tolist()) if packed.any() else keys


def _from_base64(keys: pa.Array, packed: list[bool]) -> pa.Array:
    return pa.array(
        [
            _decoded(key) if is_packed and key is not None else key
            for key, is_packed in zip(keys.to_pylist(), packed, strict=True)
        ],
        pa.binary(),
    )


def _decoded(key: bytes) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return key


def _key_hash(rows: Rows, wanted: Int64s, origin: Origin) -> pa.Array:
    keys = _key(rows, wanted, origin)
    known = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(keys) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hashes = np.zeros(len(keys), np.int32)
    hashes[known] = key_hashes(content, ends[:-1][known], np.diff(ends)[known])
    absent = np.ones(len(keys), np.bool_)
    absent[known] = False
    return pa.array(hashes, mask=absent)


def _position(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    ids = np.array([(each.ledger_id, each.entry_id) for each in rows.entries], np.int64)
    found = ids.reshape(-1, 2)[rows.entry_of[wanted]]
    return pa.StructArray.from_arrays(
        [
            pa.array(np.ascontiguousarray(found[:, 0])),
            pa.array(np.ascontiguousarray(found[:, 1])),
            pa.array(rows.batch_index[wanted]),
        ],
        fields=list(_POSITION),
    )


def _of_entries(
    rows: Rows, wanted: Int64s, values: Sequence[object], kind: pa.DataType
) -> pa.Array:
    return pa.array(values, kind).take(pa.array(rows.entry_of[wanted]))


def _publish_time(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    times = [each.publish_time * _US_PER_MS for each in rows.metadata]
    return _of_entries(rows, wanted, times, pa.int64()).cast(_TIMESTAMP)


def _producer(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    names = [_text(each.producer_name) for each in rows.metadata]
    return _of_entries(rows, wanted, names, pa.string())


def _schema_version(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    versions = [
        each.schema_version if each.HasField("schema_version") else None for each in rows.metadata
    ]
    return _of_entries(rows, wanted, versions, pa.binary())


def _event_time(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    times = rows.fields.event_times[wanted]
    return pa.array(times * _US_PER_MS, mask=times == 0).cast(_TIMESTAMP)


def _properties(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    known = rows.fields.properties
    if not known:
        nothing = pa.array([], pa.string())
        return pa.MapArray.from_arrays(
            pa.array(np.zeros(len(wanted) + 1, np.int32)), nothing, nothing
        )
    return pa.array([known.get(row, ()) for row in wanted.tolist()], _MAP)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _topic(_: Rows, wanted: Int64s, origin: Origin) -> pa.Array:
    return pa.array([origin.topic]).take(pa.array(np.zeros(len(wanted), np.int64)))


def _partition(_: Rows, wanted: Int64s, origin: Origin) -> pa.Array:
    return pa.array(np.full(len(wanted), origin.partition, np.int32))


def _sequence_id(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    return pa.array(rows.fields.sequence_ids[wanted])


def _encryption(rows: Rows, wanted: Int64s, _: Origin) -> pa.Array:
    contexts = [
        _context(metadata) if index in rows.locked else None
        for index, metadata in enumerate(rows.metadata)
    ]
    return _of_entries(rows, wanted, contexts, _ENCRYPTION)


def _context(metadata: MessageMetadata) -> dict[str, object]:
    is_chunk = metadata.num_chunks_from_msg > 1
    is_batch = metadata.HasField("num_messages_in_batch")
    return {
        "keys": [(_text(each.key), each.value) for each in metadata.encryption_keys],
        "parameter": metadata.encryption_param,
        "algorithm": _text(metadata.encryption_algo),
        "compression": COMPRESSIONS[metadata.compression],
        "uncompressed_size": metadata.uncompressed_size,
        "messages": metadata.num_messages_in_batch if is_batch else None,
        "uuid": _text(metadata.uuid) if is_chunk else None,
        "chunk": metadata.chunk_id if is_chunk else None,
        "chunks": metadata.num_chunks_from_msg if is_chunk else None,
    }


_MAP: Final = pa.map_(pa.string(), pa.string())
COLUMNS: Final = (
    Column("key", pa.binary(), "binary", "the key as bytes; null if there is none", _key),
    Column("value", pa.binary(), "binary", "the payload; null if the message says so", _value),
    Column("topic", pa.string(), "string", "the full name, of a partition its own", _topic),
    Column("partition", pa.int32(), "int", "-1 if the topic has none", _partition),
    Column(
        "position",
        _POSITION,
        "struct<ledger:bigint,entry:bigint,batch:int>",
        "where it is stored; batch is -1 for a message with an entry of its own",
        _position,
    ),
    Column(
        "sequence_id", pa.int64(), "bigint", "which of its producer's messages it is", _sequence_id
    ),
    Column("producer", pa.string(), "string", "who sent it", _producer),
    Column("publish_time", _TIMESTAMP, "timestamp", "the producer's clock", _publish_time),
    Column("event_time", _TIMESTAMP, "timestamp", "the application's time", _event_time),
    Column("properties", _MAP, "map<string,string>", "what goes with the payload", _properties),
    Column("key_hash", pa.int32(), "int", "where Key_Shared puts the key: 1 to 65535", _key_hash),
    Column("schema_version", pa.binary(), "binary", "of the payload", _schema_version),
)
"""In the order in which a DataFrame shows them."""
ENCRYPTION: Final = Column(
    "encryption",
    _ENCRYPTION,
    "struct<keys:map<string,binary>,parameter:binary,algorithm:string,compression:string,"
    "uncompressed_size:bigint,messages:int,uuid:string,chunk:int,chunks:int>",
    "only with cryptoFailureAction consume: what it takes to read a value that is still "
    "encrypted, null of others. The producer's key, encrypted for each name; the nonce; how the "
    "value was compressed, from how many bytes; how many messages it holds (null: it is one); "
    "which chunk of which message it is",
    _encryption,
)
"""In a DataFrame if it was asked for: all others are in every row, and this one hardly ever."""
COLUMNS_BY_NAME: Final = {column.name: column for column in (*COLUMNS, ENCRYPTION)}


def record_batch(rows: Rows, columns: Sequence[Column], origin: Origin) -> pa.RecordBatch:
    """Make the columns of the rows that are wanted."""
    wanted = np.flatnonzero(rows.wanted)
    arrays = [column.make(rows, wanted, origin) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """What Spark is promised."""
    return pa.schema([(column.name, column.arrow) for column in columns])
