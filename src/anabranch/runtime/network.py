"""The door to the network: callbacks, so that the data path has no task or queue per message.

The names are asyncio's own (`Protocol` and `Transport`), so the real world passes its transports
through unwrapped and pays nothing for the door.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

Buffer = bytes | bytearray | memoryview


class Connection(Interface):
    """Our end of a byte stream. `asyncio.Transport` is one."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes; never blocks."""
        ...

    def writelines(self, list_of_data: Iterable[Buffer], /) -> None:
        """Queue several buffers with one call."""
        ...

    def pause_reading(self) -> None:
        """Stop `data_received` until `resume_reading`: back-pressure on the peer."""
        ...

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self) -> None:
        """Close at once and drop what is queued."""
        ...

    def is_closing(self) -> bool:
        """Whether close or abort was called or the peer is gone."""
        ...

    def get_write_buffer_size(self) -> int:
        """Bytes queued and not yet handed to the other side."""
        ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`peername` is the (host, port) of the other side."""
        ...


class ConnectionHandler(Interface):
    """What a user of the network implements. `asyncio.Protocol` subclasses are such."""

    def connection_made(self, transport: Any, /) -> None:
        """Called once, with the `Connection`."""
        ...

    def data_received(self, data: bytes, /) -> None:
        """Called with the next bytes of the stream."""
        ...

    def eof_received(self) -> bool | None:
        """The peer will send no more; a false result closes the connection."""
        ...

    def connection_lost(self, exc: Exception | None, /) -> None:
        """Called once, last."""
        ...

    def pause_writing(self) -> None:
        """The peer reads too slowly: stop producing for it."""
        ...

    def resume_writing(self) -> None:
        """The peer has caught up."""
        ...


class Listener(Interface):
    """An open port."""

    @property
    def port(self) -> int:
        """The port in use; never 0."""
        ...

    async def close(self) -> None:
        """Accept nothing more. Open connections stay."""
        ...


@dataclass(frozen=True, slots=True)
class Tls:
    """How to speak TLS to a server."""

    ca_file: str | None = None
    """Who may have signed the server's certificate; None for those the machine trusts."""
    certificate_file: str | None = None
    key_file: str | None = None
    """Who we are, if the server wants to know."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How to speak TLS to clients."""

    certificate_file: str
    key_file: str
    trust_file: str | None = None
    """Who may have signed the certificates of clients; None asks them for none."""
    demand_certificate: bool = False


class Network(Interface):
    """Listening and connecting."""

    async def listen(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: ServerTls | None = None,
    ) -> Listener:
        """Accept connections on host:port; port 0 takes a free one.

        Raises:
            OSError: if the address cannot be had.
            ConfigError: if the files of `tls` cannot be used.
        """
        ...

    def renew_tls(self) -> bool:
        """Use certificates that have changed on disk for new connections; whether any have.

        Raises:
            ConfigError: if they cannot be used; those in use stay.
        """
        ...

    async def connect(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: Tls | None = None,
    ) -> ConnectionHandler:
        """Open a connection and return its handler, after `connection_made`.

        Raises:
            OSError: if the peer refuses or cannot be reached.
            ConfigError: if the files of `tls` cannot be used, or the server's certificate is not
                trusted.
        """
        ...

    async def start_tls(
        self, connection: Any, handler: ConnectionHandler, tls: Tls, *, host: str
    ) -> Connection:
        """Go on in TLS, as the client, on a connection that both sides agreed to do so on.

        Returns what is to be written to from then on; what comes is still given to `handler`.

        Raises:
            OSError: if the peer ends the connection instead.
            ConfigError: as `connect`.
        """
        ...
