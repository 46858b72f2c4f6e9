"""ZooKeeper's operations as bytes, each with how its answer is read. Pure."""

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from anabranch.errors import ProtocolError
from anabranch.metadata.zookeeper import jute, replies
from anabranch.metadata.zookeeper.replies import OPEN_ACL, Acl, Part, Refusal, ZStat

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Value = tuple[bytes, ZStat]
Rights = tuple[tuple[Acl, ...], ZStat]
_PART: Final = struct.Struct(">ibi")
_HELLO: Final = struct.Struct(">iqiq")
_READ_PART: Final = struct.Struct(">ibii")
_LENGTH: Final = struct.Struct(">i")
_PARTS_END: Final = _PART.pack(-1, 1, -1)
ANY_VERSION: Final = -1
_ANY_WATCH: Final = 3
WATCH_XID: Final = -1
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8
EVERYTHING: Final = 31
CREATOR_ACL: Final = (Acl(EVERYTHING, "auth", ""),)
"""For those alone who have one of the identities of whoever makes the node."""


class Op(IntEnum):
    """Operation codes."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SASL = 102
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE = -11


class Flag(IntEnum):
    """Kinds of nodes."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    TTL = 5
    TTL_SEQUENTIAL = 6


class WatchMode(IntEnum):
    """What a watch that stays is told of."""

    PERSISTENT = 0
    RECURSIVE = 1


class WatchKind(IntEnum):
    """What a watch tells."""

    SESSION = -1
    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4


class Request(NamedTuple, Generic[T_co]):
    """One operation."""

    code: int
    body: bytes
    read: Callable[[jute.Reader], T_co]
    writes: bool = False
    """Whether it may have taken effect if its answer is lost."""
    bundle: Sequence[bytes] = ()
    """Bodies of many reads of this kind instead of one: all answers come together, in a list, and
    a `Refusal` in the place of one that was refused."""


def hello(zxid_seen: int, timeout_ms: int, session: int, password: bytes) -> bytes:
    """The first bytes on a connection: begin a session, or go on with one."""
    fixed = _HELLO.pack(0, zxid_seen, timeout_ms, session)
    return fixed + jute.buffer(password or bytes(16)) + jute.boolean(False)


def acls(entries: Sequence[Acl]) -> bytes:
    """Access rights."""
    encoded = [
        jute.integer(entry.permissions) + jute.text(entry.scheme) + jute.text(entry.identity)
        for entry in entries
    ]
    return jute.integer(len(encoded)) + b"".join(encoded)


_OPEN: Final = acls(OPEN_ACL)


def create(
    path: str,
    value: bytes,
    flag: Flag = Flag.PERSISTENT,
    acl: Sequence[Acl] = OPEN_ACL,
    ttl_ms: int | None = None,
) -> Request[tuple[str, ZStat]]:
    """Make a node; the answer has its path, which differs for a sequential one, and its stat."""
    body = b"".join(
        (
            jute.text(path),
            jute.buffer(value),
            _OPEN if acl is OPEN_ACL else acls(acl),
            jute.integer(flag),
        )
    )
    if flag in (Flag.TTL, Flag.TTL_SEQUENTIAL):
        assert ttl_ms is not None
        return Request(Op.CREATE_TTL, body + jute.long(ttl_ms), replies.read_created, True)
    code = Op.CREATE_CONTAINER if flag == Flag.CONTAINER else Op.CREATE2
    return Request(code, body, replies.read_created, True)


def creating(prefix: str, acl: Sequence[Acl]) -> Callable[[str, bytes], Request[object]]:
    """As `create` of nodes that last and are below a path, for whole trees of them."""
    tail, length = acls(acl) + jute.integer(Flag.PERSISTENT), _LENGTH.pack
    code, read = int(Op.CREATE2), replies.read_created

    def make(path: str, value: bytes) -> Request[object]:
        name = (prefix + path).encode()
        body = b"%b%b%b%b%b" % (length(len(name)), name, length(len(value)), value, tail)
        return Request(code, body, read, True)

    return make


def delete(path: str, version: int = ANY_VERSION) -> Request[None]:
    """Remove a node."""
    return Request(Op.DELETE, jute.text(path) + jute.integer(version), replies.read_nothing, True)


def set_data(path: str, value: bytes, version: int = ANY_VERSION) -> Request[ZStat]:
    """Write a value."""
    body = jute.text(path) + jute.buffer(value) + jute.integer(version)
    return Request(Op.SET_DATA, body, replies.read_stat, True)


def check(path: str, version: int) -> Request[None]:
    """Only as a part of a multi: all of it fails unless the node has this version."""
    return Request(Op.CHECK, jute.text(path) + jute.integer(version), replies.read_nothing)


def exists(path: str) -> Request[ZStat]:
    """The stat of a node."""
    return Request(Op.EXISTS, jute.text(path) + b"\x00", replies.read_stat)


def get_data(path: str) -> Request[tuple[bytes, ZStat]]:
    """Value and stat of a node."""
    return Request(Op.GET_DATA, jute.text(path) + b"\x00", replies.read_data)


def get_children2(path: str) -> Request[tuple[list[str], ZStat]]:
    """Names below a node, and its stat."""
    return Request(Op.GET_CHILDREN2, jute.text(path) + b"\x00", replies.read_children)


def get_acl(path: str) -> Request[tuple[tuple[Acl, ...], ZStat]]:
    """Access rights of a node, and its stat."""
    return Request(Op.GET_ACL, jute.text(path), replies.read_acls)


def get_acls(paths: Sequence[str]) -> Request[list[Rights | Refusal]]:
    """Access rights and stats of many nodes, which nobody can ask for with one request."""
    bodies = [_LENGTH.pack(len(name)) + name for name in map(str.encode, paths)]
    # The type is that of all answers, `read` makes one.
    return Request(Op.GET_ACL, b"", replies.read_rights, False, bodies)  # type: ignore[arg-type]


def set_acl(path: str, acl: Sequence[Acl], version: int = ANY_VERSION) -> Request[ZStat]:
    """Replace the access rights of a node."""
    body = jute.text(path) + acls(acl) + jute.integer(version)
    return Request(Op.SET_ACL, body, replies.read_stat, True)


def sync(path: str) -> Request[str]:
    """Let this server catch up with its leader."""
    return Request(Op.SYNC, jute.text(path), replies.read_path)


def add_watch(path: str, mode: WatchMode) -> Request[None]:
    """Be told of changes at, or at and below, a path for as long as the connection lasts."""
    return Request(Op.ADD_WATCH, jute.text(path) + jute.integer(mode), replies.read_code)


def remove_watches(path: str) -> Request[None]:
    """Be told no more, by any kind of watch on exactly this path."""
    body = jute.text(path) + jute.integer(_ANY_WATCH)
    return Request(Op.REMOVE_WATCHES, body, replies.read_nothing)


def set_watches(zxid_seen: int, persistent: Sequence[str], recursive: Sequence[str]) -> bytes:
    """The body that puts watches on a new connection."""
    nobody = jute.texts(())
    return b"".join(
        (jute.long(zxid_seen), nobody * 3, jute.texts(persistent), jute.texts(recursive))
    )


def auth(scheme: str, credentials: bytes) -> bytes:
    """The body that adds an identity to a connection."""
    return jute.integer(0) + jute.text(scheme) + jute.buffer(credentials)


def who_am_i() -> Request[list[tuple[str, str]]]:
    """The identities that a connection has."""
    return Request(Op.WHO_AM_I, b"", replies.read_identities)


def sasl(token: bytes) -> Request[bytes]:
    """A step of SASL."""
    return Request(Op.SASL, jute.buffer(token), replies.read_token)


def close() -> Request[None]:
    """End the session."""
    return Request(Op.CLOSE, b"", replies.read_nothing)


def _parts(operations: Sequence[Request[object]]) -> bytes:
    pieces: list[bytes] = []
    for operation in operations:
        pieces.append(_PART.pack(operation.code, 0, -1))
        pieces.append(operation.body)
    pieces.append(_PARTS_END)
    return b"".join(pieces)


def _counted(
    read: Callable[[jute.Reader], list[T]], count: int
) -> Callable[[jute.Reader], list[T]]:
    """Read as many answers as there were questions: they are told apart by their order alone."""

    def counted(reader: jute.Reader) -> list[T]:
        found = read(reader)
        if len(found) != count:
            raise ProtocolError(f"{count} operations have {len(found)} answers")
        return found

    return counted


def multi(operations: Sequence[Request[object]]) -> Request[list[Part]]:
    """Carry out all operations in one moment, or none."""
    read = _counted(replies.read_parts, len(operations))
    return Request(Op.MULTI, _parts(operations), read, True)


def multi_done(operations: Sequence[Request[object]]) -> Request[list[Part]]:
    """As `multi`, but the answer is empty if all was carried out."""
    return Request(Op.MULTI, _parts(operations), replies.read_done, True)


def value_parts(paths: Iterable[str]) -> list[bytes]:
    """A getData of each path, as parts of a multiRead."""
    head, code = _READ_PART.pack, int(Op.GET_DATA)
    return [head(code, 0, -1, len(name)) + name + b"\x00" for name in map(str.encode, paths)]


def read_part(path: str, *, children: bool = False) -> bytes:
    """A getData, or a getChildren, as a part of a multiRead."""
    name = path.encode()
    return (
        _READ_PART.pack(Op.GET_CHILDREN if children else Op.GET_DATA, 0, -1, len(name))
        + name
        + b"\x00"
    )


def multi_read(parts: Sequence[bytes]) -> Request[list[Part]]:
    """Several reads made by `read_part` with one request; each has its own answer."""
    read = _counted(replies.read_parts, len(parts))
    return Request(Op.MULTI_READ, b"".join(parts) + _PARTS_END, read)


def get_values(parts: Sequence[bytes]) -> Request[list[Value | Refusal]]:
    """Several values, as parts made by `value_parts`, with one request."""
    read = _counted(replies.read_values, len(parts))
    return Request(Op.MULTI_READ, b"".join(parts) + _PARTS_END, read)
