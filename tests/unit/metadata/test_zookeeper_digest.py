"""SASL DIGEST-MD5 against the example of RFC 2831's rules, computed by hand, and bad challenges."""

import hashlib

import pytest

from anabranch.errors import ProtocolError
from anabranch.metadata.digest_md5 import DigestMd5, parse

CHALLENGE = (
    b'realm="zk-sasl-md5",nonce="N0\\"nce",charset=utf-8,algorithm=md5-sess,qop="auth,auth-int"'
)


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def expected(method: bytes) -> str:
    a1 = md5(b"bob:zk-sasl-md5:secret") + b':N0"nce:cn'
    a2 = method + b":zookeeper/zk-sasl-md5"
    parts = [md5(a1).hex(), 'N0"nce', "00000001", "cn", "auth", md5(a2).hex()]
    return md5(":".join(parts).encode()).hex()


def test_response_and_the_servers_proof() -> None:
    exchange = DigestMd5("bob", "secret", "cn", uri="zookeeper/zk-sasl-md5")
    fields = parse(exchange.respond(CHALLENGE))
    assert fields["response"] == expected(b"AUTHENTICATE")
    assert (fields["username"], fields["nonce"], fields["qop"]) == ("bob", 'N0"nce', "auth")
    exchange.check(f"rspauth={expected(b'')}".encode())
    with pytest.raises(ProtocolError, match="password"):
        exchange.check(b"rspauth=" + b"0" * 32)
    with pytest.raises(ProtocolError, match="password"):
        exchange.check('rspauth="gehört"'.encode())
    with pytest.raises(ProtocolError):
        exchange.check(b"")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonce",
        b'nonce="x',
        b"\xff",
        b"=,=",
        b'nonce="x",algorithm=md5',
        b'nonce="x",algorithm=md5-sess,qop="auth-conf"',
        b"algorithm=md5-sess",
        b"x" * 5000,
    ],
)
def test_other_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(ProtocolError):
        DigestMd5("bob", "secret", "cn", uri="zookeeper/zk-sasl-md5").respond(challenge)
