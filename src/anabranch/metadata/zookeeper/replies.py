"""What ZooKeeper answers: the shapes of replies, and its error codes. Pure."""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from anabranch.errors import AnabranchError, ProtocolError
from anabranch.metadata.zookeeper.jute import Reader

_STAT: Final = struct.Struct(">qqqqiiiqiiq")
HEADER: Final = struct.Struct(">iqi")
"""In front of every reply: the request's number, the zxid the server is at, an error code."""
_PART: Final = struct.Struct(">ibi")
CONTAINER_OWNER: Final = -(2**63)
TTL_OWNER_MASK: Final = 0xFF << 56
"""The owner of a node that lives for some time has all of these bits."""
_PART_AND_LENGTH: Final = struct.Struct(">ibii")
"""Behind every part come more bytes than this: at least the end of all parts."""
_DONE_AT: Final = 4
_CHANGE: Final = struct.Struct(">iii")
_new_tuple: Final = tuple.__new__
# Kinds of parts: operation codes.
_REFUSED: Final = -1
_CREATE: Final = 1
_GET_DATA: Final = 4
_SET_DATA: Final = 5
_GET_CHILDREN: Final = 8
_ANSWER_NOTHING: Final = (2, 13)
_CREATES_WITH_STAT: Final = (15, 19, 21)


class Code(IntEnum):
    """Error codes that are told apart."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121
    QUOTA_EXCEEDED = -125


class Refusal(AnabranchError):
    """The server refused one operation. The store says what that means to its callers."""

    def __init__(self, code: int) -> None:
        try:
            name = Code(code).name.replace("_", " ").lower()
        except ValueError:
            name = "unknown"
        super().__init__(f"ZooKeeper refused: {name} ({code})")
        self.code = code


class ZStat(NamedTuple):
    """What ZooKeeper knows of a node besides its value."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    owner: int
    data_length: int
    num_children: int
    pzxid: int

    @property
    def ephemeral(self) -> bool:
        """Whether a session owns it: containers and nodes with a time to live have marks there."""
        owner = self.owner & (2**64 - 1)
        return self.owner not in (0, CONTAINER_OWNER) and owner & TTL_OWNER_MASK != TTL_OWNER_MASK

    @property
    def creates(self) -> int:
        """How many children were ever created: the number of the next sequential one."""
        # Twice the number, less the children, in 32 bits: from 2**30 on the sign bit is part of it.
        return ((self.cversion + self.num_children) & 0xFFFFFFFF) // 2


class Welcome(NamedTuple):
    """The answer to a request for a session."""

    timeout_ms: int
    session: int
    password: bytes


class Change(NamedTuple):
    """What a watch tells."""

    kind: int
    state: int
    path: str
    zxid: int


class Acl(NamedTuple):
    """Who may do what with a node."""

    permissions: int
    scheme: str
    identity: str


OPEN_ACL: Final = (Acl(31, "world", "anyone"),)
"""Everybody may do everything."""
_OPEN: Final = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
_OPEN_ANSWER_BYTES: Final = len(_OPEN) + _STAT.size


def read_welcome(data: bytes) -> Welcome:
    """The first reply on a connection."""
    reader = Reader(data)
    protocol = reader.integer()
    if protocol != 0:
        raise ProtocolError(f"a ZooKeeper server speaks version 0 of its protocol, not {protocol}")
    timeout_ms, session, password = reader.integer(), reader.long(), reader.buffer()
    if reader.left:  # servers before 3.4 do not say whether they take writes
        reader.boolean()
    reader.end()
    return Welcome(timeout_ms, session, password)


def read_change(reader: Reader, zxid: int) -> Change:
    """What a watch tells."""
    data, at = reader.data, reader.at
    kind, state, length = reader.numbers(_CHANGE)
    if length != len(data) - at - _CHANGE.size:
        raise ProtocolError(f"a change has a path of {length} bytes in {len(data) - at}")
    try:
        return Change(kind, state, data[at + _CHANGE.size :].decode(), zxid)
    except UnicodeDecodeError:
        raise ProtocolError(f"a change has a path that is none: {data[at:][:40]!r}") from None


def read_stat(reader: Reader) -> ZStat:
    """A stat."""
    return ZStat._make(reader.numbers(_STAT))


def read_nothing(reader: Reader) -> None:
    """Of an operation that answers nothing."""


def read_code(reader: Reader) -> None:
    """Of addWatch, which says twice whether it was refused."""
    if code := reader.integer():
        raise ProtocolError(f"a watch was refused with {code} in an answer without an error")


def read_token(reader: Reader) -> bytes:
    """Of a step of SASL."""
    return reader.buffer()


def read_path(reader: Reader) -> str:
    """Of create and sync."""
    return reader.text()


def read_created(reader: Reader) -> tuple[str, ZStat]:
    """Of every newer kind of create."""
    return reader.text(), read_stat(reader)


def read_data(reader: Reader) -> tuple[bytes, ZStat]:
    """Of getData."""
    return reader.buffer(), read_stat(reader)


def read_children(reader: Reader) -> tuple[list[str], ZStat]:
    """Of getChildren2."""
    return reader.texts(), read_stat(reader)


def read_acls(reader: Reader) -> tuple[tuple[Acl, ...], ZStat]:
    """Of getACL."""
    acls = tuple(
        Acl(reader.integer(), reader.text(), reader.text())
        for _ in range(reader.count(smallest_bytes=12))
    )
    return acls, read_stat(reader)


def read_identities(reader: Reader) -> list[tuple[str, str]]:
    """Of whoAmI: schemes, each with a name, which is not for logs."""
    return [(reader.text(), reader.text()) for _ in range(reader.count(smallest_bytes=8))]


def read_rights(reader: Reader) -> tuple[tuple[Acl, ...], ZStat]:
    """Of getACL, as `read_acls`; for whole trees."""
    at, data = reader.at, reader.data
    if len(data) - at == _OPEN_ANSWER_BYTES and data.startswith(_OPEN, at):
        # Nearly every node is open to all.
        reader.at = len(data)
        return OPEN_ACL, _new_tuple(ZStat, _STAT.unpack_from(data, at + len(_OPEN)))
    return read_acls(reader)


Part = None | str | tuple[str, ZStat] | ZStat | tuple[bytes, ZStat] | list[str] | Refusal
"""The answer to one operation among several of one request."""


def read_parts(reader: Reader) -> list[Part]:
    """Of multi and multiRead: one answer per operation, or why it was refused."""
    found: list[Part] = []
    data = reader.data
    try:
        while not data[reader.at + _DONE_AT]:
            kind, _, _ = _PART.unpack_from(data, reader.at)
            reader.at += _PART.size
            found.append(_read_part(kind, reader))
        _PART.unpack_from(data, reader.at)
    except (struct.error, IndexError):
        raise ProtocolError(f"a reply ends at byte {len(data)}, within numbers") from None
    reader.at += _PART.size
    return found


def read_done(reader: Reader) -> list[Part]:
    """Of a multi of which only a refusal is of interest: nothing if all was carried out."""
    data, at = reader.data, reader.at
    if len(data) - at < 2 * _PART.size or _PART.unpack_from(data, at)[0] == _REFUSED:
        return read_parts(reader)
    # One that is refused is refused as a whole.
    reader.at = len(data)
    return []


def read_values(reader: Reader) -> list[tuple[bytes, ZStat] | Refusal]:
    """Of a multiRead of values alone, for whole trees: by hand, and nothing else is understood."""
    found: list[tuple[bytes, ZStat] | Refusal] = []
    data, at = reader.data, reader.at
    add, part, stat, new = found.append, _PART_AND_LENGTH.unpack_from, _STAT.unpack_from, _new_tuple
    try:
        while not data[at + _DONE_AT]:
            kind, _, _, length = part(data, at)
            start = at + _PART_AND_LENGTH.size
            if kind == _GET_DATA:
                at = start if length == -1 else start + length
                if at < start:
                    raise ProtocolError(f"a reply has a value of {length} bytes")
                add((data[start:at], new(ZStat, stat(data, at))))
                at += _STAT.size
            elif kind == _REFUSED:
                add(Refusal(length))
                at = start
            else:
                raise ProtocolError(f"a value was asked for, the answer is of kind {kind}")
        _PART.unpack_from(data, at)
    except (struct.error, IndexError):
        raise ProtocolError(f"a reply ends at byte {len(data)}, within numbers") from None
    reader.at = at + _PART.size
    return found


def _read_part(kind: int, reader: Reader) -> Part:
    if kind == _GET_DATA:
        return read_data(reader)
    if kind == _GET_CHILDREN:
        return reader.texts()
    if kind == _REFUSED:
        return Refusal(reader.integer())
    if kind == _CREATE:
        return reader.text()
    if kind in _CREATES_WITH_STAT:
        return read_created(reader)
    if kind == _SET_DATA:
        return read_stat(reader)
    if kind in _ANSWER_NOTHING:
        return None
    raise ProtocolError(f"an answer to an operation of unknown kind {kind}")


def data_of(part: Part) -> tuple[bytes, ZStat]:
    """A part that answers a getData.

    Raises:
        ProtocolError: if it answers something else.
    """
    if type(part) is tuple and type(part[0]) is bytes:
        return part
    raise ProtocolError("a value was asked for, the answer is something else")
