"""The door to servers that speak gRPC: opaque messages over named methods.

gRPC brings its own transport, so it does not go through `network`. In the simulation calls do, in
frames of its own: the server there is a model.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

Headers = Sequence[tuple[str, str]]


class CallFailed(Exception):
    """A call that the server, or the way to it, ended with an error."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        """gRPC's name, such as "NOT_FOUND" or "UNAVAILABLE"."""
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Security:
    """How to reach a server that does not trust everybody."""

    tls: bool = False
    trusted_certificates: bytes | None = None
    """PEM; None trusts what the machine trusts."""
    token: str | None = None

    def __repr__(self) -> str:
        return f"Security(tls={self.tls}, token={'set' if self.token else 'none'})"


OPEN_TO_ALL: Final = Security()


class Replies(Protocol):
    """What a server sends in answer to one request, one message after another."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Messages until the server has no more; `CallFailed` if the call breaks."""
        ...

    def cancel(self) -> None:
        """Want no more."""
        ...


class Exchange(Replies, Protocol):
    """A call in which both sides send messages."""

    async def send(self, message: bytes) -> None:
        """Hand a message over; waits while the server does not keep up.

        Raises:
            CallFailed: if the call has ended.
        """
        ...


class Channel(Protocol):
    """The way to one server."""

    async def ready(self) -> None:
        """Return once there is a connection; waits for ever."""
        ...

    async def ask(self, method: str, message: bytes, *, timeout_s: float) -> bytes:
        """Send one message and return the one that answers it.

        Raises:
            CallFailed: if there is no answer, or an error instead of one.
        """
        ...

    def stream(self, method: str, message: bytes) -> Replies:
        """Send one message and read many."""
        ...

    def exchange(self, method: str, headers: Headers) -> Exchange:
        """Send and read many."""
        ...

    async def close(self) -> None:
        """End every call."""
        ...


class Channels(Protocol):
    """Opening the ways to servers."""

    def open(self, address: str, security: Security) -> Channel:
        """Prepare to talk to host:port; connects when first used, and again when need be.

        Raises:
            ConfigError: if this installation cannot speak gRPC.
        """
        ...
