"""From commands to the bytes of the socket.

`encode` takes any command. The commands that travel once per message are written by hand; the
fields and their order are those that protobuf would write.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from anabranch.generated.pulsar_api_pb2 import BaseCommand
from anabranch.wire.commands import AckedId, Buffer

_sizes = Struct(">II").pack

_LAST = [bytes((number,)) for number in range(0x80)]
_MORE = [bytes((number | 0x80,)) for number in range(0x80)]
_U64_MASK = 2**64 - 1
_SIZE_BYTES = 4
_SIZES_BYTES = 8


def _varint(number: int) -> bytes:
    """Encode a number; a negative one as protobuf encodes its 64-bit two's complement."""
    if number < 0x4000:
        if number > 0x7F:
            return _MORE[number & 0x7F] + _LAST[number >> 7]
        if number >= 0:
            return _LAST[number]
    elif number < 0x200000:
        return _MORE[number & 0x7F] + _MORE[number >> 7 & 0x7F] + _LAST[number >> 14]
    number &= _U64_MASK
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


@lru_cache(maxsize=4096)
def _id_head(number: int) -> bytes:
    """Fields 1 and 2 up to the latter's number: an id that comes again and again, then another."""
    return b"\x08" + _varint(number) + b"\x10"


def _frame(kind: bytes, body: bytes, entry_length: int = 0) -> bytes:
    """Put type, tag and sizes in front of a sub-message; `kind` is the type and the field's tag."""
    command = kind + _varint(len(body)) + body
    size = len(command)
    return _sizes(_SIZE_BYTES + size + entry_length, size) + command


_NUMBER_BYTES_MAX = 1 + 10
_RECEIPT_ID = [b"\x1a" + _LAST[length] for length in range(2 * _NUMBER_BYTES_MAX + 1)]
_RECEIPT_HEAD = [
    _frame(b"\x08\x07\x3a", bytes(length))[: _SIZES_BYTES + 4]
    for length in range(5 * _NUMBER_BYTES_MAX + 3)
]


def encode(command: BaseCommand) -> bytes:
    """Encode any command that carries no entry."""
    body = command.SerializeToString()
    return _sizes(_SIZE_BYTES + len(body), len(body)) + body


def send_receipt(
    producer_id: int,
    sequence_id: int,
    ledger_id: int,
    entry_id: int,
    highest_sequence_id: int | None = None,
) -> bytes:
    """Tell a producer that its entry is stored; ids of -1 say that it was a duplicate."""
    where = _id_head(ledger_id) + _varint(entry_id)
    body = _id_head(producer_id) + _varint(sequence_id) + _RECEIPT_ID[len(where)] + where
    if highest_sequence_id is not None:
        body += b"\x20" + _varint(highest_sequence_id)
    return _RECEIPT_HEAD[len(body)] + body


def message_header(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    entry_length: int,
    *,
    partition: int = -1,
    redelivery_count: int = 0,
    ack_set: Iterable[int] | None = None,
    consumer_epoch: int | None = None,
) -> bytes:
    """Start the frame that brings an entry to a consumer; the entry's own bytes must follow."""
    where = _id_head(ledger_id) + _varint(entry_id)
    if partition != -1:
        where += b"\x18" + _varint(partition)
    body = b"\x08" + _varint(consumer_id) + b"\x12" + _LAST[len(where)] + where
    if redelivery_count:
        body += b"\x18" + _varint(redelivery_count)
    if ack_set is not None:
        body += b"".join(b"\x20" + _varint(word) for word in ack_set)
    if consumer_epoch is not None:
        body += b"\x28" + _varint(consumer_epoch)
    return _frame(b"\x08\x09\x4a", body, entry_length)


def send_frame(
    producer_id: int,
    sequence_id: int,
    num_messages: int,
    entry: Buffer,
    *,
    highest_sequence_id: int | None = None,
    is_chunk: bool = False,
    txn: tuple[int, int] | None = None,
) -> list[Buffer]:
    """Publish an entry: the buffers to write, of which the last is the entry itself."""
    body = _id_head(producer_id) + _varint(sequence_id)
    if num_messages != 1:
        body += b"\x18" + _varint(num_messages)
    if txn is not None:
        most, least = txn
        body += b"\x20" + _varint(least) + b"\x28" + _varint(most)
    if highest_sequence_id is not None:
        body += b"\x30" + _varint(highest_sequence_id)
    if is_chunk:
        body += b"\x38\x01"
    return [_frame(b"\x08\x06\x32", body, len(entry)), entry]


def flow(consumer_id: int, permits: int) -> bytes:
    """Ask for so many more messages."""
    return _frame(b"\x08\x0b\x5a", _id_head(consumer_id) + _varint(permits))


def ack(
    consumer_id: int,
    ack_type: int,
    ids: Iterable[AckedId],
    request_id: int | None = None,
    *,
    txn: tuple[int, int] | None = None,
) -> bytes:
    """Acknowledge entries; with a request id the broker answers once that is durable."""
    parts = [_id_head(consumer_id) + _varint(ack_type)]
    for ledger_id, entry_id, ack_set, batch_size in ids:
        where = _id_head(ledger_id) + _varint(entry_id)
        if ack_set is not None:
            where += b"".join(b"\x28" + _varint(word) for word in ack_set)
        if batch_size is not None:
            where += b"\x30" + _varint(batch_size)
        parts.append(b"\x1a" + _varint(len(where)) + where)
    if txn is not None:
        most, least = txn
        parts.append(b"\x30" + _varint(least) + b"\x38" + _varint(most))
    if request_id is not None:
        parts.append(b"\x40" + _varint(request_id))
    return _frame(b"\x08\x0a\x52", b"".join(parts))
