"""Hand-written parsing of the five commands that travel once per message.

Each function reads the bytes of one sub-message and either returns exactly what protobuf would
have read or raises `Unusual`; the decoder then asks protobuf, which knows every legal form and is
the only one to say what is wrong. An IndexError means the same as `Unusual`: numbers are read
without looking whether the buffer ends first. `entry` is what follows the command in its frame.
"""

from anabranch.wire.commands import Ack, AckedId, Flow, Message, Send, SendReceipt

Bytes = bytes | bytearray

_U32_MAX = 2**32 - 1
_I32_MAX = 2**31 - 1
_I63_MAX = 2**63 - 1
_U64_MAX = 2**64 - 1
# A NamedTuple's own constructor is a Python function; this one is not.
_tuple = tuple.__new__


class Unusual(Exception):
    """Not the common form of this command: protobuf has to read it."""


def read_long(data: Bytes, at: int, first: int) -> tuple[int, int]:
    """Finish a varint whose first byte has the continuation bit."""
    second = data[at]
    if second < 0x80:
        return first - 0x80 | second << 7, at + 1
    value = first - 0x80 | (second - 0x80) << 7
    shift = 14
    while True:
        at += 1
        byte = data[at]
        if byte < 0x80:
            value |= byte << shift
            if value > _U64_MAX:
                raise Unusual
            return value, at + 1
        if shift > 56:
            raise Unusual
        value |= (byte - 0x80) << shift
        shift += 7


def parse_send(data: Bytes, at: int, end: int, entry: memoryview | None) -> Send:
    """Read a CommandSend."""
    producer_id = sequence_id = most = least = -1
    count = 1
    highest = None
    is_chunk = marker = False
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
        if tag == 0x08:
            producer_id = value
        elif tag == 0x10:
            sequence_id = value
        elif tag == 0x18 and value <= _I32_MAX:
            count = value
        elif tag == 0x30:
            highest = value
        elif tag == 0x20:
            least = value
        elif tag == 0x28:
            most = value
        elif tag == 0x38:
            is_chunk = value != 0
        elif tag == 0x40:
            marker = value != 0
        else:
            raise Unusual
    if at != end or producer_id < 0 or sequence_id < 0 or entry is None:
        raise Unusual
    txn = (most, least) if most >= 0 and least >= 0 else None
    return _tuple(Send, (producer_id, sequence_id, count, highest, is_chunk, marker, txn, entry))


def _message_id(
    data: Bytes, at: int, end: int
) -> tuple[int, int, int, tuple[int, ...] | None, int | None]:
    """Read a MessageIdData: ledger, entry, partition, ack set, batch size."""
    ledger_id = entry_id = None
    partition = -1
    words: list[int] = []
    batch_size = None
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
            if value > _I63_MAX:
                value -= 2**64
        if tag == 0x08:
            ledger_id = value
        elif tag == 0x10:
            entry_id = value
        elif tag == 0x18 and -1 <= value <= _I32_MAX:
            partition = value
        elif tag == 0x20:
            pass
        elif tag == 0x28:
            words.append(value)
        elif tag == 0x30 and 0 <= value <= _I32_MAX:
            batch_size = value
        else:
            raise Unusual
    if at != end or ledger_id is None or entry_id is None:
        raise Unusual
    return ledger_id, entry_id, partition, tuple(words) if words else None, batch_size


def parse_send_receipt(data: Bytes, at: int, end: int, entry: memoryview | None) -> SendReceipt:
    """Read a CommandSendReceipt."""
    producer_id = sequence_id = -1
    ledger_id = entry_id = -1
    highest = None
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
        if tag == 0x08:
            producer_id = value
        elif tag == 0x10:
            sequence_id = value
        elif tag == 0x1A:
            ledger_id, entry_id, _, _, _ = _message_id(data, at, at + value)
            at += value
        elif tag == 0x20:
            highest = value
        else:
            raise Unusual
    if at != end or producer_id < 0 or sequence_id < 0 or entry is not None:
        raise Unusual
    return _tuple(SendReceipt, (producer_id, sequence_id, ledger_id, entry_id, highest))


def parse_message(data: Bytes, at: int, end: int, entry: memoryview | None) -> Message:
    """Read a CommandMessage."""
    consumer_id = ledger_id = entry_id = partition = -1
    redelivery_count = 0
    words: list[int] = []
    epoch = None
    seen_id = False
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
        if tag == 0x08:
            consumer_id = value
        elif tag == 0x12 and not seen_id:
            seen_id = True
            ledger_id, entry_id, partition, _, _ = _message_id(data, at, at + value)
            at += value
        elif tag == 0x18 and value <= _U32_MAX:
            redelivery_count = value
        elif tag == 0x20:
            words.append(value - 2**64 if value > _I63_MAX else value)
        elif tag == 0x28:
            epoch = value
        else:
            raise Unusual
    if at != end or consumer_id < 0 or not seen_id or entry is None:
        raise Unusual
    ack_set = tuple(words) if words else None
    return _tuple(
        Message,
        (consumer_id, ledger_id, entry_id, partition, redelivery_count, ack_set, epoch, entry),
    )


def parse_ack(data: Bytes, at: int, end: int, entry: memoryview | None) -> Ack:
    """Read a CommandAck."""
    consumer_id = ack_type = most = least = -1
    ids: list[AckedId] = []
    request_id = validation_error = None
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
        if tag == 0x1A:
            ledger_id, entry_id, _, ack_set, batch_size = _message_id(data, at, at + value)
            ids.append(_tuple(AckedId, (ledger_id, entry_id, ack_set, batch_size)))
            at += value
        elif tag == 0x08:
            consumer_id = value
        elif tag == 0x10 and value <= 1:
            ack_type = value
        elif tag == 0x40:
            request_id = value
        elif tag == 0x20 and value <= 4:
            validation_error = value
        elif tag == 0x30:
            least = value
        elif tag == 0x38:
            most = value
        else:
            raise Unusual
    if at != end or consumer_id < 0 or ack_type < 0 or entry is not None:
        raise Unusual
    txn = (most, least) if most >= 0 and least >= 0 else None
    return _tuple(Ack, (consumer_id, ack_type, ids, request_id, validation_error, txn))


def parse_flow(data: Bytes, at: int, end: int, entry: memoryview | None) -> Flow:
    """Read a CommandFlow."""
    consumer_id = permits = -1
    while at < end:
        tag = data[at]
        value = data[at + 1]
        at += 2
        if value > 0x7F:
            value, at = read_long(data, at, value)
        if tag == 0x08:
            consumer_id = value
        elif tag == 0x10 and value <= _U32_MAX:
            permits = value
        else:
            raise Unusual
    if at != end or consumer_id < 0 or permits < 0 or entry is not None:
        raise Unusual
    return _tuple(Flow, (consumer_id, permits))
