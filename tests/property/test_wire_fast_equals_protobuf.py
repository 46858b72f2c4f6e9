"""The hand-written reader and writer agree with protobuf on everything that can be sent."""

import random
import struct
from collections import Counter

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import wire
from anabranch.errors import ProtocolError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire import AckedId, Buffer, Command, Decoder, decoder
from anabranch.wire.slow_parse import parse_command

SEEDS = st.integers(0, 2**64 - 1)
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1)
ENTRY = b"\x00\x00\x00\x00entry"
HOT_TYPES = (6, 7, 9, 10, 11)
WITH_ENTRY = (6, 9)


def maybe(strategy: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | strategy


def varint(number: int, overlong: bool = False) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    if overlong:
        parts[-1] |= 0x80
        parts.append(0)
    return bytes(parts)


def message_id(rng: random.Random) -> bytes:
    parts = [b"\x08" + varint(any_number(rng)) + b"\x10" + varint(any_number(rng))]
    parts += (
        bytes((rng.randint(1, 6) << 3,)) + varint(any_number(rng)) for _ in range(rng.randrange(4))
    )
    rng.shuffle(parts)
    return b"".join(parts)


def any_number(rng: random.Random) -> int:
    small = rng.randrange(6)
    return rng.choice(
        (small, small, rng.getrandbits(rng.choice((14, 31, 32, 63, 64, 70))), 2**64 - 1)
    )


def raw_message(rng: random.Random, depth: int = 2) -> bytes:
    """Fields in any order, known and unknown, of any wire type, repeated, overlong."""
    parts = []
    for _ in range(rng.randrange(7)):
        number = rng.choice((*range(1, 10), 15, 16, 300))
        kind = rng.choice((0, 0, 0, 0, 0, 2, 2, 1, 5))
        parts.append(varint(number << 3 | kind, rng.random() < 0.1))
        if kind == 0:
            parts.append(varint(any_number(rng), rng.random() < 0.1))
        elif kind == 1:
            parts.append(rng.randbytes(8))
        elif kind == 5:
            parts.append(rng.randbytes(4))
        else:
            body = message_id(rng) + raw_message(rng, depth - 1) if depth else rng.randbytes(3)
            parts += (varint(len(body)), body)
    return b"".join(parts)


NUMBERS = {6: range(1, 9), 7: (1, 2, 4), 9: (1, 3, 4, 5), 10: (1, 2, 4, 6, 7, 8), 11: (1, 2)}
IDS_FIELD = {7: 3, 9: 2, 10: 3}


def fitting_message(rng: random.Random, kind: int) -> bytes:
    """Known fields of the right wire type, any number of times, in any order."""
    parts = []
    for _ in range(rng.randrange(5)):
        if kind in IDS_FIELD and rng.random() < 0.3:
            body = message_id(rng)
            parts.append(bytes((IDS_FIELD[kind] << 3 | 2, len(body))) + body)
        else:
            parts.append(bytes((rng.choice(NUMBERS[kind]) << 3,)) + varint(any_number(rng)))
    return b"".join(parts)


def required_fields(rng: random.Random, kind: int) -> bytes:
    if kind != 9:
        return b"\x08\x01\x10\x00"
    body = message_id(rng)
    return b"\x08\x01\x12" + varint(len(body)) + body


def raw_command(rng: random.Random) -> tuple[bytes, bytes]:
    """A hot command and what follows it, nearly legal."""
    kind = rng.choice(HOT_TYPES)
    body = fitting_message(rng, kind) if rng.random() < 0.7 else raw_message(rng)
    if rng.random() < 0.8:
        required = required_fields(rng, kind)
        body = rng.choice((required + body, body + required))
    if rng.random() < 0.1:
        body = body[:-1]
    command = b"\x08" + bytes((kind, kind << 3 | 2)) + varint(len(body)) + body
    if rng.random() < 0.1:
        command += raw_message(rng, 0)
    entry = ENTRY if (kind in WITH_ENTRY) != (rng.random() < 0.05) else b""
    return command, entry


def frame(command: bytes, entry: bytes) -> bytes:
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry


def decode(command: bytes, entry: bytes) -> Command | str:
    try:
        # What follows must not be read as a part of it.
        decoded, _ = Decoder().feed(frame(command, entry) + wire.flow(1, 1))
    except ProtocolError as error:
        return str(error)
    return decoded


def decode_slowly(command: bytes, entry: bytes) -> Command | str:
    try:
        return parse_command(command, memoryview(entry) if entry else None)
    except ProtocolError as error:
        return str(error)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_any_bytes_mean_the_same_to_both(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        command, entry = raw_command(rng)
        assert decode(command, entry) == decode_slowly(command, entry), command.hex()


def test_random_commands_reach_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the comparison above would compare protobuf with itself.
    slow = Counter[str]()

    def count(command: Buffer, entry: memoryview | None) -> Command:
        slow["calls"] += 1
        return parse_command(command, entry)

    monkeypatch.setattr(decoder, "parse_command", count)
    rng = random.Random(1)
    total = 2000
    for _ in range(total):
        decode(*raw_command(rng))
    assert 0.2 * total < slow["calls"] < 0.8 * total


ACKED_IDS = st.lists(
    st.builds(
        AckedId,
        I64,
        I64,
        st.none() | st.lists(I64, min_size=1, max_size=3).map(tuple),
        maybe(COUNT),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(U64, st.sampled_from((0, 1)), ACKED_IDS, maybe(U64), st.none() | st.tuples(U64, U64))
def test_ack_is_written_as_protobuf_writes_it(
    consumer_id: int,
    ack_type: int,
    ids: list[AckedId],
    request_id: int | None,
    txn: tuple[int, int] | None,
) -> None:
    data = wire.ack(consumer_id, ack_type, ids, request_id, txn=txn)
    assert data == wire.encode(pb.BaseCommand.FromString(data[8:]))
    assert Decoder().feed(data) == [wire.Ack(consumer_id, ack_type, ids, request_id, None, txn)]


@settings(deadline=None)
@given(U64, U64, I64, I64, maybe(U64))
def test_send_receipt_is_written_as_protobuf_writes_it(
    producer_id: int, sequence_id: int, ledger_id: int, entry_id: int, highest: int | None
) -> None:
    data = wire.send_receipt(producer_id, sequence_id, ledger_id, entry_id, highest)
    expected = pb.BaseCommand(
        type=pb.BaseCommand.SEND_RECEIPT,
        send_receipt=pb.CommandSendReceipt(
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=pb.MessageIdData(
                ledgerId=wire.unsigned(ledger_id), entryId=wire.unsigned(entry_id)
            ),
            highest_sequence_id=highest,
        ),
    )
    assert data == wire.encode(expected)
    assert Decoder().feed(data) == [
        wire.SendReceipt(producer_id, sequence_id, ledger_id, entry_id, highest)
    ]


@settings(deadline=None)
@given(
    U64,
    I64,
    I64,
    st.integers(-1, 2**31 - 1),
    U32,
    st.none() | st.lists(I64, min_size=1, max_size=3).map(tuple),
    maybe(U64),
    st.binary(min_size=1, max_size=300),
)
def test_message_arrives_as_it_was_sent(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: tuple[int, ...] | None,
    epoch: int | None,
    entry: bytes,
) -> None:
    header = wire.message_header(
        consumer_id,
        ledger_id,
        entry_id,
        len(entry),
        partition=partition,
        redelivery_count=redelivery_count,
        ack_set=ack_set,
        consumer_epoch=epoch,
    )
    assert header[8:] == pb.BaseCommand.FromString(header[8:]).SerializeToString()
    assert Decoder().feed(header + entry) == [
        wire.Message(
            consumer_id,
            ledger_id,
            entry_id,
            partition,
            redelivery_count,
            ack_set,
            epoch,
            memoryview(entry),
        )
    ]


@settings(deadline=None)
@given(
    U64,
    U64,
    I32,
    maybe(U64),
    st.booleans(),
    st.none() | st.tuples(U64, U64),
    st.binary(min_size=1, max_size=300),
)
def test_send_arrives_as_it_was_sent(
    producer_id: int,
    sequence_id: int,
    count: int,
    highest: int | None,
    is_chunk: bool,
    txn: tuple[int, int] | None,
    entry: bytes,
) -> None:
    header, sent = wire.send_frame(
        producer_id,
        sequence_id,
        count,
        entry,
        highest_sequence_id=highest,
        is_chunk=is_chunk,
        txn=txn,
    )
    command = bytes(header[8:])
    assert command == pb.BaseCommand.FromString(command).SerializeToString()
    assert Decoder().feed(bytes(header) + sent) == [
        wire.Send(producer_id, sequence_id, count, highest, is_chunk, False, txn, memoryview(entry))
    ]


@settings(deadline=None)
@given(U64, U32)
def test_flow_is_written_as_protobuf_writes_it(consumer_id: int, permits: int) -> None:
    data = wire.flow(consumer_id, permits)
    assert data == wire.encode(pb.BaseCommand.FromString(data[8:]))
    assert Decoder().feed(data) == [wire.Flow(consumer_id, permits)]


def count_of(entry: Buffer) -> int | None:
    try:
        return wire.message_count(entry)
    except ProtocolError:
        return None


@settings(deadline=None)
@given(SEEDS)
def test_message_count_is_what_the_metadata_says(seed: int) -> None:
    rng = random.Random(seed)
    batch = rng.choice((b"", b"\x58" + varint(any_number(rng))))
    metadata_bytes = b"\x0a\x01p\x10\x01\x18\x01" + raw_message(rng, 0) + batch
    entry = len(metadata_bytes).to_bytes(4, "big") + metadata_bytes
    try:
        metadata = pb.MessageMetadata.FromString(metadata_bytes)
    except DecodeError:
        assert count_of(entry) is None
        return
    legal = metadata.IsInitialized() and metadata.num_messages_in_batch > 0
    assert count_of(entry) == (metadata.num_messages_in_batch if legal else None)
