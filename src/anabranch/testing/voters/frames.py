"""Frames between the simulated voters and their clients, and connections that come back.

A frame is its length, a letter for what it is, and its bytes. What is written in one turn of the
loop goes out together.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final

from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

_LENGTH: Final = struct.Struct(">I")
RETRY_S: Final = 0.1
Receive = Callable[["Frames", bytes, bytes], None]


class Frames(asyncio.Protocol):
    """One end of a connection: whole frames in, whole frames out."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._transport: Any = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """See `ConnectionHandler`."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `ConnectionHandler`."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            end = start + _LENGTH.size + length
            if end > len(self._buffer):
                break
            content = bytes(self._buffer[start + _LENGTH.size : end])
            start = end
            self._receive(self, content[:1], content[1:])
        del self._buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """See `ConnectionHandler`."""
        if not self.lost.done():
            self.lost.set_result(None)

    def send(self, letter: bytes, content: bytes) -> None:
        """Queue a frame."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out += (_LENGTH.pack(1 + len(content)), letter, content)

    def _flush(self) -> None:
        data, self._out = b"".join(self._out), []
        self._transport.write(data)


class Peer:
    """A connection to somebody, made again whenever it is lost; frames in between are lost."""

    def __init__(self, runtime: Runtime, tasks: Tasks, host: str, port: int, receive: Receive):
        self._network = runtime.network
        self._host, self._port = host, port
        self._receive = receive
        self.frames: Frames | None = None
        tasks.spawn(f"to {host}", self._keep())

    async def _keep(self) -> None:
        while True:
            try:
                frames = await self._network.connect(
                    self._host, self._port, lambda: Frames(self._receive)
                )
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            assert isinstance(frames, Frames)
            self.frames = frames
            await frames.lost
            self.frames = None

    def send(self, letter: bytes, content: bytes) -> None:
        """Send a frame if there is a connection."""
        if self.frames is not None:
            self.frames.send(letter, content)
