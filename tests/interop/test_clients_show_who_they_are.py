"""Tokens of every kind, passwords, certificates, renewal: with the Python and the Java client."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import jwt
import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from anabranch.testing.certificates import Authority
from anabranch.testing.servers.java_programs import marked_lines, said_by
from anabranch.testing.standalone_in_thread import StandaloneInThread, standalone_in_thread

PROGRAM = Path(__file__).with_name("ShowWhoYouAre.java")
PASSWORDS = "admin:$apr1$GBdKdKq3$WNGWSZqqOhQOXNVkDfdEe.\n"
"""The password is 123456."""
REFRESH_S = 2.0
LET_IN = [
    "RS256 is let in",
    "ES256 is let in",
    "forged is refused",
    "nobody is refused",
    "basic is let in",
    "wrong-password is refused",
    "tls is let in",
    "tls-without-certificate is refused",
    "a token is renewed",
]


class Signed(NamedTuple):
    """A server that believes one key, and the key."""

    server: StandaloneInThread
    key: Any
    algorithm: str

    def token(self, role: str, lasts_s: float = 600.0) -> str:
        claims = {"sub": role, "exp": time.time() + lasts_s}
        return jwt.encode(claims, self.key, algorithm=self.algorithm)


class Cluster(NamedTuple):
    """Servers by the algorithm of their tokens, and what a client shows in TLS."""

    by: dict[str, Signed]
    trust: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("security")
    authority = Authority(folder)
    certificate, key = authority.sign("server", "server")
    users = folder / "users"
    users.write_text(PASSWORDS)
    users.chmod(0o600)
    keys: dict[str, Any] = {
        "RS256": rsa.generate_private_key(65537, 2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
    }
    by = {}
    with ExitStack() as stack:
        for algorithm, private in keys.items():
            public = folder / f"{algorithm}.pem"
            data = private.public_key().public_bytes(
                Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
            )
            public.write_bytes(data)
            server = standalone_in_thread(
                authentication="token,basic,tls",
                token_public_key=str(public),
                basic_users=str(users),
                authentication_refresh_s=REFRESH_S,
                superuser_roles="carol, admin, alice",
                tls_port=0,
                web_tls_port=0,
                tls_certificate=str(certificate),
                tls_key=str(key),
                tls_trust=str(authority.file),
            )
            by[algorithm] = Signed(stack.enter_context(server), private, algorithm)
        # The Java client reads RSA keys alone.
        shown = authority.sign("alice", "client", rsa.generate_private_key(65537, 2048))
        yield Cluster(by, authority.file, *shown)


def is_let_in(url: str, shown: Any, patience_s: int = 30, **options: Any) -> bool:
    """Whether the Python client can publish; one that is turned away tries until its time is up."""
    client = pulsar.Client(url, shown, operation_timeout_seconds=patience_s, **options)
    try:
        client.create_producer(f"python-{time.monotonic_ns()}").send(b"x")
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
    return True


@pytest.mark.goal("core.B17", part="python client", broken_by="tokens_are_not_checked")
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_the_python_client_shows_tokens(cluster: Cluster, algorithm: str) -> None:
    signed = cluster.by[algorithm]
    url = signed.server.service_url
    assert is_let_in(url, pulsar.AuthenticationToken(signed.token("carol")))
    other = next(each for name, each in cluster.by.items() if name != algorithm)
    assert not is_let_in(url, pulsar.AuthenticationToken(other.token("carol")), patience_s=2)


@pytest.mark.goal("core.B17", part="python client", broken_by="passwords_are_not_compared")
def test_the_python_client_shows_a_password(cluster: Cluster) -> None:
    url = cluster.by["RS256"].server.service_url
    assert is_let_in(url, pulsar.AuthenticationBasic("admin", "123456"))
    assert not is_let_in(url, pulsar.AuthenticationBasic("admin", "654321"), patience_s=2)


@pytest.mark.goal("core.B17", part="python client", broken_by="certificates_are_not_looked_at")
def test_the_python_client_shows_a_certificate(cluster: Cluster) -> None:
    url = cluster.by["RS256"].server.service_url_tls
    trust = {"tls_trust_certs_file_path": str(cluster.trust)}
    shown = pulsar.AuthenticationTLS(str(cluster.certificate), str(cluster.key))
    assert is_let_in(url, shown, **trust)
    assert not is_let_in(url, None, **trust, patience_s=2)


@pytest.mark.goal("core.B17", part="refresh", broken_by="credentials_last_forever")
def test_the_python_client_is_asked_for_a_fresh_token(cluster: Cluster) -> None:
    signed = cluster.by["RS256"]
    asked: list[float] = []

    def fresh() -> str:
        asked.append(time.monotonic())
        return signed.token("carol", lasts_s=1.0)

    client = pulsar.Client(signed.server.service_url, pulsar.AuthenticationToken(fresh))
    try:
        producer = client.create_producer("python-refreshed")
        producer.send(b"before")
        before, deadline = len(asked), time.monotonic() + 30
        while len(asked) == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(asked) > before, "nobody asked for a fresh token"
        producer.send(b"after")
    finally:
        client.close()


@contextmanager
def always_fresh(signed: Signed, file: Path) -> Iterator[Path]:
    """A file with a token that has only just been signed, and ends soon."""
    done = Event()

    def write() -> None:
        beside = file.with_suffix(".next")
        beside.write_text(signed.token("carol", lasts_s=5.0))
        beside.replace(file)

    def write_on() -> None:
        while not done.wait(0.5):
            write()

    write()
    writer = Thread(target=write_on)
    writer.start()
    try:
        yield file
    finally:
        done.set()
        writer.join()


@pytest.mark.peer
@pytest.mark.timeout(300)
@pytest.mark.goal("core.B17", part="java client", broken_by="credentials_last_forever")
def test_the_java_client_shows_all_of_them(cluster: Cluster, tmp_path: Path) -> None:
    first, second = cluster.by["RS256"], cluster.by["ES256"]
    with always_fresh(first, tmp_path / "token") as fresh:
        said = said_by(
            PROGRAM,
            *(first.server.service_url, first.server.service_url_tls, second.server.service_url),
            *(first.token("carol"), second.token("carol"), second.token("carol")),
            *(str(cluster.trust), str(cluster.certificate), str(cluster.key), str(fresh)),
        )
    assert marked_lines(said) == LET_IN
