"""Tokens, passwords and certificates: who is believed to be whom, and why not."""

import math

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from anabranch.errors import ConfigError, NotAuthenticated
from anabranch.security import Authentication, Evidence
from anabranch.security.basic import Passwords, apr1
from anabranch.security.certificates import Certificates
from anabranch.security.tokens import TokenKey, Tokens

SECRET = b"a shared secret of more than 32 bytes"
NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000


def tokens(key=None, **options):
    return Tokens(key or TokenKey.shared(SECRET), lambda: NOW_MS, **options)


def token(claims, key=SECRET, algorithm="HS256"):
    return Evidence(jwt.encode(claims, key, algorithm=algorithm).encode())


def refusal(method, evidence):
    with pytest.raises(NotAuthenticated) as caught:
        method.identify(evidence)
    return str(caught.value)


@pytest.mark.goal("core.B17", part="token", broken_by="tokens_are_not_checked")
def test_a_token_names_its_role_and_its_end():
    found = tokens().identify(token({"sub": "alice", "exp": NOW_S + 60}))
    assert (found.role, found.method, found.expires_ms) == ("alice", "token", NOW_MS + 60_000)
    assert "signature is wrong" in refusal(tokens(), token({"sub": "a"}, b"x" * 40))
    assert "expired" in refusal(tokens(), token({"sub": "a", "exp": NOW_S}))
    assert "not valid yet" in refusal(tokens(), token({"sub": "a", "nbf": NOW_S + 1}))
    assert "names no role" in refusal(tokens(), token({"name": "a"}))
    assert "cannot be read" in refusal(tokens(), Evidence(b"rubbish"))
    assert "no token" in refusal(tokens(), Evidence(b""))
    assert "is no time" in refusal(tokens(), token({"sub": "a", "nbf": True}))
    assert "bytes" in refusal(tokens(), Evidence(b"x" * 20_000))


def test_role_claim_and_audience_are_chosen():
    ours = tokens(role_claim="who", audience="here")
    assert ours.identify(token({"who": ["bob", "x"], "aud": ["here"]})).role == "bob"
    assert "another audience" in refusal(ours, token({"who": "bob", "aud": "there"}))


@pytest.mark.goal("core.B17", part="token", broken_by="any_number_is_a_time")
@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400, "soon", [1]])
def test_a_time_that_no_clock_reaches_is_refused(claim, value):
    """Whoever signs tokens may do so with a mistake; that is the client's to hear, not ours."""
    assert f"{claim!r} is no time" in refusal(tokens(), token({"sub": "a", claim: value}))


@pytest.mark.goal("core.B17", part="token", broken_by="tokens_choose_their_algorithm")
@pytest.mark.parametrize("kind", ["rsa", "ec"])
@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_tokens_of_private_keys(kind, encoding):
    if kind == "rsa":
        private, algorithm = rsa.generate_private_key(65537, 2048), "RS256"
    else:
        private, algorithm = ec.generate_private_key(ec.SECP256R1()), "ES256"
    public = private.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    ours = tokens(TokenKey.public(public))
    assert ours.identify(token({"sub": "carol"}, private, algorithm)).role == "carol"
    # The public key must never be taken for a shared secret, whatever the token says of itself.
    assert "not signed with" in refusal(ours, token({"sub": "mallory"}))
    unsigned = jwt.encode({"sub": "mallory"}, None, algorithm="none")
    assert "not signed with" in refusal(ours, Evidence(unsigned.encode()))


def test_keys_that_are_none_are_refused():
    for wrong, make in ((b"short", TokenKey.shared), (b"rubbish", TokenKey.public)):
        with pytest.raises(ConfigError):
            make(wrong)
    assert "shared" not in repr(TokenKey.shared(SECRET))


@pytest.mark.goal("core.B17", part="basic", broken_by="passwords_are_not_compared")
def test_passwords():
    # Made by `openssl passwd -apr1 -salt GBdKdKq3 123456`.
    hashed = "$apr1$GBdKdKq3$WNGWSZqqOhQOXNVkDfdEe."
    assert apr1(b"123456", "GBdKdKq3") == hashed
    users = Passwords(f"# people\nadmin:{hashed}\n", file_name="users")
    assert users.identify(Evidence(b"admin:123456")).role == "admin"
    for wrong in (b"admin:1234567", b"admin:", b"nobody:123456", b"admin", b"admin:" + b"x" * 2000):
        refusal(users, Evidence(wrong))
    with pytest.raises(ConfigError, match="users line 1"):
        Passwords("admin:plain", file_name="users")


@pytest.mark.goal("core.B17", part="mtls", broken_by="certificates_need_no_name")
def test_certificates():
    named = {"subject": ((("countryName", "DE"),), (("commonName", "dave"),))}
    assert Certificates().identify(Evidence(certificate=named)).role == "dave"
    assert "no certificate" in refusal(Certificates(), Evidence())
    nameless = {"subject": ((("countryName", "DE"),),)}
    assert "no common name" in refusal(Certificates(), Evidence(certificate=nameless))


@pytest.mark.goal("core.B17", part="rest", broken_by="web_callers_are_anonymous")
def test_headers_choose_the_method():
    users = Passwords("u:" + apr1(b"pw", "salt"), file_name="users")
    door = Authentication([tokens(), users, Certificates()])
    bearer = "Bearer " + token({"sub": "alice"}).data.decode()
    assert door.identify_web(bearer, None).role == "alice"
    assert door.identify_web("basic dTpwdw==", None).role == "u"
    shown = {"subject": ((("commonName", "dave"),),)}
    assert door.identify_web(None, shown).role == "dave"
    for header in (None, "Bearer rubbish", "Basic !", "Digest x", "Basic dTp4"):
        with pytest.raises(NotAuthenticated):
            door.identify_web(header, None)
    anonymous = Authentication([tokens()], anonymous_role="somebody")
    assert anonymous.identify_web(None, None).role == "somebody"
    assert anonymous.identify("none", Evidence()).role == "somebody"
    with pytest.raises(NotAuthenticated):
        anonymous.identify_web("Bearer rubbish", None)
