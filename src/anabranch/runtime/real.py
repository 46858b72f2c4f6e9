"""The operating system behind the doors of `runtime`. Only the composition root imports this."""

import asyncio
import random
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

from anabranch.errors import ConfigError
from anabranch.runtime import Runtime
from anabranch.runtime.network import Connection, ConnectionHandler, ServerTls, Tls
from anabranch.runtime.real_channels import GrpcChannels
from anabranch.runtime.real_disk import RealDisk
from anabranch.runtime.real_tls import ServedTls


class RealClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return time.monotonic()


class RealEntropy:
    """The machine's randomness."""

    def token_hex(self, byte_count: int) -> str:
        """See `Entropy.token_hex`."""
        return secrets.token_hex(byte_count)

    def below(self, bound: int) -> int:
        """See `Entropy.below`."""
        return secrets.randbelow(bound)

    def uniform(self, low: float, high: float) -> float:
        """See `Entropy.uniform`."""
        return random.uniform(low, high)


class RealListener:
    """A listening socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        """See `Listener.port`."""
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """See `Listener.close`."""
        self._server.close()


class RealNetwork:
    """TCP."""

    def __init__(self) -> None:
        self._served: dict[ServerTls, ServedTls] = {}

    async def listen(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: ServerTls | None = None,
    ) -> RealListener:
        """See `Network.listen`."""
        factory = cast("Callable[[], asyncio.Protocol]", handler_factory)
        loop = asyncio.get_running_loop()
        context = None if tls is None else self.server_context(tls)
        server = await loop.create_server(factory, host, port, backlog=1024, ssl=context)
        return RealListener(server)

    def server_context(self, tls: ServerTls) -> ssl.SSLContext:
        """Return the context of a port, also for a server that brings its own protocol.

        Raises:
            ConfigError: if its files cannot be used.
        """
        if tls not in self._served:
            self._served[tls] = ServedTls(tls)
        return self._served[tls].context

    def renew_tls(self) -> bool:
        """See `Network.renew_tls`."""
        renewed = False
        for served in self._served.values():
            renewed = served.renew() or renewed
        return renewed

    async def connect(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: Tls | None = None,
    ) -> ConnectionHandler:
        """See `Network.connect`."""
        factory = cast("Callable[[], asyncio.Protocol]", handler_factory)
        context = None if tls is None else _tls_context(tls)
        try:
            _, handler = await asyncio.get_running_loop().create_connection(
                factory, host, port, ssl=context
            )
        except ssl.SSLCertVerificationError as error:
            raise _untrusted(f"{host}:{port}", error) from None
        return handler

    async def start_tls(
        self, connection: Any, handler: ConnectionHandler, tls: Tls, *, host: str
    ) -> Connection:
        """See `Network.start_tls`."""
        try:
            secured = await asyncio.get_running_loop().start_tls(
                connection,
                cast("asyncio.Protocol", handler),
                _tls_context(tls),
                server_hostname=host,
            )
        except ssl.SSLCertVerificationError as error:
            raise _untrusted(host, error) from None
        if secured is None:
            raise ConnectionResetError(f"{host} ended the connection before TLS began")
        return secured


def _untrusted(name: str, error: ssl.SSLCertVerificationError) -> ConfigError:
    return ConfigError(f"the certificate of {name} is not trusted: {error.verify_message}")


def _tls_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(
            name for name in (tls.ca_file, tls.certificate_file, tls.key_file) if name
        )
        raise ConfigError(f"TLS cannot be set up with {files}: {error}") from None
    return context


def listening_socket(host: str, port: int) -> socket.socket:
    """Open a port for a server that brings its own protocol, such as a web server.

    Raises:
        OSError: if the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def real_runtime() -> Runtime:
    """Return the doors to the machine this process runs on."""
    return Runtime(RealClock(), RealEntropy(), RealNetwork(), RealDisk(), GrpcChannels())
