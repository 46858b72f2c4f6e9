"""A real Oxia that speaks TLS: who trusts its certificate gets in, and nobody else."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch import limits
from anabranch.errors import ConfigError, Unreachable
from anabranch.metadata.credentials import Credentials
from anabranch.metadata.factory import open_store
from anabranch.runtime.network import Tls
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.oxia import Identity, oxia

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.goal("core.M11", part="oxia"),
]


@dataclass
class Secured:
    port: int
    authority: Path
    stranger: Path
    """An authority that has signed nothing here."""


def certificate(folder: Path, name: str) -> Identity:
    key, signed = folder / f"{name}.key", folder / f"{name}.crt"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=oxia", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(signed)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return Identity(signed, key)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("credentials")
    identity, stranger = certificate(folder, "server"), certificate(folder, "stranger")
    with oxia(2, identity=identity) as server:
        yield Secured(server.port, identity.certificate, stranger.certificate)


def trusting(authority: Path) -> Credentials:
    return Credentials(oxia_tls=Tls(str(authority)), oxia_token="not-asked-for")


async def test_tls_with_the_right_authority(secured: Secured) -> None:
    url = f"oxia://127.0.0.1:{secured.port}/default"
    store = await open_store(url, real_runtime(), credentials=trusting(secured.authority))
    watch = store.watch()
    stat = await store.put("/a", b"x" * 500_000, ephemeral=True)
    node = await store.get("/a")
    assert node is not None
    assert node.stat == stat
    assert (await anext(watch)).path == "/a"
    await store.close()


async def test_tls_with_another_authority_is_refused(secured: Secured) -> None:
    url = f"oxia://127.0.0.1:{secured.port}/default"
    with pytest.raises(ConfigError, match=r"of Oxia at 127.0.0.1:\d+ is not trusted"):
        await open_store(url, real_runtime(), credentials=trusting(secured.stranger))


async def test_commands_with_a_wrong_authority_change_nothing(
    secured: Secured, tmp_path: Path
) -> None:
    def run(authority: Path, *words: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "credentials.toml"
        head = 'format = "anabranch.metadata-credentials"\nversion = 1\n'
        file.write_text(f'{head}[oxia]\ntoken = "secret"\n[oxia.tls]\nca = "{authority}"\n')
        file.chmod(0o600)
        url = f"oxia://127.0.0.1:{secured.port}/default"
        options = ["--url", url, "--credentials", str(file)]
        command = [sys.executable, "-m", "anabranch", "metadata", *words, *options]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    put = await asyncio.to_thread(run, secured.stranger, "put", "/by-command", "--value", "x")
    assert (put.returncode, put.stdout) == (2, "")
    assert put.stderr.startswith(f"error: the certificate of Oxia at 127.0.0.1:{secured.port}")
    assert put.stderr.count("\n") == 1
    assert "secret" not in put.stderr
    there = await asyncio.to_thread(run, secured.authority, "ls", "/")
    assert (there.returncode, "by-command" in there.stdout) == (0, False)


async def test_certificate_of_another_name_is_refused(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 3.0)
    url = f"oxia://localhost:{secured.port}/default"
    with pytest.raises((ConfigError, Unreachable)) as refused:
        await open_store(url, real_runtime(), credentials=trusting(secured.authority))
    assert "localhost" in str(refused.value)


async def test_without_tls_nobody_answers(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 3.0)
    url = f"oxia://127.0.0.1:{secured.port}/default"
    with pytest.raises(Unreachable, match="UNAVAILABLE"):
        await open_store(url, real_runtime())
