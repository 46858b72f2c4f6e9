"""JSON web tokens: signed with a shared secret (HS) or with a private key (RS, ES).

A server has one key, and the kind of the key decides which algorithms are believed: what a token
says about its own algorithm never makes a public key a shared secret.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from anabranch.errors import ConfigError, NotAuthenticated
from anabranch.security.authentication import TOKEN, Evidence
from anabranch.security.identity import Identity

_SECRET_BYTES_MIN: Final = 32
_SHARED: Final = ("HS256", "HS384", "HS512")
_RSA: Final = ("RS256", "RS384", "RS512")
_EC: Final = ("ES256", "ES384", "ES512")
_TOKEN_BYTES_MAX: Final = 16 * 1024
_SECONDS_MAX: Final = 2**53
_NOT_BY_THE_WRONG_CLOCK: Final = {
    "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
}  # fmt: skip
"""Times are checked here, against the clock of the runtime; the audience by its own claim."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """What signatures are checked with."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]

    @classmethod
    def shared(cls, secret: bytes) -> "TokenKey":
        """Of a secret that issuer and server share.

        Raises:
            ConfigError: if it is too short to be one.
        """
        if len(secret) < _SECRET_BYTES_MIN:
            raise ConfigError(
                f"the secret of tokens has {len(secret)} bytes, and needs {_SECRET_BYTES_MIN}"
            )
        return cls(secret, _SHARED)

    @classmethod
    def public(cls, data: bytes) -> "TokenKey":
        """Of the issuer's public key, RSA or elliptic curve, in DER or PEM.

        Raises:
            ConfigError: if it is none.
        """
        load = load_pem_public_key if data.lstrip().startswith(b"-----BEGIN") else _from_der
        try:
            key = load(data)
        except ValueError:
            raise ConfigError("the public key of tokens is neither PEM nor DER") from None
        if isinstance(key, RSAPublicKey):
            return cls(key, _RSA)
        if isinstance(key, EllipticCurvePublicKey):
            return cls(key, _EC)
        raise ConfigError("the public key of tokens is neither an RSA nor an elliptic-curve key")


def _from_der(data: bytes) -> Any:
    return load_der_public_key(data)


class Tokens:
    """The method `token`."""

    name = TOKEN

    def __init__(
        self,
        key: TokenKey,
        now_ms: Callable[[], int],
        *,
        role_claim: str = "sub",
        audience: str = "",
    ) -> None:
        self._key = key
        self._now_ms = now_ms
        self._role_claim = role_claim
        self._audience = audience

    def identify(self, evidence: Evidence) -> Identity:
        """See `Method.identify`."""
        if not evidence.data:
            raise NotAuthenticated("no token was given")
        if len(evidence.data) > _TOKEN_BYTES_MAX:
            raise NotAuthenticated(f"the token has more than {_TOKEN_BYTES_MAX} bytes")
        try:
            claims = jwt.decode(
                evidence.data,
                self._key.key,
                algorithms=list(self._key.algorithms),
                options=_NOT_BY_THE_WRONG_CLOCK,  # type: ignore[arg-type]
            )
        except jwt.InvalidSignatureError:
            raise NotAuthenticated("the token's signature is wrong") from None
        except jwt.InvalidAlgorithmError:
            raise NotAuthenticated(
                f"the token is not signed with {' or '.join(self._key.algorithms)}"
            ) from None
        except (jwt.PyJWTError, ValueError):
            raise NotAuthenticated("the token cannot be read") from None
        return self._identity(claims)

    def _identity(self, claims: dict[str, Any]) -> Identity:
        now_s = self._now_ms() / 1000
        expires, begins = _moment(claims, "exp"), _moment(claims, "nbf")
        if expires is not None and now_s >= expires:
            raise NotAuthenticated("the token has expired")
        if begins is not None and now_s < begins:
            raise NotAuthenticated("the token is not valid yet")
        if self._audience:
            audience = claims.get("aud")
            if self._audience not in (audience if isinstance(audience, list) else [audience]):
                raise NotAuthenticated("the token is meant for another audience")
        role = claims.get(self._role_claim)
        if isinstance(role, list) and role:
            role = role[0]
        if not isinstance(role, str) or not role:
            raise NotAuthenticated(f"the token names no role in its claim {self._role_claim!r}")
        return Identity(role, TOKEN, None if expires is None else int(expires * 1000))


def _moment(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # JSON has numbers that no clock reaches, and Python reads NaN too.
    if not is_number or not -_SECONDS_MAX <= value <= _SECONDS_MAX:
        raise NotAuthenticated(f"the token's claim {name!r} is no time")
    return float(value)
