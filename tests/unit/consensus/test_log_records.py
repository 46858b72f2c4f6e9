"""The format of log records."""

import pytest

from anabranch.consensus.log import LogRecord, RecordKind, decode, encode
from anabranch.errors import FormatError

RECORD = LogRecord(3, 17, RecordKind.COMMAND, b"payload")


def test_round_trip_and_frozen_format() -> None:
    data = b"".join(encode(RECORD))
    assert data == bytes.fromhex("010200000000000000030000000000000011") + b"payload"
    assert decode(memoryview(data)) == RECORD


def test_empty_payload() -> None:
    record = LogRecord(1, 1, RecordKind.TERM, b"")
    assert decode(memoryview(b"".join(encode(record)))) == record


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "at least 18 bytes, found 0"),
        (b"\x01\x02" + b"\x00" * 15, "found 17"),
        (b"\x02\x02" + b"\x00" * 16, "format 2"),
        (b"\x01\x09" + b"\x00" * 16, "unknown kind 9"),
    ],
)
def test_unknown_record_is_refused_and_named(data: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        decode(memoryview(data))
