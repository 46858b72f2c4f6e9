"""A ZooKeeper that wants TLS and SASL: who has the right files and passwords gets in."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.errors import ConfigError, InputError
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import free_port, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
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
