"""One connection to a ZooKeeper server: frames out together, answers in the order of requests."""

import asyncio
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    FrameTooLarge,
    OutcomeUnknown,
    ProtocolError,
    Unreachable,
)
from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.jute import Reader
from anabranch.metadata.zookeeper.replies import (
    Change,
    Refusal,
    Welcome,
    read_change,
    read_header,
    read_welcome,
)
from anabranch.metadata.zookeeper.requests import Op, Request
from anabranch.runtime.network import Connection
from anabranch.telemetry import get_logger

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">iii")
_XID_END: Final = 2**31 - 1
_log: Final = get_logger("zookeeper")


class Call:
    """One request whose answer somebody waits for."""

    __slots__ = ("answer", "made_s", "once", "request", "sent", "session", "zxid")

    def __init__(
        self, request: Request[Any], made_s: float, session: int | None, *, once: bool = False
    ) -> None:
        self.request = request
        self.made_s = made_s
        self.session = session
        """Makes sense only within this session; None if within any."""
        self.once = once
        """Makes sense only on the connection that it was made for."""
        self.sent = False
        self.zxid = 0
        """The point of history at which the server answered."""
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self, error: AnabranchError) -> None:
        """Answer with an error."""
        if not self.answer.done():
            self.answer.set_exception(error)
            # Its caller may have given up.
            self.answer.exception()

    def lose(self, why: str) -> None:
        """Answer that there will be no answer."""
        if self.sent and self.request.writes:
            hint = ""
            if len(self.request.body) >= limits.ZOOKEEPER_REQUEST_BYTES_MIN:
                # A server hangs up on what is too long for it, and says nothing.
                hint = (
                    f". It has {len(self.request.body)} bytes: if the servers' jute.maxbuffer is "
                    "lower, set it in the URL"
                )
            self.fail(
                OutcomeUnknown(f"{why}; the write may or may not have been carried out{hint}")
            )
        else:
            self.fail(Unreachable(why))


class Listener(Protocol):
    """Who owns a connection."""

    def changed(self, changes: list[Change]) -> None:
        """Watches tell this, before any answer that came behind it."""

    def answered(self, zxid: int) -> None:
        """An answer showed this point of history."""

    def rearmed(self, zxid: int, error: int) -> None:
        """The watches of an earlier connection are in place again as of this point, or refused."""

    def writable_again(self) -> None:
        """More may be sent."""


class ServerConnection:
    """A `ConnectionHandler`."""

    def __init__(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.authenticated: asyncio.Future[None] = loop.create_future()
        self.writable = True
        self._identities = 0
        self._listener = listener
        self._sent: deque[tuple[int, Call]] = deque()
        self._last_xid = 0
        self._buffer = bytearray()
        self._connection: Connection | None = None

    # --- as the network's handler -------------------------------------------------------------

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        if self.lost.done():
            return
        self._buffer += data
        changes: list[Change] = []
        try:
            for frame in self._frames():
                self._take(frame, changes)
        except AnabranchError as error:
            _log.warning("zookeeper_broke_rules", reason=str(error))
            self._fail_first(error)
            self.abort(error)
        if changes:
            self._listener.changed(changes)

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        self._end()

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`."""
        self.writable = False

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""
        self.writable = True
        self._listener.writable_again()

    # --- in -----------------------------------------------------------------------------------

    def _frames(self) -> Iterator[bytes]:
        at, end = 0, len(self._buffer)
        try:
            while end - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, at)
                if not 0 <= length <= limits.ZOOKEEPER_REPLY_BYTES_MAX:
                    raise FrameTooLarge(
                        f"ZooKeeper announces a reply of {length} bytes, "
                        f"at most {limits.ZOOKEEPER_REPLY_BYTES_MAX} are read"
                    )
                if end - at - _LENGTH.size < length:
                    break
                start, at = at + _LENGTH.size, at + _LENGTH.size + length
                yield bytes(self._buffer[start:at])
        finally:
            del self._buffer[:at]

    def _take(self, frame: bytes, changes: list[Change]) -> None:
        if not self.welcome.done():
            self.welcome.set_result(read_welcome(frame))
            return
        reader = Reader(frame)
        header = read_header(reader)
        if header.xid == requests.WATCH_XID:
            changes.append(read_change(reader, header.zxid))
            return
        if changes:
            self._listener.changed(changes[:])
            changes.clear()
        if header.xid == requests.AUTH_XID:
            self._identified(header.error)
        elif header.xid == requests.SET_WATCHES_XID:
            self._listener.rearmed(header.zxid, header.error)
        else:
            self._answer(header.xid, header.zxid, header.error, reader)

    def _answer(self, xid: int, zxid: int, error: int, reader: Reader) -> None:
        if not self._sent or self._sent[0][0] != xid:
            raise ProtocolError(f"an answer to request {xid} does not come in its turn")
        call = self._sent[0][1]
        result: Any
        if error and not (reader.left and call.request.code == Op.MULTI):
            result = None
        else:
            result = call.request.read(reader)
            reader.end()
            error = 0
        self._sent.popleft()
        call.zxid = zxid
        self._listener.answered(zxid)
        if call.answer.done():
            return
        if error:
            call.fail(Refusal(error))
        else:
            call.answer.set_result(result)

    def _fail_first(self, error: AnabranchError) -> None:
        # The bytes that cannot be read answer the first request: asked again, they come again.
        if self._sent:
            _, call = self._sent.popleft()
            if call.request.writes:
                call.lose(str(error))
            else:
                call.fail(error)

    def _identified(self, error: int) -> None:
        self._identities -= 1
        if error and not self.authenticated.done():
            self.authenticated.set_exception(Refusal(error))
        elif not self._identities and not self.authenticated.done():
            self.authenticated.set_result(None)

    # --- out ----------------------------------------------------------------------------------

    def greet(self, hello: bytes) -> None:
        """Send the first frame."""
        assert self._connection is not None
        self._connection.write(_LENGTH.pack(len(hello)) + hello)

    def identify(self, identities: Sequence[tuple[str, bytes]]) -> None:
        """Say who we are; `authenticated` tells whether that was believed."""
        self._identities = len(identities)
        for scheme, credentials in identities:
            self._send_special(requests.AUTH_XID, Op.AUTH, requests.auth(scheme, credentials))
        if not identities:
            self.authenticated.set_result(None)

    def rearm(self, zxid_seen: int, persistent: Sequence[str], recursive: Sequence[str]) -> None:
        """Put watches of an earlier connection on this one."""
        body = requests.set_watches(zxid_seen, persistent, recursive)
        self._send_special(requests.SET_WATCHES_XID, Op.SET_WATCHES2, body)

    def _send_special(self, xid: int, code: int, body: bytes) -> None:
        assert self._connection is not None
        self._connection.write(_REQUEST.pack(len(body) + 8, xid, code) + body)

    @property
    def unanswered(self) -> int:
        """Requests under way."""
        return len(self._sent)

    def send(self, calls: Sequence[Call]) -> None:
        """Send requests with one write."""
        assert self._connection is not None
        pieces: list[bytes] = []
        for call in calls:
            self._last_xid = 1 if self._last_xid == _XID_END else self._last_xid + 1
            request = call.request
            pieces.append(_REQUEST.pack(len(request.body) + 8, self._last_xid, request.code))
            pieces.append(request.body)
            call.sent = True
            self._sent.append((self._last_xid, call))
        self._connection.write(b"".join(pieces))

    # --- the end ------------------------------------------------------------------------------

    def abort(self, reason: AnabranchError | None = None) -> None:
        """End the connection at once."""
        if self._connection is not None:
            self._connection.abort()
        self._end(reason)

    def take_unanswered(self) -> list[Call]:
        """The requests that this connection will not answer any more, in order."""
        found = [call for _, call in self._sent]
        self._sent.clear()
        return found

    def _end(self, reason: AnabranchError | None = None) -> None:
        for waiting in (self.welcome, self.authenticated):
            if not waiting.done():
                waiting.set_exception(reason or Unreachable("the connection was lost"))
                waiting.exception()
        if not self.lost.done():
            self.lost.set_result(None)
