"""What can be written: which columns a DataFrame may have, and rows as messages. Pure."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch.errors import ConfigError, InputError
from anabranch.ids import TopicName

_BYTES: Final = ("binary", "string")
SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "event_time": ("timestamp",),
    "properties": ("map<string,string>",),
}
"""By name, the types that each may have; only `value` must be there."""


def check_schema(types: Mapping[str, str], topic: TopicName | None) -> None:
    """Refuse a DataFrame that cannot be written.

    Args:
        types: the columns and what Spark calls their types.
        topic: what the option names, if it names one.

    Raises:
        InputError: naming the column that is wrong.
    """
    for name, kind in types.items():
        if name not in SINK_COLUMNS:
            raise InputError(
                f"column {name!r} cannot be written; there are {', '.join(SINK_COLUMNS)}"
            )
        if kind not in SINK_COLUMNS[name]:
            wanted = " or ".join(SINK_COLUMNS[name])
            raise InputError(f"column {name!r} has to be {wanted}, not {kind}")
    if "value" not in types:
        raise InputError("there is no column 'value' to write")
    if topic is None and "topic" not in types:
        raise ConfigError("no option topic and no column 'topic': where should rows go?")
    if topic is not None and "topic" in types:
        raise ConfigError("an option topic and a column 'topic': which one should count?")


class SinkRow(NamedTuple):
    """A row as it is sent."""

    number: int
    """Its place among the rows of its task."""
    topic: str
    """As the row names it; empty for that of the option."""
    partition: int | None
    key: str | bytes | None
    value: bytes | None
    event_time_ms: int | None
    properties: dict[str, str] | None


def sink_rows(batches: Iterator[pa.RecordBatch], number: int = 0) -> Iterator[SinkRow]:
    """Rows of Arrow batches, numbered over all of them, from a number on."""
    for batch in batches:
        columns = [_column(batch, name) for name in SINK_COLUMNS]
        for value, key, topic, partition, event_time, properties in zip(*columns, strict=True):
            yield SinkRow(
                number,
                topic or "",
                partition,
                key,
                value,
                event_time,
                dict(properties) if properties else None,
            )
            number += 1


def _column(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return [None] * batch.num_rows
    column = batch.column(at)
    if name == "event_time":
        column = event_times_of(column)
    elif name == "value":
        column = column.cast(pa.binary())  # of text, too, no more is wanted than its bytes
    found: Sequence[Any] = column.to_pylist()
    return found


def event_times_of(column: pa.Array) -> pa.Array:
    """Moments as messages have them."""
    return column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())


@lru_cache(maxsize=65_536)
def partition_of_key(key: str | bytes, partitions: int) -> int:
    """Where Java's client sends a key unless it is told otherwise, so that both agree."""
    if isinstance(key, bytes):
        key = base64.b64encode(key).decode()
    found = 0
    for unit in memoryview(key.encode("utf-16-le")).cast("H"):
        found = (found * 31 + unit) & 0xFFFFFFFF
    return (found & 0x7FFFFFFF) % partitions
