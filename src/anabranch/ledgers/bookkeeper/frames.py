"""Requests to a bookie and its answers, as the bytes of the protocol's version 3. Pure.

frame   := length u32 | message
message := header field | one field of the operation

A request is made once and is sent to several bookies. Adds are most of the traffic: they are
encoded by hand, so that a long payload is not copied, and have a number that no other request of
the store has, so that all bookies get the same bytes. Others get theirs from each connection: odd
ones.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.limits import KIB
from anabranch.runtime.network import Buffer

_LENGTH: Final = struct.Struct(">I")
LENGTH_BYTES: Final = _LENGTH.size
RECOVERY_PRIORITY: Final = 100
ADD_OVERHEAD_BYTES_MAX: Final = 192
"""What an add has around its payload at most: headers, ids, key, and the longest digest."""
_JOINED_BYTES_MAX: Final = 4 * KIB
"""A payload up to this is copied into the frame, once: a piece more for each bookie costs more."""
_RECOVERY_ADD: Final = b"\xa0\x06\x01"
_pack_length: Final = _LENGTH.pack
_unpack_length: Final = _LENGTH.unpack_from


class Operation(IntEnum):
    """What is asked, with BookKeeper's numbers."""

    READ = pb.READ_ENTRY
    ADD = pb.ADD_ENTRY
    AUTH = pb.AUTH
    WRITE_LAC = pb.WRITE_LAC
    READ_LAC = pb.READ_LAC
    START_TLS = pb.START_TLS


_ADD: Final = int(Operation.ADD)


class Status(IntEnum):
    """How a request went. Negative: the bookie did not answer it, we found this ourselves."""

    OK = pb.EOK
    NO_LEDGER = pb.ENOLEDGER
    NO_ENTRY = pb.ENOENTRY
    BAD_REQUEST = pb.EBADREQ
    IO_ERROR = pb.EIO
    UNAUTHORIZED = pb.EUA
    BAD_VERSION = pb.EBADVERSION
    FENCED = pb.EFENCED
    READ_ONLY = pb.EREADONLY
    TOO_MANY_REQUESTS = pb.ETOOMANYREQUESTS
    UNKNOWN_LEDGER_STATE = pb.EUNKNOWNLEDGERSTATE
    TIMED_OUT = -1
    UNREACHABLE = -2
    """There is no connection, or it was lost before the answer came."""
    TOO_SLOW = -3
    """So much waits to be sent to the bookie that nothing is added."""
    DAMAGED = -4
    """An answer came, and what it carries is not what was written."""

    @property
    def says_absent(self) -> bool:
        """Whether the bookie vouches that it does not have the entry."""
        return self in (Status.NO_ENTRY, Status.NO_LEDGER)


class Request(NamedTuple):
    """A request, with its number or without one."""

    operation: int
    head: bytes
    """The operation's field, up to where `body` begins; empty if `start` has it."""
    body: Buffer = b""
    """Not copied, so it must not change until the request was answered."""
    priority: int = 0
    digits: bytes = b""
    """The number as it travels, by which the answer is known; empty if it has none yet."""
    start: bytes = b""
    """All of the frame before `body`, if it has a number."""


def varint(number: int) -> bytes:
    """A number from 0 on as protobuf writes it."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x200000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    if number < 0x10000000:
        third = number >> 14 & 0x7F | 0x80
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, third, number >> 21))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


class AddRequests:
    """Makes the requests that store entries of one ledger.

    What surrounds the two numbers of a request depends on their lengths and on that of the packet,
    which are mostly those of the request before.
    """

    __slots__ = ("_after_entry", "_before_entry", "_numbers", "_parts", "_priority", "_shape")

    def __init__(
        self,
        ledger_id: int,
        master_key: bytes,
        numbers: Iterator[int],
        *,
        recovery: bool = False,
    ) -> None:
        """`numbers` are those of the requests: even ones, and of the whole store."""
        self._numbers = numbers
        self._before_entry = b"\x08%b\x10" % varint(ledger_id)
        self._after_entry = b"%b\x1a%b%b\x22" % (
            _RECOVERY_ADD if recovery else b"",
            varint(len(master_key)),
            master_key,
        )
        self._priority = RECOVERY_PRIORITY if recovery else 0
        self._shape = (-1, -1, -1)
        self._parts = (b"", b"", b"")

    def add(self, entry_id: int, packet_start: bytes, payload: Buffer) -> Request:
        """Store an entry: a packet of a header with its digest, and the payload."""
        entry = varint(entry_id)
        digits = varint(next(self._numbers))
        shape = (len(digits), len(entry), len(packet_start) + len(payload))
        if shape != self._shape:
            self._shape, self._parts = shape, self._surroundings(*shape)
        before, between, behind = self._parts
        if len(payload) <= _JOINED_BYTES_MAX:
            start = b"".join((before, digits, between, entry, behind, packet_start, payload))
            return Request(_ADD, b"", b"", self._priority, digits, start)
        start = b"".join((before, digits, between, entry, behind, packet_start))
        return Request(_ADD, b"", payload, self._priority, digits, start)

    def _surroundings(
        self, number_bytes: int, entry_bytes: int, body_bytes: int
    ) -> tuple[bytes, bytes, bytes]:
        """What is before the request's number, between that and the entry's, and behind both."""
        behind = self._after_entry + varint(body_bytes)
        field_bytes = len(self._before_entry) + entry_bytes + len(behind) + body_bytes
        between = b"\xaa\x06" + varint(field_bytes) + self._before_entry
        header = _header_start(_ADD, self._priority, number_bytes)
        rest_bytes = len(between) - len(self._before_entry) + field_bytes
        before = _pack_length(len(header) + number_bytes + rest_bytes) + header
        return before, between, behind


def read(ledger_id: int, entry_id: int, *, fence_key: bytes | None = None) -> Request:
    """Ask for an entry, or with -1 for the last one; with a key, fence the ledger by it."""
    message = pb.ReadRequest(ledger_id=ledger_id, entry_id=entry_id)
    if fence_key is not None:
        message.flag = pb.ReadRequest.FENCE_LEDGER
        message.master_key = fence_key
    priority = 0 if fence_key is None else RECOVERY_PRIORITY
    return Request(Operation.READ, _field(100, message.SerializeToString()), b"", priority)


def write_lac(ledger_id: int, lac: int, master_key: bytes, packet: bytes) -> Request:
    """Tell the last confirmed entry."""
    message = pb.WriteLacRequest(ledger_id=ledger_id, lac=lac, master_key=master_key, body=packet)
    return Request(Operation.WRITE_LAC, _field(103, message.SerializeToString()))


def read_lac(ledger_id: int) -> Request:
    """Ask for the last confirmed entry that was told, and the last entry."""
    message = pb.ReadLacRequest(ledger_id=ledger_id)
    return Request(Operation.READ_LAC, _field(104, message.SerializeToString()))


def authenticate(plugin_name: str, payload: bytes) -> Request:
    """Say who we are, before anything else."""
    message = pb.AuthMessage(plugin_name=plugin_name, payload=payload)
    return Request(Operation.AUTH, _field(102, message.SerializeToString()))


def start_tls() -> Request:
    """Ask to go on in TLS."""
    return Request(Operation.START_TLS, _field(106, b""))


def _header_start(operation: int, priority: int, number_bytes: int) -> bytes:
    """A header up to the number of its request, with which it ends."""
    content = b"\x08\x03\x10%c" % operation
    if priority:
        content += b"\x20" + varint(priority)
    content += b"\x18"
    return b"\x0a%c%b" % (len(content) + number_bytes, content)


_header_start_of = lru_cache(maxsize=256)(_header_start)


def frame_start(request: Request, digits: bytes) -> bytes:
    """What a frame has before the request's `body`, with a number of the connection's choice."""
    operation, head, body, priority, _, start = request
    if start:
        head = start[LENGTH_BYTES + 2 + start[LENGTH_BYTES + 1] :]
    header = _header_start_of(operation, priority, len(digits))
    length = len(header) + len(digits) + len(head) + len(body)
    return b"".join((_pack_length(length), header, digits, head))


def frame_end(data: Buffer, at: int, bytes_max: int) -> int:
    """Where the frame that begins at a place ends, at least; it may be behind the end of the data.

    Raises:
        FrameTooLarge: if the frame says that it is longer than `bytes_max`.
    """
    if len(data) - at < LENGTH_BYTES:
        return at + LENGTH_BYTES
    (length,) = _unpack_length(data, at)
    if length > bytes_max:
        raise FrameTooLarge(
            f"a bookie announces an answer of {length} bytes, at most {bytes_max} are read"
        )
    return at + LENGTH_BYTES + int(length)


def parse_response(message: bytes) -> pb.Response:
    """Read an answer.

    Raises:
        ProtocolError: if it is none.
    """
    try:
        return pb.Response.FromString(message)
    except DecodeError as error:
        raise ProtocolError(f"a bookie sent what is no answer: {error}") from None


def parse_request(message: bytes) -> pb.Request:
    """Read a request, as a bookie does.

    Raises:
        ProtocolError: if it is none.
    """
    try:
        return pb.Request.FromString(message)
    except DecodeError as error:
        raise ProtocolError(f"what a client sent is no request: {error}") from None


def frame(message: pb.Request | pb.Response) -> bytes:
    """A whole message as it travels."""
    content = message.SerializeToString()
    return _LENGTH.pack(len(content)) + content


_PARTS: Final = {
    int(pb.ADD_ENTRY): "add",
    int(pb.READ_ENTRY): "read",
    int(pb.WRITE_LAC): "write_lac",
    int(pb.READ_LAC): "read_lac",
}
_KNOWN: Final = {int(status): status for status in Status}


def status_of(response: pb.Response) -> Status:
    """How the request went: what is said of the operation counts if the whole went well.

    A status that this build does not know is as good as none, and none is a failure.
    """
    if not response.HasField("status"):
        return Status.IO_ERROR
    number = response.status
    if number == pb.EOK and (part := _PARTS.get(response.header.operation)) is not None:
        answer = getattr(response, part)
        number = answer.status if answer.HasField("status") else pb.EIO
    return _KNOWN.get(number, Status.IO_ERROR)
