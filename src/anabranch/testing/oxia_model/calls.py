"""Calls with many messages over one connection, as gRPC has them, by way of the door `network`.

The client's side is a `Channels`; to the server's side a call is a `ServedCall`.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from anabranch import limits
from anabranch.runtime.channels import CallFailed, Headers, Security
from anabranch.runtime.network import Connection, Network

_FRAME: Final = struct.Struct(">IIB")
_BEGIN, _MESSAGE, _CANCEL, _END, _FAIL, _PING, _PONG = range(7)
_CONNECT_S_MAX: Final = 5.0
_BACKOFF_S: Final = (0.05, 1.0)


class Wire:
    """One end of a connection that carries the messages of many calls."""

    def __init__(self, on_frame: Callable[[int, int, bytes], None]) -> None:
        self.open = True
        self.on_lost: Callable[[], None] = lambda: None
        self._on_frame = on_frame
        self._buffer = bytearray()
        self._connection: Connection | None = None

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        self._buffer += data
        for call, kind, content in self._frames():
            self._on_frame(call, kind, content)

    def eof_received(self) -> bool | None:
        """See `ConnectionHandler.eof_received`."""
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        """See `ConnectionHandler.connection_lost`."""
        self._lose()

    def pause_writing(self) -> None:
        """See `ConnectionHandler.pause_writing`: what tests send is little."""

    def resume_writing(self) -> None:
        """See `ConnectionHandler.resume_writing`."""

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        while len(self._buffer) >= _FRAME.size:
            length, call, kind = _FRAME.unpack_from(self._buffer)
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_FRAME.size : end])
            del self._buffer[:end]
            yield call, kind, content

    def send(self, call: int, kind: int, content: bytes = b"") -> None:
        """Send one frame."""
        if self.open and self._connection is not None:
            self._connection.write(_FRAME.pack(len(content), call, kind) + content)

    def abort(self) -> None:
        """End the connection at once."""
        if self._connection is not None:
            self._connection.abort()
        self._lose()

    def _lose(self) -> None:
        if self.open:
            self.open = False
            self.on_lost()


# --- the client's side --------------------------------------------------------------------------


class ModelCall:
    """A call whose messages are read one by one; a `Replies` and an `Exchange`."""

    def __init__(self, channel: "ModelChannel", method: str, headers: Headers) -> None:
        self._channel = channel
        self._opening = "\n".join([method, *(f"{name}={value}" for name, value in headers)])
        self._first: bytes | None = None
        self._wire: Wire | None = None
        self._number = 0
        self._messages: deque[bytes] = deque()
        self._over: CallFailed | None = None
        self._ended = self._cancelled = False
        self._changed: asyncio.Future[None] | None = None

    def begin(self, wire: Wire, first: bytes | None) -> None:
        """Send what opens the call."""
        self._wire, self._number = wire, self._channel.number(self)
        wire.send(self._number, _BEGIN, self._opening.encode() + b"\x00" + (first or b""))

    def expect(self, first: bytes) -> None:
        """Begin with this message when the answers are asked for."""
        self._first = first

    def __aiter__(self) -> "ModelCall":
        """See `Replies`."""
        return self

    async def __anext__(self) -> bytes:
        """The next message."""
        if self._first is not None and self._wire is None:
            wire = await self._channel.connected()
            if not self._cancelled:
                self.begin(wire, self._first)
        while not self._messages:
            if self._cancelled:
                raise CallFailed("CANCELLED", "the call was ended here")
            if self._over is not None:
                raise self._over
            if self._ended:
                raise StopAsyncIteration
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        return self._messages.popleft()

    async def send(self, message: bytes) -> None:
        """See `Exchange.send`."""
        if self._wire is None or not self._wire.open or self._ended or self._over is not None:
            raise self._over or CallFailed("UNAVAILABLE", "the call has ended")
        self._wire.send(self._number, _MESSAGE, message)

    def cancel(self) -> None:
        """See `Replies.cancel`."""
        if self._wire is not None and not self._ended and self._over is None:
            self._wire.send(self._number, _CANCEL)
        self._cancelled = True
        self._end()

    def take(self, kind: int, content: bytes) -> None:
        """The server says something."""
        if kind == _MESSAGE:
            self._messages.append(content)
            self._wake()
        elif kind == _FAIL:
            code, _, detail = content.decode().partition("\n")
            self.fail(CallFailed(code, detail))
        else:
            self._end()

    def fail(self, error: CallFailed) -> None:
        """There will be no more."""
        if not self._ended:
            self._over = error
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._channel.forget(self._number)
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class ModelChannel:
    """A `Channel`: connects when it is used, and again when it is used again."""

    def __init__(self, network: Network, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._network = network
        self._host, self._port = host, int(port)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[Wire] | None = None
        self._calls: dict[int, ModelCall] = {}
        self._last_number = 0
        self._heard = False

    # --- connecting -----------------------------------------------------------------------------

    async def connected(self) -> Wire:
        """The connection; `CallFailed` if there is none to be had."""
        if self._wire is not None and self._wire.open:
            return self._wire
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connect(), name="model channel")
            # Whoever waited may have given up.
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Wire:
        wire = Wire(self._frame)
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await self._network.connect(self._host, self._port, lambda: wire)
        except OSError as error:
            raise CallFailed("UNAVAILABLE", str(error)) from None
        wire.on_lost = self._lost
        if not wire.open:
            raise CallFailed("UNAVAILABLE", "the connection was lost")
        self._wire = wire
        self._loop.call_later(limits.GRPC_KEEP_ALIVE_S, self._look, wire)
        return wire

    def _look(self, wire: Wire) -> None:
        """As gRPC's own keep-alive does: a connection nobody is behind is ended."""
        if not wire.open:
            return
        if self._calls and not self._heard:
            wire.send(0, _PING)
            self._loop.call_later(limits.GRPC_KEEP_ALIVE_S, self._judge, wire)
        else:
            self._heard = False
            self._loop.call_later(limits.GRPC_KEEP_ALIVE_S, self._look, wire)

    def _judge(self, wire: Wire) -> None:
        if wire.open and not self._heard:
            wire.abort()
        else:
            self._look(wire)

    def _lost(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(CallFailed("UNAVAILABLE", "the connection was lost"))

    def _frame(self, number: int, kind: int, content: bytes) -> None:
        self._heard = True
        call = self._calls.get(number)
        if call is not None:
            call.take(kind, content)

    def number(self, call: ModelCall) -> int:
        """Give a call its number."""
        self._last_number += 1
        self._calls[self._last_number] = call
        return self._last_number

    def forget(self, number: int) -> None:
        """A call is over."""
        self._calls.pop(number, None)

    # --- as a channel ---------------------------------------------------------------------------

    async def ready(self) -> None:
        """See `Channel.ready`."""
        delay_s, longest_s = _BACKOFF_S
        while True:
            try:
                await self.connected()
            except CallFailed:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, longest_s)
            else:
                return

    async def ask(self, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """See `Channel.ask`."""
        call = self.stream(method, message)
        try:
            async with asyncio.timeout(timeout_s):
                async for answer in call:
                    return answer
        except TimeoutError:
            raise CallFailed("DEADLINE_EXCEEDED", f"no answer for {timeout_s} s") from None
        finally:
            call.cancel()
        raise CallFailed("INTERNAL", "the call ended without an answer")

    def stream(self, method: str, message: bytes) -> ModelCall:
        """See `Channel.stream`."""
        call = ModelCall(self, method, ())
        call.expect(message)
        return call

    def exchange(self, method: str, headers: Headers) -> ModelCall:
        """See `Channel.exchange`."""
        call = ModelCall(self, method, headers)
        if self._wire is not None and self._wire.open:
            call.begin(self._wire, None)
        else:
            call.fail(CallFailed("UNAVAILABLE", "not connected"))
        return call

    async def close(self) -> None:
        """See `Channel.close`."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._wire is not None:
            self._wire.abort()


class ModelChannels:
    """A `Channels` over the network of one process."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def open(self, address: str, security: Security) -> ModelChannel:
        """See `Channels.open`."""
        assert not security.tls, "a model has nobody who listens in"
        return ModelChannel(self._network, address)


# --- the server's side --------------------------------------------------------------------------


class ServedCall:
    """A call as the server has it."""

    def __init__(
        self, wire: "ServerWire", number: int, method: str, headers: dict[str, str]
    ) -> None:
        self.method = method
        self.headers = headers
        self.open = True
        self.on_message: Callable[[bytes], None] = lambda message: None
        self._wire = wire
        self._number = number

    def send(self, message: bytes) -> None:
        """Answer with one message."""
        if self.open:
            self._wire.send(self._number, _MESSAGE, message)

    def end(self) -> None:
        """That was all."""
        if self.open:
            self._wire.send(self._number, _END)
            self._wire.finished(self._number)

    def fail(self, code: str, detail: str) -> None:
        """End with an error."""
        if self.open:
            self._wire.send(self._number, _FAIL, f"{code}\n{detail}".encode())
            self._wire.finished(self._number)

    def break_off(self) -> None:
        """End the whole connection, and say nothing."""
        self._wire.abort()


class CallHandler(Protocol):
    """Who answers calls."""

    def begin(self, call: ServedCall, message: bytes) -> None:
        """A call begins; a call of many messages begins with an empty one."""
        ...


class ServerWire(Wire):
    """The server's end of a connection."""

    def __init__(self, handler: CallHandler) -> None:
        super().__init__(self._take)
        self._handler = handler
        self._calls: dict[int, ServedCall] = {}
        self.on_lost = self._drop

    def _take(self, number: int, kind: int, content: bytes) -> None:
        if kind == _PING:
            self.send(0, _PONG)
        elif kind == _BEGIN:
            opening, _, message = content.partition(b"\x00")
            method, *lines = opening.decode().split("\n")
            headers = dict(line.split("=", 1) for line in lines)
            call = self._calls[number] = ServedCall(self, number, method, headers)
            self._handler.begin(call, message)
        elif number in self._calls:
            if kind == _CANCEL:
                self.finished(number)
            else:
                self._calls[number].on_message(content)

    def finished(self, number: int) -> None:
        """Nobody speaks in this call any more."""
        self._calls.pop(number).open = False

    def _drop(self) -> None:
        for call in self._calls.values():
            call.open = False
        self._calls.clear()
