"""What is said about many messages at once: their protobufs read side by side. Pure.

Every step reads one field of all messages, so that a step costs a few operations on whole arrays.
Messages of one producer have the same fields in the same order, nearly always; what is seldom
(properties, ordering keys, unknown fields) is left to the protobuf library, message by message.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import SingleMessageMetadata
from anabranch.wire import signed
from pyspark_anabranch.arrays import Bools, Bytes, Int64s, Octets

PADDING_BYTES: Final = 16
"""Behind the last message there must be as much to look at, since a number may seem to go on."""
ABSENT: Final = -1

_VARINT, _BYTES = 0, 2
_NUMBERS: Final = {
    3 << 3 | _VARINT: "payload_sizes",
    4 << 3 | _VARINT: "compacted_out",
    5 << 3 | _VARINT: "event_times",
    6 << 3 | _VARINT: "keys_in_base64",
    8 << 3 | _VARINT: "sequence_ids",
    9 << 3 | _VARINT: "null_values",
    10 << 3 | _VARINT: "null_keys",
}
_KEY: Final = 2 << 3 | _BYTES
_MORE, _LOW, _VARINT_BYTES_MAX = 0x80, 0x7F, 10


@dataclass(slots=True)
class MessageFields:
    """One element for each message; `ABSENT` where nothing is said."""

    payload_sizes: Int64s
    key_starts: Int64s
    key_sizes: Int64s
    event_times: Int64s
    sequence_ids: Int64s
    compacted_out: Int64s
    keys_in_base64: Int64s
    null_values: Int64s
    null_keys: Int64s
    properties: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Of the messages that have some."""

    @classmethod
    def absent(cls, count: int) -> "MessageFields":
        """Nothing is said about so many messages."""

        def numbers(value: int) -> Int64s:
            return np.full(count, value, np.int64)

        return cls(
            payload_sizes=numbers(ABSENT),
            key_starts=numbers(0),
            key_sizes=numbers(ABSENT),
            event_times=numbers(0),
            sequence_ids=numbers(ABSENT),
            compacted_out=numbers(0),
            keys_in_base64=numbers(0),
            null_values=numbers(0),
            null_keys=numbers(0),
        )


def read_fields(data: Bytes, view: Octets, starts: Int64s, ends: Int64s) -> MessageFields:
    """Read the metadata of messages that lie at these places.

    Raises:
        ProtocolError: if one of them is malformed.
    """
    fields = MessageFields.absent(len(starts))
    at = starts.copy()
    rows = np.flatnonzero(at < ends)
    odd: list[Int64s] = []
    while rows.size:
        tags = view[at[rows]]
        at[rows] += 1
        first = tags[0]
        if (tags == first).all():
            known = _step(fields, view, at, ends, rows, int(first), odd)
        else:
            known = np.concatenate(
                [
                    _step(fields, view, at, ends, rows[tags == tag], int(tag), odd)
                    for tag in np.unique(tags)
                ]
            )
        rows = known[at[known] < ends[known]]
    for row in sorted({int(row) for rows in odd for row in rows}):
        _read_alone(fields, data, row, int(starts[row]), int(ends[row]))
    return fields


def _step(
    fields: MessageFields,
    view: Octets,
    at: Int64s,
    ends: Int64s,
    rows: Int64s,
    tag: int,
    odd: list[Int64s],
) -> Int64s:
    """Read the field with this tag of these messages; return those that can be read on."""
    name = _NUMBERS.get(tag)
    if name is None and tag != _KEY:
        odd.append(rows)
        return rows[:0]
    places = at[rows]
    numbers, behind, good = _varints(view, places)
    if name is not None:
        getattr(fields, name)[rows] = numbers
    else:
        fields.key_starts[rows] = behind
        fields.key_sizes[rows] = numbers
        behind = behind + numbers
        good &= numbers >= 0
    good &= behind <= ends[rows]
    at[rows] = behind
    if good.all():
        return rows
    odd.append(rows[~good])
    return rows[good]


def _varints(view: Octets, places: Int64s) -> tuple[Int64s, Int64s, Bools]:
    """Read a number at each place: numbers, the places behind them, and which could be read."""
    octets = view[places]
    numbers = (octets & _LOW).astype(np.int64)
    behind = places + 1
    good = np.ones(len(places), np.bool_)
    more = np.flatnonzero(octets >= _MORE)
    for index in range(1, _VARINT_BYTES_MAX):
        if not more.size:
            return numbers, behind, good
        octets = view[behind[more]]
        numbers[more] |= (octets & _LOW).astype(np.int64) << (7 * index)
        behind[more] += 1
        more = more[octets >= _MORE]
    good[more] = False
    return numbers, behind, good


def _read_alone(fields: MessageFields, data: Bytes, row: int, start: int, end: int) -> None:
    content = bytes(data[start:end])
    try:
        single = SingleMessageMetadata.FromString(content)
    except DecodeError as error:
        raise ProtocolError("metadata of a message in a batch is malformed") from error
    fields.payload_sizes[row] = single.payload_size if single.HasField("payload_size") else ABSENT
    fields.event_times[row] = signed(single.event_time)
    numbered = single.HasField("sequence_id")
    fields.sequence_ids[row] = signed(single.sequence_id) if numbered else ABSENT
    fields.compacted_out[row] = single.compacted_out
    fields.keys_in_base64[row] = single.partition_key_b64_encoded
    fields.null_values[row] = single.null_value
    fields.null_keys[row] = single.null_partition_key
    if single.HasField("partition_key"):
        # Its bytes stand in the protobuf; the last of several equal fields is the one that counts.
        key = _octets(single.partition_key)
        fields.key_starts[row] = start + content.rfind(key)
        fields.key_sizes[row] = len(key)
    else:
        fields.key_sizes[row] = ABSENT
    if single.properties:
        fields.properties[row] = [
            (_text(pair.key), _text(pair.value)) for pair in single.properties
        ]


def _octets(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _text(value: str | bytes) -> str:
    """Protobuf hands out a string that is not UTF-8 as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
