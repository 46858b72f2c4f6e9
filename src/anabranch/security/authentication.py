"""Finds out who is calling, from what they show: a token, a password, a certificate.

The method named by the caller decides, as in Pulsar; who names one that is not served is anonymous
if there is a role for that, and refused else.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from anabranch.errors import NotAuthenticated
from anabranch.security.identity import Identity

TOKEN: Final = "token"
BASIC: Final = "basic"
TLS: Final = "tls"
METHODS: Final = (TOKEN, BASIC, TLS)
ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a caller has shown. Never printed: it is all secret."""

    data: bytes = field(default=b"", repr=False)
    certificate: Mapping[str, Any] | None = field(default=None, repr=False)
    """Of the peer, verified, in the form of Python's `getpeercert`."""


class Method(Protocol):
    """One way to show who one is."""

    @property
    def name(self) -> str:
        """The name clients give it."""
        ...

    def identify(self, evidence: Evidence) -> Identity:
        """Return who that is.

        Raises:
            NotAuthenticated: saying what is wrong, but not with which secret.
        """
        ...


class Authentication:
    """The methods of one server."""

    def __init__(self, methods: Iterable[Method], *, anonymous_role: str = "") -> None:
        self._methods = {method.name: method for method in methods}
        self._anonymous_role = anonymous_role

    def identify(self, method: str, evidence: Evidence) -> Identity:
        """Return who a client of the wire is.

        Raises:
            NotAuthenticated: if it cannot be told.
        """
        found = self._methods.get(method)
        if found is not None:
            return found.identify(evidence)
        return self._anonymous(f"authentication method {method[:40]!r} is not served here")

    def identify_web(
        self, authorization: str | None, certificate: Mapping[str, Any] | None
    ) -> Identity:
        """Return who sent an HTTP request, by its header `Authorization` or its certificate.

        Raises:
            NotAuthenticated: if it cannot be told.
        """
        if authorization is not None:
            scheme, _, data = authorization.strip().partition(" ")
            if scheme.lower() == "bearer":
                return self.identify(TOKEN, Evidence(data.strip().encode()))
            if scheme.lower() == "basic":
                return self.identify(BASIC, Evidence(_decoded(data)))
            return self._anonymous("the header Authorization is neither Bearer nor Basic")
        if certificate is not None and TLS in self._methods:
            return self.identify(TLS, Evidence(certificate=certificate))
        return self._anonymous("no credentials were given")

    def _anonymous(self, why: str) -> Identity:
        if not self._anonymous_role:
            raise NotAuthenticated(why)
        return Identity(self._anonymous_role, ANONYMOUS)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise NotAuthenticated("the credentials of Basic are not base64") from None
