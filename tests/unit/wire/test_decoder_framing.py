"""Frames are found in the stream however it is cut, and broken ones end it with a reason."""

import struct

import pytest

from anabranch import limits, wire
from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.wire import BaseCommand, Command, Decoder

ENTRY = wire.build_entry(
    wire.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1), b"payload"
)
SEND = b"".join(wire.send_frame(3, 7, 1, ENTRY))
PING = wire.encode(wire.replies.ping())
LOOKUP = wire.encode(wire.requests.lookup("persistent://public/default/t", 5))
STREAM = SEND + PING + LOOKUP + SEND + wire.flow(1, 1000)


def frame(command: bytes, *, rest: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(command) + len(rest), len(command)) + command + rest


def refusal_of(data: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        Decoder().feed(data)
    return caught.value


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 4, 5, 7, 8, 9, 13, 64, 1000])
def test_every_cut_gives_the_same_commands(piece_bytes: int) -> None:
    whole = Decoder().feed(STREAM)
    decoder = Decoder()
    pieced: list[Command] = []
    for start in range(0, len(STREAM), piece_bytes):
        pieced += decoder.feed(STREAM[start : start + piece_bytes])
    assert len(whole) == 5
    assert pieced == whole
    assert decoder.buffered_bytes == 0


def test_entry_is_a_view_of_the_received_bytes() -> None:
    (send,) = Decoder().feed(SEND)
    assert isinstance(send, wire.Send)
    assert send.entry.obj is SEND
    assert send.entry == ENTRY
    assert send.entry.readonly


def test_entry_of_a_pieced_frame_cannot_be_written() -> None:
    decoder = Decoder()
    decoder.feed(SEND[:20])
    (send,) = decoder.feed(SEND[20:])
    assert isinstance(send, wire.Send)
    assert send.entry == ENTRY
    assert send.entry.readonly


def test_entries_of_pieced_frames_do_not_share_a_buffer() -> None:
    other = b"".join(wire.send_frame(3, 8, 1, ENTRY[:-7] + b"another"))
    decoder = Decoder()
    decoder.feed(SEND[:20])
    (first,) = decoder.feed(SEND[20:] + other[:9])
    (second,) = decoder.feed(other[9:])
    assert isinstance(first, wire.Send)
    assert isinstance(second, wire.Send)
    assert bytes(first.entry).endswith(b"payload")
    assert bytes(second.entry).endswith(b"another")


def test_commands_before_a_bad_frame_are_not_lost() -> None:
    error = refusal_of(PING + SEND + frame(b"\x08\x63\x9a\x06\x00") + PING)
    assert [type(command) for command in error.decoded] == [BaseCommand, wire.Send]


def test_a_broken_stream_stays_broken() -> None:
    decoder = Decoder()
    with pytest.raises(ProtocolError):
        decoder.feed(frame(b"\x08\x63\x9a\x06\x00") + PING)
    with pytest.raises(ProtocolError, match="broken before"):
        decoder.feed(PING)


@pytest.mark.parametrize("sent", [4, 5, 8, 100])
def test_oversize_is_refused_as_soon_as_it_is_declared(sent: int) -> None:
    data = (struct.pack(">II", limits.FRAME_BYTES_MAX - 3, 10) + bytes(100))[:sent]
    decoder = Decoder()
    with pytest.raises(FrameTooLarge, match=str(limits.FRAME_BYTES_MAX)):
        decoder.feed(data)
    assert decoder.buffered_bytes == 0


def test_the_largest_frame_is_accepted() -> None:
    entry = bytes(limits.FRAME_BYTES_MAX - len(b"".join(wire.send_frame(3, 7, 1, b""))))
    data = b"".join(wire.send_frame(3, 7, 1, entry))
    assert len(data) == limits.FRAME_BYTES_MAX
    decoder = Decoder()
    commands: list[Command] = []
    for start in range(0, len(data), 65536):
        commands += decoder.feed(data[start : start + 65536])
    (send,) = commands
    assert isinstance(send, wire.Send)
    assert send.entry.nbytes == len(entry)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes(4), "no room"),
        (bytes(8), "0 bytes in a frame"),
        (struct.pack(">I", 3) + bytes(3), "no room"),
        (struct.pack(">II", 4, 0), "0 bytes in a frame"),
        (struct.pack(">II", 5, 1) + b"\x08", "1 bytes in a frame"),
        (struct.pack(">II", 6, 3) + b"\x08\x12", "3 bytes in a frame"),
        (struct.pack(">II", 6, 2**32 - 1) + b"\x08\x12", "in a frame of 10"),
        (frame(b"\x08\x12\x92"), "3 bytes in a frame"),
        (frame(b"\xff\xff\xff\xff"), "malformed"),
        (frame(b"\x10\x12\x10\x12"), "no type"),
        (frame(b"\x08\x63\x9a\x06\x00"), "no type"),
        (frame(b"\x08\x12\x9a\x01\x00"), "PING lacks its field 'ping'"),
        (frame(b"\x08\x06\x32\x02\x08\x01", rest=ENTRY), "SEND lacks send.sequence_id"),
        (frame(b"\x08\x06\x32\x05\x08\x01\x10\x80\x80", rest=ENTRY), "malformed"),
        (frame(b"\x08\x06\x32\x04\x08\x01\x10\x01"), "SEND has no entry"),
        (frame(b"\x08\x0b\x5a\x04\x08\x01\x10\x01", rest=b"x"), "FLOW has bytes after"),
        (frame(b"\x08\x0b\x32\x04\x08\x01\x10\x01"), "FLOW lacks its field 'flow'"),
        (frame(b"\x08\x17\xba\x01\x06\x0a\x02\xff\xfe\x10\x01"), "topic is not UTF-8"),
    ],
)
def test_broken_frames_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    assert reason in str(refusal_of(data))


def test_unknown_fields_are_ignored() -> None:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id = 1
    command.flow.messagePermits = 2
    (flow,) = Decoder().feed(frame(command.SerializeToString() + b"\xf8\x7f\x01"))
    assert flow == wire.Flow(1, 2)
