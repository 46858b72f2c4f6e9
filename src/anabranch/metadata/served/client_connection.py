"""One connection of a client to a metadata server: frames in, frames out."""

import asyncio
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, ProtocolError, Unreachable
from anabranch.generated import anabranch_metadata_pb2 as pb
from anabranch.metadata.served import messages
from anabranch.metadata.served.frames import FrameReader, frame
from anabranch.runtime.network import Connection
from anabranch.telemetry import get_logger

if TYPE_CHECKING:
    from anabranch.metadata.served.link import Link


class ClientConnection:
    """A `ConnectionHandler`."""

    def __init__(self, link: "Link") -> None:
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[pb.Welcome] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.writable = True
        self._link = link
        self._reader = FrameReader()
        self._connection: Connection | None = None

    def connection_made(self, transport: Connection, /) -> None:
        """See `ConnectionHandler.connection_made`."""
        self._connection = transport

    def data_received(self, data: bytes, /) -> None:
        """See `ConnectionHandler.data_received`."""
        if self.lost.done():
            return
        try:
            for payload in self._reader.feed(data):
                self._take(messages.parse(payload))
        except AnabranchError as error:
            get_logger("metadata-client").warning("metadata_server_broke_rules", reason=str(error))
            self.abort()

    def _take(self, message: pb.Frame) -> None:
        kind = message.WhichOneof("content")
        if kind == "replies" and self.welcome.done():
            self._link.received(message.replies)
        elif kind == "welcome" and not self.welcome.done():
            self.welcome.set_result(message.welcome)
        elif kind == "refusal" and not self.welcome.done():
            self.welcome.set_exception(messages.error_from(message.refusal))
        elif kind == "refusal":
            raise messages.error_from(message.refusal)
        else:
            raise ProtocolError(f"{kind or 'a frame of unknown kind'} is not expected here")

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
        self._link.writable_again()

    def send(self, message: pb.Frame) -> None:
        """Send one frame."""
        assert self._connection is not None
        self._connection.write(frame(message.SerializeToString()))

    def abort(self) -> None:
        """End the connection at once."""
        if self._connection is not None:
            self._connection.abort()
        self._end()

    def _end(self) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(Unreachable("the connection was lost"))
            self.welcome.exception()
        if not self.lost.done():
            self.lost.set_result(None)
