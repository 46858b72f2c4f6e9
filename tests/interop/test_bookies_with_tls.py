"""A real bookie that speaks TLS and lets in who has a role that it knows, and nobody else."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.factory import open_store
from anabranch.runtime.network import Tls
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.servers.bookkeeper import BookieIdentity

pytestmark = [pytest.mark.peer, pytest.mark.timeout(200)]


@dataclass(frozen=True)
class Secured:
    """A bookie, and the certificates of those who want something of it."""

    metadata_url: str
    folder: Path

    def tls(self, who: str, *, trusting: str = "bookie") -> Tls:
        files = (self.folder / f"{trusting}.crt", self.folder / f"{who}.crt")
        return Tls(*map(str, (*files, self.folder / f"{who}.key")))


def certify(folder: Path, name: str, role: str) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    words = ["-subj", f"/OU=0:{role}/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
    subprocess.run([*command.split(), *words, *files], check=True, capture_output=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    for name, role in (("bookie", "bookie"), ("writer", "writer"), ("reader", "reader")):
        certify(folder, name, role)
    trusted = folder / "trusted.crt"
    trusted.write_bytes(b"".join((folder / f"{n}.crt").read_bytes() for n in ("writer", "reader")))
    identity = BookieIdentity(folder / "bookie.crt", folder / "bookie.key", trusted, ("writer",))
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 1, identity=identity):
            yield Secured(ensemble.url, folder)


async def write_and_read(secured: Secured, ledger_id: int, tls: Tls | None) -> list[bytes]:
    runtime = real_runtime()
    metadata = await open_store(secured.metadata_url, runtime)
    settings = BookKeeperSettings(1, 1, 1, tls=tls, quorum_wait_s=1, connect_timeout_s=5)
    store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
    try:
        await registered(store, 1)
        writer = await store.create(ledger_id)
        for number in range(3):
            await append(writer, b"%d" % number)
        await writer.close()
        return await payloads_of(await store.open(ledger_id))
    finally:
        await store.close()
        await metadata.close()


@pytest.mark.goal("core.L3", part="TLS and roles")
async def test_a_role_that_is_known_is_let_in(secured: Secured) -> None:
    assert await write_and_read(secured, 1000, secured.tls("writer")) == [b"0", b"1", b"2"]


@pytest.mark.goal("core.L3", part="TLS and roles")
@pytest.mark.parametrize(
    ("ledger_id", "who", "trusting", "said"),
    [
        (1, "reader", "bookie", "or whoever comes with these credentials"),
        (2, "bookie", "bookie", "nobody takes the place of 127.0.0.1"),
        (3, "writer", "writer", "the certificate of 127.0.0.1 is not trusted"),
        (4, "nobody", "", "or whoever comes with these credentials"),
    ],
    ids=["another role", "not trusted", "does not trust the bookie", "no TLS"],
)
async def test_others_are_refused(
    secured: Secured, ledger_id: int, who: str, trusting: str, said: str
) -> None:
    tls = None if who == "nobody" else secured.tls(who, trusting=trusting)
    with pytest.raises(AnabranchError, match=said):
        await write_and_read(secured, ledger_id, tls)
