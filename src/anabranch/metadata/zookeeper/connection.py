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
    HEADER,
    Change,
    Refusal,
    Welcome,
    read_change,
    read_welcome,
)
from anabranch.metadata.zookeeper.requests import Op, Request
from anabranch.runtime.network import Connection
from anabranch.telemetry import get_logger

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">iii")
_ANSWER: Final = struct.Struct(">iiqi")
"""The length of an answer, and its header."""
_XID_END: Final = 2**31 - 1
_log: Final = get_logger("zookeeper")


class Call:
    """One request whose answer somebody waits for."""

    __slots__ = ("answer", "bundled", "made_s", "once", "request", "sent", "session", "zxid")

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
        self.bundled: list[Any] = []
        """Answers to the first requests of a bundle."""
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
        """A bundle is one of them, with the number of its first request."""
        self._unanswered = 0
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
        changes: list[Change] = []
        try:
            for frame in self._frames(data, changes):
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

    def _frames(self, data: bytes, changes: list[Change]) -> Iterator[bytes]:
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted_bytes():
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        at, end = 0, len(data)
        try:
            while end - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(data, at)
                if not 0 <= length <= limits.ZOOKEEPER_REPLY_BYTES_MAX:
                    raise FrameTooLarge(
                        f"ZooKeeper announces a reply of {length} bytes, "
                        f"at most {limits.ZOOKEEPER_REPLY_BYTES_MAX} are read"
                    )
                start = at + _LENGTH.size
                if end - start < length:
                    break
                at = start + length
                yield data[start:at]
                if self._sent and self._sent[0][1].request.bundle and not changes:
                    at = self._take_bundled(data, at, end)
        finally:
            self._buffer += data[at:]

    def _wanted_bytes(self) -> int:
        """So many must be there before there is anything to do."""
        if len(self._buffer) < _LENGTH.size:
            return _LENGTH.size
        length: int = _LENGTH.unpack_from(self._buffer)[0]
        return min(_LENGTH.size + length, limits.ZOOKEEPER_REPLY_BYTES_MAX)

    def _take(self, frame: bytes, changes: list[Change]) -> None:
        if not self.welcome.done():
            self.welcome.set_result(read_welcome(frame))
            return
        if len(frame) < HEADER.size:
            raise ProtocolError(f"a reply has {len(frame)} bytes, its header alone {HEADER.size}")
        xid, zxid, error = HEADER.unpack_from(frame)
        reader = Reader(frame, HEADER.size)
        if xid > 0 and not changes:
            self._answer(xid, zxid, error, reader)
            return
        if xid == requests.WATCH_XID:
            changes.append(read_change(reader, zxid))
            return
        if changes:
            self._listener.changed(changes[:])
            changes.clear()
        if xid == requests.AUTH_XID:
            self._identified(error)
        elif xid == requests.SET_WATCHES_XID:
            self._listener.rearmed(zxid, error)
        else:
            self._answer(xid, zxid, error, reader)

    def _answer(self, xid: int, zxid: int, error: int, reader: Reader) -> None:
        first, call = self._sent[0] if self._sent else (0, None)
        if call is None or xid != first + len(call.bundled):
            raise ProtocolError(f"an answer to request {xid} does not come in its turn")
        if call.request.bundle:
            call.bundled.append(_bundled(call.request, error, reader))
            self._unanswered -= 1
            if len(call.bundled) == len(call.request.bundle):
                self._settle(call, zxid, 0, call.bundled)
            return
        result: Any
        if error and not (reader.left and call.request.code == Op.MULTI):
            result = None
        else:
            result = call.request.read(reader)
            reader.end()
            error = 0
        self._unanswered -= 1
        self._settle(call, zxid, error, result)

    def _settle(self, call: Call, zxid: int, error: int, result: Any) -> None:
        self._sent.popleft()
        call.zxid = zxid
        self._listener.answered(zxid)
        if call.answer.done():
            return
        if error:
            call.fail(Refusal(error))
        else:
            call.answer.set_result(result)

    def _take_bundled(self, data: bytes, at: int, end: int) -> int:
        """Take the answers to a bundle that follow each other, since whole trees are asked for so.

        Returns where something else begins, or an answer that is not whole.
        """
        first, call = self._sent[0]
        request, found = call.request, call.bundled
        missing = len(request.bundle) - len(found)
        before = missing
        while missing and end - at >= _ANSWER.size:
            length, xid, zxid, error = _ANSWER.unpack_from(data, at)
            stop = at + _LENGTH.size + length
            if xid != first + len(found) or length < HEADER.size or stop > end:
                break
            frame = data[at + _LENGTH.size : stop]
            found.append(_bundled(request, error, Reader(frame, HEADER.size)))
            at = stop
            missing -= 1
        self._unanswered -= before - missing
        if not missing:
            self._settle(call, zxid, 0, found)
        return at

    def _fail_first(self, error: AnabranchError) -> None:
        # The bytes that cannot be read answer the first request: asked again, they come again.
        if self._sent:
            _, call = self._sent.popleft()
            self._unanswered -= max(1, len(call.request.bundle) - len(call.bundled))
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
        return self._unanswered

    def send(self, calls: Sequence[Call]) -> None:
        """Send requests with one write."""
        assert self._connection is not None
        pieces: list[bytes] = []
        xid = self._last_xid
        for call in calls:
            code, bodies = call.request.code, call.request.bundle or (call.request.body,)
            if xid > _XID_END - len(bodies):
                xid = 0
            self._sent.append((xid + 1, call))
            self._unanswered += len(bodies)
            for body in bodies:
                xid += 1
                pieces.append(_REQUEST.pack(len(body) + 8, xid, code))
                pieces.append(body)
            call.sent = True
        self._last_xid = xid
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
        self._unanswered = 0
        for call in found:
            call.bundled = []
        return found

    def _end(self, reason: AnabranchError | None = None) -> None:
        for waiting in (self.welcome, self.authenticated):
            if not waiting.done():
                waiting.set_exception(reason or Unreachable("the connection was lost"))
                waiting.exception()
        if not self.lost.done():
            self.lost.set_result(None)


def _bundled(request: Request[Any], error: int, reader: Reader) -> Any:
    """One answer of a bundle."""
    if error:
        return Refusal(error)
    found = request.read(reader)
    reader.end()
    return found
