"""A ZooKeeper that wants TLS and SASL: who has the right files and passwords gets in."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.errors import ConfigError, InputError
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import free_port, zookeeper

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.M11", part="zookeeper"),
]
PASSWORD = "s3cret, = and more"
JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_bob="s3cret, = and more"
  user_eve="another";
};
"""


@dataclass
class Guarded:
    plain: str
    secure: str
    authority: Path
    stranger: Path
    """An authority that has signed nothing here."""


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, signed = folder / f"{name}.key", folder / f"{name}.crt"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(signed)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return key, signed


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("credentials")
    key, signed = certificate(folder, "server")
    _, stranger = certificate(folder, "stranger")
    store = folder / "server.pem"
    store.write_text(key.read_text() + signed.read_text())
    jaas = folder / "jaas.conf"
    jaas.write_text(JAAS)
    port = free_port()
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "ssl.keyStore.location": str(store),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(signed),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    memory = ("-Xmx512m", f"-Djava.security.auth.login.config={jaas}")
    with zookeeper(settings=settings, memory=memory) as ensemble:
        yield Guarded(ensemble.url, f"zk:127.0.0.1:{port}", signed, stranger)


async def test_tls_with_the_right_authority(guarded: Guarded) -> None:
    url = f"{guarded.secure}/tls?tls.ca={guarded.authority}"
    store = await ZooKeeperStore.open(real_runtime(), url)
    stat = await store.put("/a", b"x" * 500_000)
    node = await store.get("/a")
    assert node is not None
    assert node.stat == stat
    await store.close()


async def test_tls_with_another_authority_is_refused(guarded: Guarded) -> None:
    with pytest.raises(ConfigError, match="not trusted"):
        await ZooKeeperStore.open(real_runtime(), f"{guarded.secure}/tls?tls.ca={guarded.stranger}")


async def test_tls_with_a_missing_file_is_refused(guarded: Guarded) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        await ZooKeeperStore.open(real_runtime(), f"{guarded.secure}/tls?tls.ca=missing.pem")


async def test_sasl_proves_who_we_are(guarded: Guarded) -> None:
    runtime = real_runtime()
    bob = [("sasl", f"bob:{PASSWORD}".encode())]
    store = await ZooKeeperStore.open(runtime, f"{guarded.plain}/sasl", identities=bob)
    await store.client.create("/bobs", b"x", acl=[Acl(31, "sasl", "bob")])
    node = await store.get("/bobs")
    assert node is not None
    eve = await ZooKeeperStore.open(
        runtime, f"{guarded.plain}/sasl", identities=[("sasl", b"eve:another")]
    )
    with pytest.raises(InputError, match="ACL"):
        await eve.get("/bobs")
    await eve.close()
    await store.close()


@pytest.mark.parametrize("identity", [b"bob:wrong", b"nobody:x", b"bob"])
async def test_wrong_password_is_one_clear_error(guarded: Guarded, identity: bytes) -> None:
    with pytest.raises(ConfigError, match="credentials") as refused:
        await ZooKeeperStore.open(
            real_runtime(), f"{guarded.plain}/sasl", identities=[("sasl", identity)]
        )
    assert "wrong" not in str(refused.value)


# --- by the file of credentials ---------------------------------------------------------------


def secrets(folder: Path, password: str, *more: str) -> Path:
    file = folder / "secrets.toml"
    lines = [
        'format = "anabranch.metadata-credentials"',
        "version = 1",
        "[[zookeeper.identity]]",
        'scheme = "sasl"',
        'user = "bob"',
        f'password = "{password}"',
        *more,
    ]
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return file


def anabranch(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch", *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_commands_take_the_file(guarded: Guarded, tmp_path: Path) -> None:
    tls = ("[zookeeper.tls]", f'ca = "{guarded.authority}"')
    file = secrets(tmp_path, PASSWORD, *tls)
    url = f"{guarded.secure}/commands?acl=creator"
    options = ("--url", url, "--credentials", file)
    written = anabranch("metadata", "put", "/bobs", "--value", "x", *options)
    assert (written.returncode, written.stderr) == (0, "")
    assert anabranch("metadata", "get", "/bobs", *options).stdout == "x\n"
    exported = anabranch("metadata", "export", tmp_path / "all", *options)
    assert exported.returncode == 0
    stranger = anabranch("metadata", "get", "/bobs", "--url", f"{guarded.plain}/commands")
    assert stranger.returncode == 2
    assert "ACL" in stranger.stderr
    for result in (written, exported, stranger):
        assert PASSWORD not in result.stdout + result.stderr
    assert PASSWORD.encode() not in (tmp_path / "all").read_bytes()


def test_commands_with_a_wrong_password(guarded: Guarded, tmp_path: Path) -> None:
    file = secrets(tmp_path, "wr0ng")
    file.chmod(0o644)
    result = anabranch(
        "metadata", "get", "/", "--url", f"{guarded.plain}/sasl", "--credentials", file
    )
    assert (result.returncode, result.stdout) == (2, "")
    warning, error = result.stderr.splitlines()
    assert warning.startswith("warning: ")
    assert "chmod 600" in warning
    assert error == "error: ZooKeeper does not accept the credentials: check them"
    file.chmod(0o600)
    plain = ("--url", f"{guarded.plain}/wrong-password")
    put = anabranch("metadata", "put", "/a", "--value", "x", *plain, "--credentials", file)
    assert (put.returncode, put.stdout, put.stderr) == (2, "", f"{error}\n")
    there = anabranch("metadata", "ls", "/", *plain)
    assert (there.returncode, "there is no node /wrong-password" in there.stderr) == (1, True)


def test_server_with_a_wrong_password_does_not_start(guarded: Guarded, tmp_path: Path) -> None:
    file = secrets(tmp_path, "wr0ng")
    result = anabranch(
        *("standalone", "--data", tmp_path / "data", "--port", "0", "--web-port", "0"),
        *("--metadata-url", f"{guarded.plain}/sasl", "--metadata-credentials", file),
        *("--log-level", "debug"),
    )
    assert result.returncode == 2
    assert "ZooKeeper does not accept the credentials" in result.stderr
    assert "wr0ng" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
