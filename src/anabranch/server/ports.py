"""Words for a port that cannot be opened, and the door in front of a server not yet ready."""

import errno
from collections.abc import Callable

from anabranch.errors import ConfigError
from anabranch.runtime.network import Connection, ConnectionHandler


def explain(error: OSError, *, host: str, port: int, flag: str) -> ConfigError:
    """Return the error for a port that could not be had, with the flag that changes it."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} of {host} is in use: stop the process that has it, or choose another "
            f"with {flag} (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return ConfigError(
            f"port {port} may not be opened by this user: choose one above 1023 with {flag}"
        )
    return ConfigError(
        f"cannot listen on {host} port {port}: {error.strerror or error}; see --host and {flag}"
    )


class Door:
    """Gives connections to the broker while it is open, and turns them away else.

    The port is opened before the broker exists, because the broker must know its own address and
    port 0 becomes a number only by opening it. Clients that are turned away try again.
    """

    def __init__(self) -> None:
        self._inside: Callable[[], ConnectionHandler] | None = None

    def open(self, handler_factory: Callable[[], ConnectionHandler]) -> None:
        """Let connections in."""
        self._inside = handler_factory

    def shut(self) -> None:
        """Let no more in."""
        self._inside = None

    def new_connection(self) -> ConnectionHandler:
        """Return the handler of one new connection."""
        return _TurnedAway() if self._inside is None else self._inside()


class _TurnedAway:
    def connection_made(self, transport: Connection, /) -> None:
        transport.abort()

    def data_received(self, data: bytes, /) -> None:
        pass

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None, /) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass
