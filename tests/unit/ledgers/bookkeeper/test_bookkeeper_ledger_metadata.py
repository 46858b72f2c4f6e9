"""Ledger metadata: BookKeeper's bytes, what is kept of them, and what is refused."""

from dataclasses import replace

import pytest

from anabranch import limits
from anabranch.errors import FormatError, InputError
from anabranch.generated import bookkeeper_formats_pb2 as pb
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.ledger_metadata import (
    EnsembleSegment,
    LedgerMetadata,
    State,
    decode_metadata,
    encode_metadata,
)

MAGIC = b"BookieMetadataFormatVersion\t"
OPEN = LedgerMetadata(
    ledger_id=7,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    state=State.OPEN,
    last_entry_id=-1,
    length=0,
    digest=DigestType.CRC32C,
    password=b"secret",
    segments=(
        EnsembleSegment(0, ("a:3181", "b:3181", "c:3181")),
        EnsembleSegment(10, ("a:3181", "d:3181", "c:3181")),
    ),
    ctoken=5,
)


def document_of(message: pb.LedgerMetadataFormat) -> bytes:
    body = message.SerializeToString()
    assert len(body) < 128
    return MAGIC + b"3\n" + bytes([len(body)]) + body


def message_of(metadata: LedgerMetadata) -> pb.LedgerMetadataFormat:
    message = pb.LedgerMetadataFormat()
    message.ParseFromString(encode_metadata(metadata)[len(MAGIC) + 3 :])
    return message


def test_the_bytes_of_a_document() -> None:
    metadata = replace(OPEN, segments=(EnsembleSegment(0, ("a", "b", "c")),), ctime_ms=300)
    assert encode_metadata(replace(metadata, custom_metadata={"k": b"v"})) == (
        MAGIC + b"3\n\x39"
        b"\x08\x02\x10\x03\x18\x00\x20" + b"\xff" * 9 + b"\x01\x28\x01"
        b"\x32\x0b\x0a\x01a\x0a\x01b\x0a\x01c\x10\x00"
        b"\x38\x03\x42\x06secret\x48\x02\x50\xac\x02\x5a\x06\x0a\x01k\x12\x01v\x60\x05"
    )


@pytest.mark.parametrize(
    "metadata",
    [
        OPEN,
        replace(OPEN, state=State.IN_RECOVERY),
        replace(OPEN, state=State.CLOSED, last_entry_id=12, length=2**40),
        replace(OPEN, state=State.CLOSED),
        replace(OPEN, ctime_ms=1_700_000_000_000, custom_metadata={"b": b"", "a": b"\xff"}),
        replace(OPEN, ctoken=None, password=b"", digest=DigestType.HMAC),
        replace(OPEN, ctoken=-(2**63), ack_quorum=1, digest=DigestType.DUMMY),
    ],
)
def test_what_is_written_is_read(metadata: LedgerMetadata) -> None:
    assert decode_metadata(7, encode_metadata(metadata)) == metadata


def test_fields_of_a_newer_version_are_written_again() -> None:
    later = b"\xf8\x06\x05"  # field 111, varint 5
    metadata = replace(
        OPEN,
        unknown_fields=later,
        segments=(replace(OPEN.segments[0], unknown_fields=b"\x50\x01"), OPEN.segments[1]),
    )
    written = encode_metadata(metadata)
    found = decode_metadata(7, written)
    assert found == metadata
    closed = replace(found, state=State.CLOSED, last_entry_id=11, length=3)
    again = decode_metadata(7, encode_metadata(closed))
    assert again.unknown_fields == later
    assert again.segments[0].unknown_fields == b"\x50\x01"


def test_the_text_of_version_2_is_read() -> None:
    text = b"""quorumSize: 2
ensembleSize: 3
length: 100
lastEntryId: 4
state: CLOSED
segment {
  ensembleMember: "a:3181"
  ensembleMember: "b:3181"
  ensembleMember: "c:3181"
  firstEntryId: 0
}
digestType: CRC32
password: "pass\\001"
customMetadata { key: "k" value: "v" }
"""
    assert decode_metadata(7, MAGIC + b"2\n" + text) == LedgerMetadata(
        ledger_id=7,
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        state=State.CLOSED,
        last_entry_id=4,
        length=100,
        digest=DigestType.CRC32,
        password=b"pass\x01",
        segments=(EnsembleSegment(0, ("a:3181", "b:3181", "c:3181")),),
        custom_metadata={"k": b"v"},
    )


def test_what_an_open_ledger_says_of_its_end_means_nothing() -> None:
    message = message_of(OPEN)
    message.lastEntryId, message.length = 99, 1000
    assert decode_metadata(7, document_of(message)) == OPEN


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no ledger metadata"),
        (b"hello", "no ledger metadata"),
        (MAGIC, "no version"),
        (MAGIC + b"three\n", "no version"),
        (MAGIC + b"3", "no version"),
        (MAGIC + b"\xb2\n", "no version"),
        (MAGIC + b"333333333333\n", "no version"),
        (MAGIC + b"1\n3\n3\n0\n", "version 1"),
        (MAGIC + b"4\n", "version 4"),
        (MAGIC + b"3\n", "no size"),
        (MAGIC + b"3\n\xff\xff\xff\xff\xff\x01", "no size"),
        (MAGIC + b"3\n\x05abc", "cut off: 3 of 5"),
        (encode_metadata(OPEN)[:-1], "cut off"),
        (encode_metadata(OPEN) + b"x", "1 bytes behind"),
        (MAGIC + b"3\n\x03abc", "parsed"),
        (MAGIC + b"2\nquorumSize: many", "parsed"),
        (MAGIC + b"2\n\xff\xfe", "parsed"),
        (MAGIC + b"3\n\x00", "no quorumSize"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as error:
        decode_metadata(12, data)
    assert "ledger 12" in str(error.value)


@pytest.mark.parametrize("name", ["quorumSize", "ensembleSize", "length", "state"])
def test_a_missing_field_is_named(name: str) -> None:
    message = message_of(OPEN)
    message.ClearField(name)
    with pytest.raises(FormatError, match=f"no {name}"):
        decode_metadata(7, document_of(message))


@pytest.mark.parametrize(("name", "tag"), [("state", b"\x28"), ("digestType", b"\x38")])
def test_an_unknown_state_or_digest_is_named(name: str, tag: bytes) -> None:
    message = message_of(OPEN)
    message.ClearField(name)
    body = message.SerializeToString() + tag + b"\x09"
    with pytest.raises(FormatError, match=f"{name} 9"):
        decode_metadata(7, MAGIC + b"3\n" + bytes([len(body)]) + body)


BAD = {
    "impossible quorums": replace(OPEN, ack_quorum=3),
    "impossible quorums: ensemble 3, write 4": replace(OPEN, write_quorum=4),
    "write 0, ack 0": replace(OPEN, write_quorum=0, ack_quorum=0),
    "no segment": replace(OPEN, segments=()),
    "begins at entry 10, not 0": replace(OPEN, segments=OPEN.segments[1:]),
    "at entry 0 follows one at entry 0": replace(OPEN, segments=OPEN.segments[:1] * 2),
    "2 bookies from entry 0 on instead of 3": replace(
        OPEN, segments=(EnsembleSegment(0, ("a", "b")),)
    ),
    "without a name": replace(OPEN, segments=(EnsembleSegment(0, ("a", "", "c")),)),
    "ends at entry -2": replace(OPEN, state=State.CLOSED, last_entry_id=-2),
    "-1 bytes": replace(OPEN, state=State.CLOSED, length=-1),
}


@pytest.mark.parametrize("reason", BAD)
def test_contradictions_are_neither_written_nor_read(reason: str) -> None:
    with pytest.raises(InputError, match=f"ledger 7: .*{reason}"):
        encode_metadata(BAD[reason])
    bad = BAD[reason]
    message = message_of(OPEN)
    message.quorumSize, message.ackQuorumSize = bad.write_quorum, bad.ack_quorum
    message.state, message.length = bad.state.value, bad.length
    message.lastEntryId = bad.last_entry_id
    del message.segment[:]
    for segment in bad.segments:
        message.segment.add(ensembleMember=segment.bookies, firstEntryId=segment.first_entry_id)
    with pytest.raises(FormatError, match=f"ledger 7: .*{reason}"):
        decode_metadata(7, document_of(message))


def test_an_end_before_the_close_is_not_written() -> None:
    with pytest.raises(InputError, match="OPEN, but with an end"):
        encode_metadata(replace(OPEN, last_entry_id=3))


def test_metadata_too_large_for_a_store_are_refused() -> None:
    custom = {"k": bytes(limits.METADATA_VALUE_BYTES_MAX)}
    with pytest.raises(InputError, match="too many"):
        encode_metadata(replace(OPEN, custom_metadata=custom))


def test_the_segment_of_an_entry() -> None:
    first, second = OPEN.segments
    assert [OPEN.segment_of(entry) for entry in (0, 9, 10, 10_000)] == [
        first,
        first,
        second,
        second,
    ]


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(OPEN)
