"""Names and passwords from a file in the format of Apache's htpasswd (`htpasswd -m`, apr1).

The hash is APR1: a thousand rounds of MD5 over salt and password, as Apache defined it. It is what
Pulsar reads too; for secrets that matter use tokens or certificates.
"""

import hashlib
import hmac
from typing import Final

from anabranch.errors import ConfigError, NotAuthenticated
from anabranch.security.authentication import BASIC, Evidence
from anabranch.security.identity import Identity

_MAGIC: Final = "$apr1$"
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ROUNDS: Final = 1000
_PASSWORD_BYTES_MAX: Final = 1024
_GROUPS: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
"""The bytes of the digest that make four characters each; byte 11 makes the last two."""


def apr1(password: bytes, salt: str) -> str:
    """Return the whole hash, with magic and salt, of a password."""
    salted = salt.encode()
    inner = hashlib.md5(password + salted + password, usedforsecurity=False).digest()
    first = hashlib.md5(password + _MAGIC.encode() + salted, usedforsecurity=False)
    first.update((inner * (len(password) // 16 + 1))[: len(password)])
    length = len(password)
    while length:
        first.update(b"\0" if length & 1 else password[:1])
        length >>= 1
    digest = first.digest()
    for turn in range(_ROUNDS):
        parts = password if turn & 1 else digest
        parts += salted if turn % 3 else b""
        parts += password if turn % 7 else b""
        parts += digest if turn & 1 else password
        digest = hashlib.md5(parts, usedforsecurity=False).digest()
    text = "".join(_encode(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _GROUPS)
    return f"{_MAGIC}{salt}${text}{_encode(digest[11], 2)}"


def _encode(value: int, count: int) -> str:
    return "".join(_ALPHABET[value >> 6 * place & 63] for place in range(count))


class Passwords:
    """The method `basic`."""

    name = BASIC

    def __init__(self, file_text: str, *, file_name: str) -> None:
        """Raises ConfigError for a line that is no `NAME:$apr1$…`."""
        self._hashes: dict[str, str] = {}
        for number, line in enumerate(file_text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, stored = line.strip().partition(":")
            if not name or not stored.startswith(_MAGIC) or stored.count("$") != 3:
                raise ConfigError(
                    f"{file_name} line {number} is no NAME:$apr1$SALT$HASH, as `htpasswd -m` makes"
                )
            self._hashes[name] = stored

    def identify(self, evidence: Evidence) -> Identity:
        """See `Method.identify`. Who is unknown costs as much time as who is known."""
        name, separator, password = evidence.data.partition(b":")
        if not separator or len(password) > _PASSWORD_BYTES_MAX:
            raise NotAuthenticated("the credentials are not NAME:PASSWORD")
        stored = self._hashes.get(name.decode(errors="replace"), f"{_MAGIC}nobody$")
        salt = stored[len(_MAGIC) :].partition("$")[0]
        if not hmac.compare_digest(apr1(password, salt).encode(), stored.encode()):
            raise NotAuthenticated("unknown name or wrong password")
        return Identity(name.decode(), BASIC)
