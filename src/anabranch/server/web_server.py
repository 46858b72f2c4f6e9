"""Serves the web interface in a real process: uvicorn on one port, and in TLS on another.

uvicorn does not tell an app what a client has shown in TLS; its protocol is taught to here.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from anabranch import limits
from anabranch.admin.application import CERTIFICATE
from anabranch.runtime.network import Network
from anabranch.runtime.real import RealNetwork, listening_socket
from anabranch.runtime.tasks import Tasks
from anabranch.server.assembly import Standalone
from anabranch.server.ports import explain
from anabranch.server.settings import Settings


class WebSockets(NamedTuple):
    """The open ports of the web interface."""

    plain: socket.socket | None
    tls: socket.socket | None

    @property
    def port(self) -> int | None:
        """The number of the plain one, if there is one."""
        return None if self.plain is None else int(self.plain.getsockname()[1])

    @property
    def tls_port(self) -> int | None:
        """The number of the other, if there is one."""
        return None if self.tls is None else int(self.tls.getsockname()[1])


@contextmanager
def web_sockets(settings: Settings) -> Iterator[WebSockets]:
    """Open the ports.

    Raises:
        ConfigError: saying which one cannot be had.
    """
    with ExitStack() as held:
        plain = tls = None
        if settings.plain_ports:
            plain = held.enter_context(_opened(settings.host, settings.web_port, "--web-port"))
        if settings.tls_certificate:
            tls = held.enter_context(
                _opened(settings.host, settings.web_tls_port, "--web-tls-port")
            )
        yield WebSockets(plain, tls)


def _opened(host: str, port: int, flag: str) -> socket.socket:
    try:
        return listening_socket(host, port)
    except OSError as error:
        raise explain(error, host=host, port=port, flag=flag) from error


class _WebServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the process."""
        yield


class _ShowingProtocol(H11Protocol):
    """Puts the certificate of a client where the app looks for it."""

    def connection_made(self, transport: Any) -> None:
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.app_state = {**self.app_state, CERTIFICATE: certificate}
        super().connection_made(transport)


@asynccontextmanager
async def web_servers(
    server: Standalone, sockets: WebSockets, network: Network
) -> AsyncIterator[None]:
    """Serve for as long as the body runs."""
    webs = [] if sockets.plain is None else [(_configured(server, None), sockets.plain)]
    if sockets.tls is not None and server.tls is not None:
        assert isinstance(network, RealNetwork), "only a real network has TLS"
        webs.append((_configured(server, network.server_context(server.tls)), sockets.tls))
    tasks = Tasks(server.report_failure)
    running = [tasks.spawn("web server", web.serve(sockets=[port])) for web, port in webs]
    try:
        yield
    finally:
        for web, _ in webs:
            web.should_exit = True
        await asyncio.wait(running)
        await tasks.close()


def _configured(server: Standalone, context: ssl.SSLContext | None) -> _WebServer:
    config = uvicorn.Config(
        server.web_app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http=_ShowingProtocol,
        server_header=False,
        timeout_graceful_shutdown=limits.WEB_STOP_S_MAX,
    )
    config.load()  # imports much, which must not hold up the loop once clients are served
    config.ssl = context
    return _WebServer(config)
