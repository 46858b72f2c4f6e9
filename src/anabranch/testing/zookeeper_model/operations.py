"""What clients ask of the modelled ZooKeeper, as bytes and as values. Pure."""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from anabranch.metadata.zookeeper import jute
from anabranch.metadata.zookeeper.jute import Reader
from anabranch.metadata.zookeeper.replies import Acl, ZStat
from anabranch.metadata.zookeeper.requests import Flag, Op, WatchMode, acls

_PART: Final = struct.Struct(">ibi")
_HEADER: Final = struct.Struct(">iqi")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_PARTS_END: Final = _PART.pack(-1, 1, -1)
_REFUSED_PART: Final = -1


class Hello(NamedTuple):
    """The first frame of a connection."""

    zxid_seen: int
    timeout_ms: int
    session: int
    password: bytes


class Create(NamedTuple):
    """Make a node."""

    path: str
    value: bytes
    acl: tuple[Acl, ...]
    flag: int
    code: int = Op.CREATE2


class Delete(NamedTuple):
    """Remove a node."""

    path: str
    version: int


class SetData(NamedTuple):
    """Write a value."""

    path: str
    value: bytes
    version: int


class SetAcl(NamedTuple):
    """Replace access rights."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class Check(NamedTuple):
    """Compare a version."""

    path: str
    version: int


class Multi(NamedTuple):
    """All or nothing."""

    parts: "tuple[Operation, ...]"


class OpenSession(NamedTuple):
    """Begin a session."""

    timeout_ms: int


class CloseSession(NamedTuple):
    """End a session, by its client or since nobody heard of that."""


class Refuse(NamedTuple):
    """A write that was refused before it was looked at; it takes its place in history."""

    code: int


Operation = Create | Delete | SetData | SetAcl | Check | Multi | OpenSession | CloseSession | Refuse
"""What goes through the quorum."""


class Read(NamedTuple):
    """What any server answers by itself."""

    code: int
    path: str


class MultiRead(NamedTuple):
    """Several reads."""

    parts: tuple[Read, ...]


class SetWatches(NamedTuple):
    """Put watches of an earlier connection in place."""

    recursive: tuple[str, ...]


class Identify(NamedTuple):
    """Say who one is; here everybody is believed."""


class Sync(NamedTuple):
    """Be told after all that has been decided until now."""

    path: str


Asked = Operation | Read | MultiRead | SetWatches | Identify | Sync


def read_hello(frame: bytes) -> Hello:
    """The first frame."""
    reader = Reader(frame)
    reader.integer()
    found = Hello(reader.long(), reader.integer(), reader.long(), reader.buffer())
    reader.boolean()
    reader.end()
    return found


def read_request(frame: bytes) -> tuple[int, Asked]:
    """The number of a request, and what it asks for."""
    reader = Reader(frame)
    xid, code = reader.integer(), reader.integer()
    asked = _READERS[Op(code)](reader)
    reader.end()
    return xid, asked


def _acls(reader: Reader) -> tuple[Acl, ...]:
    count = reader.count(smallest_bytes=12)
    return tuple(Acl(reader.integer(), reader.text(), reader.text()) for _ in range(count))


def _create(code: Op) -> Callable[[Reader], Create]:
    def read(reader: Reader) -> Create:
        path, value, acl = reader.text(), reader.buffer(), _acls(reader)
        flag = Flag(reader.integer())
        if code is Op.CREATE_TTL:
            reader.long()
        return Create(path, value, acl, flag, code)

    return read


def _read(code: Op) -> Callable[[Reader], Read]:
    def read(reader: Reader) -> Read:
        path = reader.text()
        if code is not Op.GET_ACL and reader.boolean():
            raise NotImplementedError("watches that tell once are not modelled")
        return Read(code, path)

    return read


def _parts(reader: Reader) -> list[Asked]:
    found: list[Asked] = []
    while True:
        code, done, _ = reader.numbers(_PART)
        if done:
            return found
        found.append(_READERS[Op(code)](reader))


def _set_watches(reader: Reader) -> SetWatches:
    reader.long()
    # Those that tell once of values, nodes and children; those that stay; those of whole trees.
    *others, recursive = (reader.texts() for _ in range(5))
    if any(others):
        raise NotImplementedError("only watches of whole trees are modelled")
    return SetWatches(tuple(recursive))


def _add_watch(reader: Reader) -> Read:
    path = reader.text()
    if reader.integer() != WatchMode.RECURSIVE:
        raise NotImplementedError("only watches of whole trees are modelled")
    return Read(Op.ADD_WATCH, path)


def _remove_watch(reader: Reader) -> Read:
    path = reader.text()
    reader.integer()
    return Read(Op.REMOVE_WATCHES, path)


def _identity(reader: Reader) -> Identify:
    reader.integer(), reader.text(), reader.buffer()
    return Identify()


_READERS: Final[dict[Op, Callable[[Reader], Asked]]] = {
    Op.CREATE: _create(Op.CREATE),
    Op.CREATE2: _create(Op.CREATE2),
    Op.CREATE_CONTAINER: _create(Op.CREATE_CONTAINER),
    Op.CREATE_TTL: _create(Op.CREATE_TTL),
    Op.DELETE: lambda reader: Delete(reader.text(), reader.integer()),
    Op.SET_DATA: lambda reader: SetData(reader.text(), reader.buffer(), reader.integer()),
    Op.SET_ACL: lambda reader: SetAcl(reader.text(), _acls(reader), reader.integer()),
    Op.CHECK: lambda reader: Check(reader.text(), reader.integer()),
    Op.MULTI: lambda reader: Multi(tuple(_parts(reader))),  # type: ignore[arg-type]
    Op.CLOSE: lambda reader: CloseSession(),
    Op.EXISTS: _read(Op.EXISTS),
    Op.GET_DATA: _read(Op.GET_DATA),
    Op.GET_ACL: _read(Op.GET_ACL),
    Op.GET_CHILDREN: _read(Op.GET_CHILDREN),
    Op.GET_CHILDREN2: _read(Op.GET_CHILDREN2),
    Op.MULTI_READ: lambda reader: MultiRead(tuple(_parts(reader))),  # type: ignore[arg-type]
    Op.SYNC: lambda reader: Sync(reader.text()),
    Op.AUTH: _identity,
    Op.SET_WATCHES2: _set_watches,
    Op.ADD_WATCH: _add_watch,
    Op.REMOVE_WATCHES: _remove_watch,
    Op.WHO_AM_I: lambda reader: Read(Op.WHO_AM_I, "/"),
}


# --- answers ----------------------------------------------------------------------------------


def frame(content: bytes) -> bytes:
    """Bytes behind their length."""
    return jute.integer(len(content)) + content


def reply(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """One answer."""
    return frame(_HEADER.pack(xid, zxid, code) + body)


def change(zxid: int, kind: int, path: str) -> bytes:
    """What a watch tells."""
    connected = 3
    body = jute.integer(kind) + jute.integer(connected) + jute.text(path)
    return reply(-1, zxid, 0, body)


def welcome(timeout_ms: int, session: int, password: bytes) -> bytes:
    """The answer to a hello."""
    fixed = jute.integer(0) + jute.integer(timeout_ms) + jute.long(session)
    return frame(fixed + jute.buffer(password) + jute.boolean(False))


def written(asked: Asked, result: object) -> bytes:
    """The content of an answer to a write that was carried out."""
    match asked, result:
        case Create(), (str(path), ZStat() as stat):
            return jute.text(path) + (b"" if asked.code == Op.CREATE else _STAT.pack(*stat))
        case Multi(parts), list(results):
            pieces = [
                _part(_code_of(part), each, lambda part=part, each=each: written(part, each))  # type: ignore[misc]
                for part, each in zip(parts, results, strict=True)
            ]
            return b"".join(pieces) + _PARTS_END
        case _, ZStat():
            return _STAT.pack(*result)
    return b""


def _code_of(part: Operation) -> int:
    if isinstance(part, Create):
        return part.code
    return {Delete: Op.DELETE, SetData: Op.SET_DATA, Check: Op.CHECK}[type(part)]


def _part(code: int, result: object, content: Callable[[], bytes]) -> bytes:
    if isinstance(result, int):
        return _PART.pack(_REFUSED_PART, 0, result) + jute.integer(result)
    return _PART.pack(code, 0, 0) + content()


def several(parts: Sequence[Read], results: Sequence[bytes | int]) -> bytes:
    """The content of an answer to several reads."""
    pieces = [
        _part(part.code, result, lambda result=result: result)  # type: ignore[misc]
        for part, result in zip(parts, results, strict=True)
    ]
    return b"".join(pieces) + _PARTS_END


def packed(stat: ZStat) -> bytes:
    """A stat."""
    return _STAT.pack(*stat)


def encoded_acls(acl: Sequence[Acl]) -> bytes:
    """Access rights."""
    return acls(acl)
