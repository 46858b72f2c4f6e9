"""SASL's mechanism DIGEST-MD5 (RFC 2831), as far as ZooKeeper and BookKeeper use it. Pure."""

import hashlib
import hmac
import re
from typing import Final

from anabranch.errors import ProtocolError

_PAIR: Final = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_COUNT: Final = "00000001"
CHALLENGE_BYTES_MAX: Final = 2048


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> str:
    return _md5(data).hex()


def parse(challenge: bytes) -> dict[str, str]:
    """The fields of a challenge.

    Raises:
        ProtocolError: if it is none.
    """
    if len(challenge) > CHALLENGE_BYTES_MAX:
        raise ProtocolError(f"a SASL challenge of {len(challenge)} bytes")
    try:
        text = challenge.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a SASL challenge that is no text") from None
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            raise ProtocolError("a SASL challenge that cannot be read")
        quoted, plain = match[2], match[3]
        found[match[1].lower()] = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = match.end()
    return found


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class DigestMd5:
    """One exchange: a challenge comes, a response goes, and the server proves itself in turn."""

    def __init__(self, user: str, password: str, client_nonce: str, *, uri: str) -> None:
        """`uri` is the service that is asked, as it calls itself."""
        self._uri = uri
        self._user = user
        self._password = password
        self._client_nonce = client_nonce
        self._proof = ""

    def respond(self, challenge: bytes) -> bytes:
        """Answer the server's challenge.

        Raises:
            ProtocolError: if it asks for what is not known here.
        """
        fields = parse(challenge)
        nonce, realm = fields.get("nonce", ""), fields.get("realm", "")
        offered = fields.get("qop", "auth").replace(" ", "").split(",")
        if not nonce or fields.get("algorithm") != "md5-sess" or "auth" not in offered:
            raise ProtocolError("a SASL challenge that is not of DIGEST-MD5 with authentication")
        secret = _md5(f"{self._user}:{realm}:{self._password}".encode())
        key = _hex(secret + f":{nonce}:{self._client_nonce}".encode())

        def digest(method: str) -> str:
            place = _hex(f"{method}:{self._uri}".encode())
            return _hex(f"{key}:{nonce}:{_COUNT}:{self._client_nonce}:auth:{place}".encode())

        self._proof = digest("")
        answer = (
            f"charset=utf-8,username={_quote(self._user)},realm={_quote(realm)},"
            f"nonce={_quote(nonce)},nc={_COUNT},cnonce={_quote(self._client_nonce)},"
            f'digest-uri="{self._uri}",maxbuf=65536,response={digest("AUTHENTICATE")},qop=auth'
        )
        return answer.encode()

    def check(self, last: bytes) -> None:
        """Check that the server knows the password, too.

        Raises:
            ProtocolError: if it does not.
        """
        shown = parse(last).get("rspauth", "")
        if not hmac.compare_digest(shown.encode(), self._proof.encode()):
            raise ProtocolError("the server does not prove that it knows the password")
