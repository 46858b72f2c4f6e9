"""The format of messages between voters."""

import pytest

from anabranch.consensus.log import LogPosition, LogRecord, RecordKind, cut, decode, encode, vote
from anabranch.consensus.messages import (
    AppendReply,
    AppendRequest,
    Message,
    SnapshotRequest,
    VoteReply,
    VoteRequest,
)
from anabranch.consensus.messages import decode as decode_message
from anabranch.consensus.messages import encode as encode_message
from anabranch.errors import FormatError

RECORDS = (LogRecord(2, 8, RecordKind.TERM, b""), LogRecord(2, 9, RecordKind.COMMAND, b"payload"))


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(3, LogPosition(2, 7), canvass=True),
        VoteRequest(3, LogPosition(2, 7), canvass=False),
        VoteReply(3, granted=True, canvass=False),
        VoteReply(3, granted=False, canvass=True),
        AppendRequest(3, 17, LogPosition(2, 7), RECORDS, 6),
        AppendRequest(3, 17, LogPosition(2, 7), (), 6),
        AppendReply(3, 17, accepted=True, index=9),
        SnapshotRequest(3, LogPosition(2, 7), b"state"),
    ],
)
def test_round_trip(message: Message) -> None:
    data = encode_message(2, message)
    assert decode_message(data) == (2, message)
    with pytest.raises(FormatError, match="format ff"):
        decode_message(b"\xff" + data[1:])


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "format nothing"),
        (b"\x01\x01", "cannot be read"),
        (b"\x01\x09" + b"\x00" * 12, "unknown kind 9"),
        (encode_message(1, AppendRequest(1, 1, LogPosition(0, 0), (), 0)) + b"!", "has 37 bytes"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        decode_message(data)


def test_promises_are_records_of_the_second_format_and_the_others_of_the_first() -> None:
    assert b"".join(encode(vote(5, 2))).hex() == "0203" + f"{5:016x}" + "0" * 16 + "00000002"
    assert b"".join(encode(cut(LogPosition(4, 7)))).hex() == f"0204{4:016x}{7:016x}"
    assert all(encode(record)[0][0] == 1 for record in RECORDS)
    for record in (vote(5, 2), cut(LogPosition(4, 7))):
        data = b"".join(encode(record))
        assert decode(memoryview(data)) == record
        with pytest.raises(FormatError, match="format 1 has kind"):
            decode(memoryview(b"\x01" + data[1:]))
