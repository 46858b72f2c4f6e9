"""A ZooKeeper in this process that a test can interrupt at any request: one server, no disk.

It knows nodes, versions, births and sessions, as far as the store asks for them, and is a
`Network` whose only peer is itself.
"""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.metadata.zookeeper import jute
from anabranch.metadata.zookeeper.jute import Reader
from anabranch.metadata.zookeeper.replies import Code
from anabranch.metadata.zookeeper.requests import Flag, Op
from anabranch.runtime import Runtime
from anabranch.runtime.network import ConnectionHandler, Tls
from anabranch.runtime.real import real_runtime

URL = "zk:here:2181"
_LENGTH = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")
_PART = struct.Struct(">ibi")
_READS = (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN2)


@dataclass
class Znode:
    """What the server has at a path."""

    value: bytes
    czxid: int
    mzxid: int
    owner: int = 0
    version: int = 0
    creates: int = 0
    acl: tuple[tuple[int, str, str], ...] = ()


class Refused(Exception):
    """An operation is answered with a code."""


@dataclass
class StandIn:
    """The server, and everything that clients left on it."""

    nodes: dict[str, Znode] = field(default_factory=lambda: {"/": Znode(b"", 0, 0)})
    zxid: int = 0
    sessions: dict[int, bytes] = field(default_factory=dict)
    connections: list["Wire"] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    """Codes of all requests so far, those that a test interrupted included."""
    before: Callable[["Wire", int], object] = lambda wire, code: None
    """Called with every request before anything is done about it; "lost" leaves it at that."""
    errors: dict[int, int] = field(default_factory=dict)
    """What the next request of a kind is refused with."""
    greeting: bytes | None = None
    """Sent instead of a welcome."""
    accepts: bool = True
    closed: set[str] = field(default_factory=set)
    """Nodes below which nobody may make others."""

    def runtime(self) -> Runtime:
        """The doors, with this server behind the network's."""
        return replace(real_runtime(), network=self)

    async def listen(self, *_: Any) -> Any:
        raise NotImplementedError

    async def connect(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: Tls | None = None,
    ) -> ConnectionHandler:
        if not self.accepts:
            raise OSError("nobody listens")
        handler = handler_factory()
        wire = Wire(self, handler)
        self.connections.append(wire)
        handler.connection_made(wire)
        return handler

    # --- what a test does -----------------------------------------------------------------------

    def write(self, path: str, value: bytes, owner: int = 0) -> None:
        """Make a node, as somebody else."""
        self.zxid += 1
        self.nodes[path] = Znode(value, self.zxid, self.zxid, owner)

    def expire(self, session: int) -> None:
        """End a session and its nodes."""
        self.sessions.pop(session, None)
        self.zxid += 1
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            del self.nodes[path]

    # --- operations -----------------------------------------------------------------------------

    def stat(self, path: str) -> bytes:
        node = self.nodes[path]
        below = [name for name in self.nodes if name != "/" and name.rpartition("/")[0] == path]
        count = len(below)
        return _STAT.pack(
            *(node.czxid, node.mzxid, 0, 0, node.version, 2 * node.creates - count, 0),
            *(node.owner, len(node.value), count, node.mzxid),
        )

    def carry_out(self, code: int, reader: Reader, session: int) -> bytes:
        path = reader.text()
        if code in (Op.CREATE2, Op.CREATE_CONTAINER):
            return self._create(path, reader, session)
        if path not in self.nodes:
            raise Refused(Code.NO_NODE)
        node = self.nodes[path]
        if code == Op.EXISTS:
            reader.boolean()
            return self.stat(path)
        if code == Op.GET_DATA:
            reader.boolean()
            return jute.buffer(node.value) + self.stat(path)
        value = reader.buffer() if code == Op.SET_DATA else b""
        if (wanted := reader.integer()) not in (-1, node.version):
            raise Refused(Code.BAD_VERSION)
        if code == Op.SET_DATA:
            node.value, node.version, node.mzxid = value, node.version + 1, self.zxid
            return self.stat(path)
        assert code in (Op.DELETE, Op.CHECK), (code, wanted)
        if code == Op.DELETE:
            del self.nodes[path]
        return b""

    def _create(self, path: str, reader: Reader, session: int) -> bytes:
        value = reader.buffer()
        acl = tuple((reader.integer(), reader.text(), reader.text()) for _ in range(reader.count()))
        owner = session if reader.integer() in (Flag.EPHEMERAL, Flag.EPHEMERAL_SEQUENTIAL) else 0
        if (parent := path.rpartition("/")[0] or "/") not in self.nodes:
            raise Refused(Code.NO_NODE)
        if parent in self.closed:
            raise Refused(Code.NO_AUTH)
        if path in self.nodes:
            raise Refused(Code.NODE_EXISTS)
        self.nodes[parent].creates += 1
        self.nodes[path] = Znode(value, self.zxid, self.zxid, owner, acl=acl)
        return jute.text(path) + self.stat(path)

    def multi(self, reader: Reader, session: int) -> bytes:
        parts: list[int] = []
        answers: list[bytes] = []
        before = {path: replace(node) for path, node in self.nodes.items()}
        failed: int | None = None
        while True:
            code, done, _ = reader.numbers(_PART)
            if done:
                break
            parts.append(code)
            if failed is None:
                try:
                    answers.append(_PART.pack(code, 0, 0) + self.carry_out(code, reader, session))
                except Refused as refused:
                    failed = refused.args[0]
                    answers.append(_PART.pack(-1, 0, failed) + jute.integer(failed))
                    self.nodes = before
            else:
                _skip(code, reader)
                answers.append(_PART.pack(-1, 0, -2) + jute.integer(Code.RUNTIME_INCONSISTENCY))
        if failed is not None:
            place = next(at for at, answer in enumerate(answers) if answer.startswith(b"\xff"))
            answers[:place] = [_PART.pack(-1, 0, 0) + jute.integer(0)] * place
        return b"".join(answers) + _PART.pack(-1, 1, -1)


def _skip(code: int, reader: Reader) -> None:
    reader.text()
    if code in (Op.CREATE2, Op.SET_DATA):
        reader.buffer()
    if code == Op.CREATE2:
        for _ in range(reader.count()):
            reader.integer(), reader.text(), reader.text()
    reader.integer()


class Wire:
    """One connection, as the client's transport."""

    def __init__(self, server: StandIn, handler: ConnectionHandler) -> None:
        self.server = server
        self.handler = handler
        self.session = 0
        self.cut = False
        self.cut_behind_answer = False
        """Whether the connection is lost together with the next answer."""
        self._welcomed = False
        self._buffer = b""

    def write(self, data: Any, /) -> None:
        self._buffer += bytes(data)
        while not self.cut and len(self._buffer) >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer)
            frame, self._buffer = self._buffer[4 : 4 + length], self._buffer[4 + length :]
            self._take(Reader(frame))

    def abort(self) -> None:
        if not self.cut:
            self.cut = True
            asyncio.get_running_loop().call_soon(self.handler.connection_lost, None)

    def tell_change(self, kind: int, path: str) -> None:
        """Send what a watch tells."""
        head = struct.pack(">iqi", -1, self.server.zxid, 0)
        self.tell(head + jute.integer(kind) + jute.integer(3) + jute.text(path))

    def tell(self, body: bytes) -> None:
        """Send a frame to the client."""
        data = _LENGTH.pack(len(body)) + body
        asyncio.get_running_loop().call_soon(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        if self.cut:
            return
        self.handler.data_received(data)
        if self.cut_behind_answer:
            self.cut = True
            self.handler.connection_lost(None)

    def _take(self, reader: Reader) -> None:
        if not self._welcomed:
            self._welcome(reader)
            return
        xid, code = reader.integer(), reader.integer()
        self.server.requests.append(code)
        if self.server.before(self, code) == "lost" or self.cut:
            return
        error, answer = self.server.errors.pop(code, 0), b""
        if error:
            pass
        elif code in (Op.ADD_WATCH, Op.REMOVE_WATCHES, Op.SET_WATCHES2, Op.AUTH, Op.CLOSE):
            answer = jute.integer(0) if code == Op.ADD_WATCH else b""
        elif self.session not in self.server.sessions:
            error = Code.SESSION_EXPIRED
        else:
            error, answer = self._carry_out(code, reader)
        self.tell(struct.pack(">iqi", xid, self.server.zxid, error) + answer)

    def _carry_out(self, code: int, reader: Reader) -> tuple[int, bytes]:
        server = self.server
        if code == Op.SYNC:
            return 0, jute.text(reader.text())
        server.zxid += code not in _READS
        try:
            if code == Op.MULTI:
                return 0, server.multi(reader, self.session)
            return 0, server.carry_out(code, reader, self.session)
        except Refused as refused:
            return refused.args[0], b""

    def _welcome(self, reader: Reader) -> None:
        self._welcomed = True
        if self.server.greeting is not None:
            asyncio.get_running_loop().call_soon(self._deliver, self.server.greeting)
            return
        reader.integer(), reader.long()
        timeout_ms, session, password = reader.integer(), reader.long(), reader.buffer()
        sessions = self.server.sessions
        if session and sessions.get(session) != password:
            session, timeout_ms = 0, 0
        elif not session:
            session = 100 + len(self.server.connections)
            sessions[session] = password = b"%016d" % session
        self.session = session
        fixed = jute.integer(0) + jute.integer(timeout_ms) + jute.long(session)
        self.tell(fixed + jute.buffer(password) + jute.boolean(False))
