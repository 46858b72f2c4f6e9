"""What voters say to each other, and how it is written.

Pure. A message says what its sender held true when it was sent: receivers must bear old ones,
repeated ones and gaps. Framing and connections belong to the driver.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anabranch.consensus import log
from anabranch.consensus.log import LogPosition, LogRecord
from anabranch.errors import FormatError

FORMAT_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BBIQ")
_VOTE_REQUEST: Final = struct.Struct(">?QQ")
_VOTE_REPLY: Final = struct.Struct(">??")
_APPEND_REQUEST: Final = struct.Struct(">QQQQI")
_APPEND_REPLY: Final = struct.Struct(">Q?Q")
_POSITION: Final = struct.Struct(">QQ")
_LENGTH: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Let me lead this term. A canvass only asks whether the answer would be yes."""

    term: int
    last: LogPosition
    canvass: bool


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Yes, with the term that was asked for; or no, with the term of the one who answers."""

    term: int
    granted: bool
    canvass: bool


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """I lead: these records follow `previous`. Without records it is a heartbeat."""

    term: int
    round: int
    """Counts up; an answer repeats it, which proves that the sender still led when it was sent."""
    previous: LogPosition
    records: tuple[LogRecord, ...]
    committed: int


@dataclass(frozen=True, slots=True)
class AppendReply:
    """My log is yours up to `index`, durably; or it is not, and may be up to `index`."""

    term: int
    round: int
    accepted: bool
    index: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """I lead: my log begins behind what you have, so take the state at `position`."""

    term: int
    position: LogPosition
    content: bytes


Message = VoteRequest | VoteReply | AppendRequest | AppendReply | SnapshotRequest


def encode(sender: int, message: Message) -> bytes:
    """Return the bytes of a message, with who says it."""
    match message:
        case VoteRequest(_, last, canvass):
            kind, body = 1, _VOTE_REQUEST.pack(canvass, last.term, last.index)
        case VoteReply(_, granted, canvass):
            kind, body = 2, _VOTE_REPLY.pack(granted, canvass)
        case AppendRequest(_, number, previous, records, committed):
            parts = [
                _APPEND_REQUEST.pack(number, previous.term, previous.index, committed, len(records))
            ]
            for record in records:
                content = log.encode(record)
                parts += (_LENGTH.pack(sum(map(len, content))), *content)
            kind, body = 3, b"".join(parts)
        case AppendReply(_, number, accepted, index):
            kind, body = 4, _APPEND_REPLY.pack(number, accepted, index)
        case SnapshotRequest(_, position, content_bytes):
            kind, body = 5, _POSITION.pack(position.term, position.index) + content_bytes
    return _HEAD.pack(FORMAT_VERSION, kind, sender, message.term) + body


def decode(data: bytes) -> tuple[int, Message]:
    """Undo `encode`: who says what.

    Raises:
        FormatError: if it is no message, or one of a version this build does not know.
    """
    if data[:1] != bytes([FORMAT_VERSION]):
        raise FormatError(
            f"message between voters of format {data[:1].hex() or 'nothing'}: "
            f"this build knows {FORMAT_VERSION}"
        )
    try:
        _, kind, sender, term = _HEAD.unpack_from(data)
        read = _READERS.get(kind)
        if read is None:
            raise FormatError(f"message between voters of unknown kind {kind}")
        return sender, read(term, memoryview(data)[_HEAD.size :])
    except struct.error as error:
        raise FormatError(f"message between voters cannot be read: {error}") from None


def _read_vote_request(term: int, body: memoryview) -> Message:
    canvass, last_term, last_index = _VOTE_REQUEST.unpack(body)
    return VoteRequest(term, LogPosition(last_term, last_index), canvass)


def _read_vote_reply(term: int, body: memoryview) -> Message:
    return VoteReply(term, *_VOTE_REPLY.unpack(body))


def _read_append_request(term: int, body: memoryview) -> Message:
    number, previous_term, previous_index, committed, count = _APPEND_REQUEST.unpack_from(body)
    records = []
    offset = _APPEND_REQUEST.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, offset)
        offset += _LENGTH.size
        records.append(log.decode(body[offset : offset + length]))
        offset += length
    if offset != len(body):
        raise FormatError(f"message between voters has {len(body)} bytes, expected {offset}")
    previous = LogPosition(previous_term, previous_index)
    return AppendRequest(term, number, previous, tuple(records), committed)


def _read_append_reply(term: int, body: memoryview) -> Message:
    return AppendReply(term, *_APPEND_REPLY.unpack(body))


def _read_snapshot_request(term: int, body: memoryview) -> Message:
    position = LogPosition(*_POSITION.unpack_from(body))
    return SnapshotRequest(term, position, bytes(body[_POSITION.size :]))


_READERS: Final[dict[int, Callable[[int, memoryview], Message]]] = {
    1: _read_vote_request,
    2: _read_vote_reply,
    3: _read_append_request,
    4: _read_append_reply,
    5: _read_snapshot_request,
}
