"""What ZooKeeper answers: the shapes of replies, and its error codes. Pure."""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from anabranch.errors import AnabranchError, ProtocolError
from anabranch.metadata.zookeeper.jute import Reader

_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_HEADER: Final = struct.Struct(">iqi")
_PART: Final = struct.Struct(">ibi")
_EVENT: Final = struct.Struct(">ii")
CONTAINER_OWNER: Final = -(2**63)
TTL_OWNER_MASK: Final = 0xFF << 56
"""The owner of a node that lives for some time has all of these bits."""
_INT: Final = struct.Struct(">i")
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


class Header(NamedTuple):
    """In front of every reply."""

    xid: int
    zxid: int
    error: int


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


def read_header(reader: Reader) -> Header:
    """The header of a reply."""
    xid, zxid, error = reader.numbers(_HEADER)
    return Header(xid, zxid, error)


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
    kind, state = reader.numbers(_EVENT)
    path = reader.text()
    reader.end()
    return Change(kind, state, path, zxid)


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


Part = None | str | tuple[str, ZStat] | ZStat | tuple[bytes, ZStat] | list[str] | Refusal
"""The answer to one operation among several of one request."""


def read_parts(reader: Reader) -> list[Part]:
    """Of multi and multiRead: one answer per operation, or why it was refused."""
    found: list[Part] = []
    data, at = reader.data, reader.at
    try:
        while True:
            kind, done, _ = _PART.unpack_from(data, at)
            at += _PART.size
            if done:
                reader.at = at
                return found
            if kind == _GET_DATA:
                # By hand, since whole trees are read this way.
                (length,) = _INT.unpack_from(data, at)
                start = at + _INT.size
                at = start if length == -1 else start + length
                if at < start:
                    raise ProtocolError(f"a reply has a value of {length} bytes")
                value = data[start:at]
                found.append((value, ZStat._make(_STAT.unpack_from(data, at))))
                at += _STAT.size
            else:
                reader.at = at
                found.append(_read_part(kind, reader))
                at = reader.at
    except struct.error:
        raise ProtocolError(f"a reply ends at byte {len(data)}, within numbers") from None


def _read_part(kind: int, reader: Reader) -> Part:
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
    if isinstance(part, tuple) and isinstance(part[0], bytes):
        return part[0], part[1]
    raise ProtocolError("a value was asked for, the answer is something else")
