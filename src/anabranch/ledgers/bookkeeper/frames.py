"""Requests to a bookie and its answers, as the bytes of the protocol's version 3. Pure.

frame   := length u32 | message
message := header field | one field of the operation

A request is made once, as what follows the header, and is sent to several bookies: only the header
with the number of the request differs between them. Adds are encoded by hand, since they are most
of the traffic and their payload would be copied twice otherwise.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from anabranch.errors import FrameTooLarge, ProtocolError
from anabranch.generated import bookkeeper_protocol_pb2 as pb
from anabranch.runtime.network import Buffer

_LENGTH: Final = struct.Struct(">I")
LENGTH_BYTES: Final = _LENGTH.size
RECOVERY_PRIORITY: Final = 100
ADD_OVERHEAD_BYTES_MAX: Final = 192
"""What an add has around its payload at most: headers, ids, key, and the longest digest."""
_RECOVERY_ADD: Final = b"\xa0\x06\x01"
_HEADER_TAG: Final = 0x0A
_ADD_HEADER: Final = b"\x08\x03\x10\x02\x18"
_STORED: Final = b"\x10\x00\xaa\x06"
_ADD_STATUS_OK: Final = b"\x08\x00"
_STORED_BYTES_MIN: Final = 2 + len(_ADD_HEADER) + 1 + len(_STORED) + 1 + len(_ADD_STATUS_OK)


class Operation(IntEnum):
    """What is asked, with BookKeeper's numbers."""

    READ = pb.READ_ENTRY
    ADD = pb.ADD_ENTRY
    AUTH = pb.AUTH
    WRITE_LAC = pb.WRITE_LAC
    READ_LAC = pb.READ_LAC
    START_TLS = pb.START_TLS


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
    """All of a request but its number."""

    operation: int
    head: bytes
    """The operation's field, up to where `body` begins."""
    body: Buffer = b""
    """Not copied, so it must not change until the request was answered."""
    priority: int = 0


def varint(number: int) -> bytes:
    """A number from 0 on as protobuf writes it."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x200000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_size = lru_cache(maxsize=4096)(varint)
"""For numbers that come again and again."""


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


class AddRequests:
    """Makes the requests that store entries of one ledger."""

    __slots__ = ("_after_entry", "_before_entry", "_fixed_bytes", "_priority")

    def __init__(self, ledger_id: int, master_key: bytes, *, recovery: bool = False) -> None:
        self._before_entry = b"\x08%b\x10" % varint(ledger_id)
        self._after_entry = b"%b\x1a%b%b\x22" % (
            _RECOVERY_ADD if recovery else b"",
            varint(len(master_key)),
            master_key,
        )
        self._fixed_bytes = len(self._before_entry) + len(self._after_entry)
        self._priority = RECOVERY_PRIORITY if recovery else 0

    def add(self, entry_id: int, packet_start: bytes, payload: Buffer) -> Request:
        """Store an entry: a packet of a header with its digest, and the payload."""
        entry = varint(entry_id)
        body_bytes = len(packet_start) + len(payload)
        body_size = _size(body_bytes)
        head = b"".join(
            (
                b"\xaa\x06",
                _size(self._fixed_bytes + len(entry) + len(body_size) + body_bytes),
                self._before_entry,
                entry,
                self._after_entry,
                body_size,
                packet_start,
            )
        )
        return Request(Operation.ADD, head, payload, self._priority)


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


def frame_start(request: Request, number: int) -> bytes:
    """What a frame has before the request's `body`."""
    operation, head, body, priority = request
    digits = varint(number)
    start = _header_start_of(operation, priority, len(digits))
    length = len(start) + len(digits) + len(head) + len(body)
    return b"".join((_LENGTH.pack(length), start, digits, head))


def cut_frames(data: bytes, bytes_max: int) -> tuple[list[bytes], int]:
    """The whole messages at the beginning of some bytes, and where they end.

    Raises:
        FrameTooLarge: if a frame says that it is longer than `bytes_max`.
    """
    at, end = 0, len(data)
    found: list[bytes] = []
    while end - at >= LENGTH_BYTES:
        (length,) = _LENGTH.unpack_from(data, at)
        if length > bytes_max:
            raise FrameTooLarge(
                f"a bookie announces an answer of {length} bytes, at most {bytes_max} are read"
            )
        start = at + LENGTH_BYTES
        if end - start < length:
            break
        at = start + length
        found.append(data[start:at])
    return found, at


def stored_number(message: bytes) -> int:
    """The number of the request, if this is the usual answer to an add that went well; else 0.

    Spares `parse_response` for most of the traffic. Written as every bookie writes it: header,
    status, then the part about the add, whose own status comes first.
    """
    if len(message) < _STORED_BYTES_MIN or message[2:7] != _ADD_HEADER or message[0] != _HEADER_TAG:
        return 0
    end = 2 + message[1]
    byte = 0x80
    if message[end : end + 4] != _STORED or message[end + 5 : end + 7] != _ADD_STATUS_OK:
        return 0
    number = shift = 0
    at = 2 + len(_ADD_HEADER)
    while at < end:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return number if at == end and byte < 0x80 else 0


def frame_bytes(start: Buffer) -> int:
    """How many bytes the frame has that begins so, as far as that can be told yet."""
    if len(start) < LENGTH_BYTES:
        return LENGTH_BYTES
    (length,) = _LENGTH.unpack_from(start)
    return LENGTH_BYTES + int(length)


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
