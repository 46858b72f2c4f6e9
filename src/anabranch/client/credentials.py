"""Who a client says it is: to brokers in the handshake, to the web interface in a header. Pure.

A certificate is part of how TLS is spoken, `Tls`; a client that has one and no credentials says
that it is known by it.
"""

import base64
from collections.abc import Callable
from typing import Final, Protocol

from anabranch.errors import ConfigError
from anabranch.runtime.network import Tls


class Credentials(Protocol):
    """What a client shows. Asked anew for every connection, and when a broker wants it again."""

    @property
    def method(self) -> str:
        """The name that brokers know the method by."""
        ...

    def data(self) -> bytes:
        """What a broker is shown."""
        ...

    def header(self) -> str:
        """The value of `Authorization` that a web server is shown; "" for none."""
        ...


class Token:
    """A JSON web token."""

    method: Final = "token"

    def __init__(self, token: str | Callable[[], str]) -> None:
        """A token that ends is renewed by giving a function instead, which must not block.

        Raises:
            ConfigError: if the token is empty.
        """
        if not callable(token) and not token.strip():
            raise ConfigError("the token is empty")
        self._token = token

    def data(self) -> bytes:
        """See `Credentials.data`."""
        return self._present().encode()

    def header(self) -> str:
        """See `Credentials.header`."""
        return f"Bearer {self._present()}"

    def _present(self) -> str:
        return (self._token() if callable(self._token) else self._token).strip()

    def __repr__(self) -> str:
        return "Token(...)"


class Basic:
    """A name and a password."""

    method: Final = "basic"

    def __init__(self, user: str, password: str) -> None:
        """Raises ConfigError if the name has a colon, which would end it."""
        if ":" in user:
            raise ConfigError(f"a user name has no colon: {user!r}")
        self._user = user
        self._password = password

    def data(self) -> bytes:
        """See `Credentials.data`."""
        return f"{self._user}:{self._password}".encode()

    def header(self) -> str:
        """See `Credentials.header`."""
        return f"Basic {base64.b64encode(self.data()).decode()}"

    def __repr__(self) -> str:
        return f"Basic({self._user!r}, ...)"


class _Certificate:
    """Known by the certificate of the connection."""

    method: Final = "tls"

    def data(self) -> bytes:
        return b""

    def header(self) -> str:
        return ""


def credentials_or_certificate(
    credentials: Credentials | None, tls: Tls | None
) -> Credentials | None:
    """What to show: the credentials given, else the certificate if there is one."""
    if credentials is None and tls is not None and tls.certificate_file is not None:
        return _Certificate()
    return credentials
