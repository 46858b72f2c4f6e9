"""Where the messages of a batch begin: the part of reading that goes from one to the next. Pure.

    size u32 · SingleMessageMetadata · payload        repeated, as often as the entry says

Only how long a payload is has to be known to find the next message; `message_fields` reads the
rest of all messages at once, and says whether what was taken for a length here is one.
"""

import struct
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.errors import ProtocolError
from anabranch.generated.pulsar_api_pb2 import SingleMessageMetadata
from pyspark_anabranch.arrays import Bytes, Int64s, Octets

SIZE_BYTES: Final = 4
_size_at = struct.Struct(">I").unpack_from
_KEY: Final = 2 << 3 | 2
_PAYLOAD_SIZE: Final = 3 << 3
_MORE: Final = 0x80
_LOW: Final = 0x7F
_EVEN_MESSAGES_MIN: Final = 8
"""Fewer are walked sooner than looked at together."""


def messages_of_batch(
    data: Bytes, view: Octets, start: int, end: int, count: int
) -> tuple[Int64s, Int64s]:
    """Return where the metadata and where the payload of each message begin.

    Args:
        data: the unpacked payloads of some entries, one after the other.
        view: the same bytes as an array.
        start: where those of this entry begin in it.
        end: where they end.
        count: how many messages they are.

    Raises:
        ProtocolError: if they are not so many well-formed messages.
    """
    if count >= _EVEN_MESSAGES_MIN:
        even = _even_messages(view, start, end, count)
        if even is not None:
            return even
    return walk(data, start, end, count)


def _even_messages(view: Octets, start: int, end: int, count: int) -> tuple[Int64s, Int64s] | None:
    """The answer if all messages seem to have one size; whoever reads their fields finds out."""
    each, rest = divmod(end - start, count)
    if rest or each <= SIZE_BYTES:
        return None
    sizes = view[start:end].reshape(count, each)[:, :SIZE_BYTES]
    if (sizes != sizes[0]).any():
        return None
    size = int.from_bytes(sizes[0].tobytes(), "big")
    if SIZE_BYTES + size > each:
        return None
    heads = np.arange(start + SIZE_BYTES, end, each, dtype=np.int64)
    return heads, heads + size


def walk(data: Bytes, start: int, end: int, count: int) -> tuple[Int64s, Int64s]:
    """Go from message to message. See `messages_of_batch`."""
    heads: list[int] = []
    bodies: list[int] = []
    at = start
    try:
        for _ in range(count):
            head = at + SIZE_BYTES
            body = head + _size_at(data, at)[0]
            if body > end:
                raise _ends_within(count, len(heads))
            heads.append(head)
            bodies.append(body)
            at = body + _payload_size(data, head, body)
    except (IndexError, struct.error):
        raise _ends_within(count, len(heads)) from None
    except DecodeError as error:
        raise ProtocolError(
            f"metadata of message {len(heads) - 1} in a batch is malformed"
        ) from error
    if at != end:
        raise ProtocolError(f"a batch of {count} messages of {at - start} bytes in {end - start}")
    return np.array(heads, np.int64), np.array(bodies, np.int64)


def _payload_size(data: Bytes, head: int, body: int) -> int:
    at = head
    if data[at] == _KEY and data[at + 1] < _MORE:
        at += 2 + data[at + 1]
    if data[at] == _PAYLOAD_SIZE:
        low = data[at + 1]
        if low < _MORE:
            return low
        high = data[at + 2]
        if high < _MORE:
            return low & _LOW | high << 7
    size = SingleMessageMetadata.FromString(bytes(data[head:body])).payload_size
    if size < 0:
        raise ProtocolError(f"a message in a batch declares {size} bytes")
    return size


def _ends_within(count: int, index: int) -> ProtocolError:
    return ProtocolError(f"a batch of {count} ends within message {index}")
