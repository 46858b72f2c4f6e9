"""`anabranch produce` and `anabranch consume` on a server that lets in only who is known."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from anabranch.testing.certificates import Authority
from anabranch.testing.planted import child_command
from anabranch.testing.servers import anabranch_standalone, free_port

SECRET = b"a shared secret of more than 32 bytes"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


class Guarded:
    """A server with tokens and TLS, and the files of those who know it."""

    def __init__(self, folder: Path, service_url: str, tls_url: str) -> None:
        self.folder = folder
        self.service_url = service_url
        self.tls_url = tls_url

    def access(self, *lines: str) -> str:
        """A file that says who somebody is."""
        token = self.folder / "token"
        token.write_text(jwt.encode({"sub": "root"}, SECRET, algorithm="HS256") + "\n")
        file = self.folder / "access.toml"
        file.write_text("\n".join((f'token_file = "{token}"', *lines)))
        return str(file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    key = folder / "secret"
    key.write_bytes(SECRET)
    key.chmod(0o600)
    certificate, certificate_key = Authority(folder).sign("server", "server")
    port = free_port()
    options = (
        *("--authentication", "token", "--token-secret-key", str(key)),
        *("--superuser-roles", "root", "--tls-port", str(port), "--web-tls-port", "0"),
        *("--tls-certificate", str(certificate), "--tls-key", str(certificate_key)),
    )
    with anabranch_standalone(options=options) as running:
        yield Guarded(folder, running.service_url, f"pulsar+ssl://127.0.0.1:{port}")


def said_by(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*child_command("anabranch"), *words],
        check=False, capture_output=True, text=True, timeout=60, env=ENVIRONMENT,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.goal("core.B26", part="nouns", broken_by="sdk_shows_nothing")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_messages_of_somebody_who_is_known(server: Guarded, tls: bool) -> None:
    url, lines = server.service_url, ()
    if tls:
        url, lines = server.tls_url, (f'tls_trust = "{server.folder / "authority.pem"}"',)
    where = ("--url", url, "--access", server.access(*lines))
    topic = f"known-{tls}".lower()
    assert said_by("produce", topic, "-m", "hello", *where) == (
        0,
        f"published 1 of 1 messages to {topic}\n",
    )
    earliest = ("-s", "s", "--position", "earliest", "--timeout", "20")
    assert said_by("consume", topic, *earliest, *where) == (0, "hello\n")
    assert said_by("consume", topic, "--from", "earliest", *where) == (0, "hello\n")


def test_strangers_are_told_why_they_may_not(server: Guarded) -> None:
    code, said = said_by("produce", "t", "-m", "x", "--url", server.service_url)
    assert code == 2
    assert "AuthenticationError" in said
    code, said = said_by("consume", "t", "--url", server.service_url, "--access", "nowhere.toml")
    assert (code, said) == (2, "error: nowhere.toml cannot be read: No such file or directory\n")
