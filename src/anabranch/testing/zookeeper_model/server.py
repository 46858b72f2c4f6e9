"""One server of the modelled ZooKeeper, as its clients meet it."""

import contextvars
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final

from anabranch import limits
from anabranch.metadata.zookeeper import jute
from anabranch.metadata.zookeeper.replies import Code
from anabranch.metadata.zookeeper.requests import Op
from anabranch.runtime.network import Connection, Listener, Network
from anabranch.testing.zookeeper_model.operations import (
    Asked,
    CloseSession,
    Identify,
    MultiRead,
    OpenSession,
    Read,
    SetWatches,
    Sync,
    change,
    encoded_acls,
    packed,
    read_hello,
    read_request,
    reply,
    several,
    welcome,
    written,
)
from anabranch.testing.zookeeper_model.quorum import Entry, Pipe, Quorum
from anabranch.testing.zookeeper_model.tree import Applied, Happened, Refused, Tree

_LENGTH: Final = struct.Struct(">i")
_READS: Final = (Read, MultiRead, SetWatches, Identify)


class Pending:
    """A request that was not answered yet."""

    __slots__ = ("answer", "asked", "connection", "xid")

    def __init__(self, connection: "ClientConnection", xid: int, asked: Asked) -> None:
        self.connection = connection
        self.xid = xid
        self.asked = asked
        self.answer: bytes | None = None


class ModelServer:
    """Follows the quorum's decisions and serves clients."""

    def __init__(
        self,
        quorum: Quorum,
        context: contextvars.Context,
        *,
        request_bytes_max: int = limits.ZOOKEEPER_REQUEST_BYTES,
    ) -> None:
        self.quorum = quorum
        self.request_bytes_max = request_bytes_max
        self.tree = Tree()
        self.serving = False
        self.connections: dict[ClientConnection, None] = {}
        delay_s = quorum.nature.delay_s
        self.inbox = Pipe(quorum.world, context, delay_s)
        """From the leader. What comes is done by this server's process."""
        self.outbox = Pipe(quorum.world, quorum.world.context, delay_s)
        self._context = context
        self._position = 0
        self._cuts = 0
        self._heard: dict[int, None] = {}
        """Sessions of which the leader was not told yet."""

    async def start(self, network: Network, host: str, port: int) -> Listener:
        """Listen, and take part."""
        listener = await network.listen(host, port, lambda: ClientConnection(self))
        self.quorum.join(self)
        return listener

    # --- what the quorum tells ----------------------------------------------------------------

    def serve_from(self, position: int) -> None:
        """There is a leader, and this is what was decided."""
        self.advance(position)
        self.serving = True

    def stop(self) -> None:
        """There is no leader: nobody is served."""
        self.serving = False
        for connection in list(self.connections):
            connection.hang_up()

    def advance(self, position: int) -> None:
        """This much was decided."""
        log = self.quorum.log
        while self._position < position:
            entry = log[self._position]
            self._position += 1
            applied = self.tree.apply(*entry[:4])
            for connection in self.connections:
                connection.tell(entry.zxid, applied.happened)
            self._answer(entry, applied)
        for connection in list(self.connections):
            connection.flush()

    def _answer(self, entry: Entry, applied: Applied) -> None:
        asked, operation = entry.asked, entry.operation
        if isinstance(asked, ClientConnection):
            if asked.server is self and isinstance(operation, OpenSession):
                timeout_ms, password = asked.offered
                asked.welcomed(timeout_ms, entry.session, password)
        elif asked is not None and asked.connection.server is self:
            result = applied.result
            code = result if isinstance(result, int) else 0
            body = written(asked.asked, result) if not code else b""
            asked.answer = reply(asked.xid, entry.zxid, code, body)
            asked.connection.drain(decided=True)
        if isinstance(operation, CloseSession):
            for connection in list(self.connections):
                if connection.session == entry.session:
                    connection.hang_up()

    def synced(self, asked: Pending) -> None:
        """The leader has nothing older to tell."""
        assert isinstance(asked.asked, Sync)
        asked.answer = reply(asked.xid, self.tree.zxid, 0, jute.text(asked.asked.path))
        asked.connection.drain()
        asked.connection.flush()

    # --- sessions -----------------------------------------------------------------------------

    def heard_of(self, session: int) -> None:
        """A client is there. The leader is told when it asks, twice in each of its ticks."""
        if self.quorum.nature.members == 1:
            self.quorum.touch(self, [session])
            return
        if not self._heard:
            world, tick_s = self.quorum.world, self.quorum.nature.tick_s
            delay_s = world.rng.uniform(0.0, tick_s / 2)
            world.loop.call_later(delay_s, self._tell_leader, context=self._context)
        self._heard[session] = None

    def _tell_leader(self) -> None:
        self.quorum.touch(self, list(self._heard))
        self._heard.clear()

    # --- faults -------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """Neither hear the leader nor reach it; after a while, stop serving."""
        self._cuts += 1
        self.inbox.cut = self.outbox.cut = True
        self.quorum.world.loop.call_later(
            self.quorum.nature.patience_s, self._give_up, self._cuts, context=self._context
        )

    def _give_up(self, cut: int) -> None:
        if self.inbox.cut and cut == self._cuts:
            self.stop()

    def rejoin(self) -> None:
        """Hear the leader again."""
        if not self.inbox.cut:
            return
        self.inbox.mend()
        self.outbox.mend()
        if self.quorum.leader is not None and self in self.quorum.servers:
            self.inbox.send(self.serve_from, len(self.quorum.log))


class ClientConnection:
    """A `ConnectionHandler`."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.session = 0
        self.offered = (0, b"")
        """Timeout and password of the session that is being opened."""
        self.watches: dict[str, None] = {}
        self._greeted = False
        self._pending: deque[Pending] = deque()
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._transport: Connection | None = None

    # --- as the network's handler -------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._transport = transport
        self.server.connections[self] = None
        if not self.server.serving:
            self.hang_up()

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        self._buffer += data
        for frame in self._frames():
            if self not in self.server.connections:
                return
            if not self._greeted:
                self._greet(frame)
            else:
                self._take(*read_request(frame))
        self.flush()

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        self.server.connections.pop(self, None)

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`: clients of tests read on."""

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""

    def _frames(self) -> Iterator[bytes]:
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self.server.request_bytes_max:
                self.hang_up()
                return
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield frame

    # --- requests -----------------------------------------------------------------------------

    def _greet(self, frame: bytes) -> None:
        self._greeted = True
        hello, server = read_hello(frame), self.server
        if hello.zxid_seen > server.tree.zxid:
            server.quorum.world.reach("zookeeper: a client knows more than its server")
            self.hang_up()
            return
        timeout_ms = server.quorum.granted_ms(hello.timeout_ms)
        if not hello.session:
            server.quorum.open_session(server, timeout_ms, self)
            return
        for other in list(server.connections):
            if other.session == hello.session:
                other.hang_up()
        server.quorum.resume_session(server, hello.session, hello.password, timeout_ms, self)

    def welcomed(self, timeout_ms: int, session: int, password: bytes) -> None:
        """The quorum has decided on this client's session."""
        if self not in self.server.connections:
            return
        self.session = session
        self._out.append(welcome(timeout_ms, session, password))
        self.flush()
        if not session:
            self.hang_up()

    def _take(self, xid: int, asked: Asked) -> None:
        server = self.server
        server.heard_of(self.session)
        pending = Pending(self, xid, asked)
        self._pending.append(pending)
        if isinstance(asked, Sync):
            server.quorum.sync(server, pending)
        elif not isinstance(asked, _READS):
            server.quorum.write(server, self.session, asked, pending)
        self.drain()

    def drain(self, *, decided: bool = False) -> None:
        """Answer what can be answered, in the order of asking."""
        while self._pending and self in self.server.connections:
            first = self._pending[0]
            if first.answer is None:
                if not isinstance(first.asked, _READS):
                    return
                first.answer = self._look_up(first.xid, first.asked)
            self._pending.popleft()
            self._out.append(first.answer)
            if decided and self._breaks():
                return
            decided = False

    def _breaks(self) -> bool:
        world, share = self.server.quorum.world, self.server.quorum.nature.lost_answers
        if not share or world.rng.random() >= share:
            return False
        world.reach("zookeeper: connection ends within an answer")
        last = self._out.pop()
        self._out.append(last[: world.rng.randrange(len(last))])
        self.hang_up()
        return True

    def _look_up(self, xid: int, asked: Read | MultiRead | SetWatches | Identify) -> bytes:
        zxid = self.server.tree.zxid
        try:
            match asked:
                case Read():
                    return reply(xid, zxid, 0, self._read(asked))
                case MultiRead(parts):
                    return reply(xid, zxid, 0, several(parts, [self._try(part) for part in parts]))
                case SetWatches(recursive):
                    self.watches.update(dict.fromkeys(recursive))
        except Refused as refused:
            return reply(xid, zxid, refused.code)
        return reply(xid, zxid, 0)

    def _try(self, part: Read) -> bytes | int:
        try:
            return self._read(part)
        except Refused as refused:
            return refused.code

    def _read(self, asked: Read) -> bytes:
        if asked.code == Op.ADD_WATCH:
            self.watches[asked.path] = None
            return jute.integer(0)
        if asked.code == Op.REMOVE_WATCHES:
            if asked.path not in self.watches:
                raise Refused(Code.NO_WATCHER)
            del self.watches[asked.path]
            return b""
        node = self.server.tree.node(asked.path)
        match asked.code:
            case Op.WHO_AM_I:
                return jute.integer(1) + jute.text("ip") + jute.text("127.0.0.1")
            case Op.EXISTS:
                return packed(node.stat())
            case Op.GET_DATA:
                return jute.buffer(node.value) + packed(node.stat())
            case Op.GET_CHILDREN:
                return jute.texts(node.children)
            case Op.GET_CHILDREN2:
                return jute.texts(node.children) + packed(node.stat())
            case Op.GET_ACL:
                return encoded_acls(node.acl) + packed(node.stat())
        raise Refused(Code.UNIMPLEMENTED)

    # --- watches ------------------------------------------------------------------------------

    def tell(self, zxid: int, happened: list[Happened]) -> None:
        """Say what this client watches of what happened."""
        for kind, path in happened:
            if self._watched(path):
                self._out.append(change(zxid, kind, path))

    def _watched(self, path: str) -> bool:
        return any(
            path == watched or path.startswith(watched if watched == "/" else f"{watched}/")
            for watched in self.watches
        )

    # --- out ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what was said since the last time."""
        if self._out and self._transport is not None:
            content = b"".join(self._out)
            self._out.clear()
            self._transport.write(content)

    def hang_up(self) -> None:
        """End the connection, behind what was said."""
        if self.server.connections.pop(self, self) is None and self._transport is not None:
            self.flush()
            self._transport.close()
