"""Our client and a real bookie that speaks TLS."""

import subprocess
from pathlib import Path

import pytest

from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.factory import open_store
from anabranch.runtime.network import Tls
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def certificate(folder: Path) -> tuple[Path, Path]:
    """The key and certificate of a server on the loopback."""
    key, public = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=bookie"
    names = "-addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*command.split(), *names.split(), "-keyout", str(key), "-out", str(public)],
        check=True,
        capture_output=True,
    )
    return key, public


async def test_entries_travel_in_tls(tmp_path: Path) -> None:
    key, public = certificate(tmp_path)
    settings = {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(key),
        "tlsCertificatePath": str(public),
        "tlsClientAuthentication": "false",
    }
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 1, settings=settings) as bookies:
            runtime = real_runtime()
            metadata = await open_store(ensemble.url, runtime)
            secured = BookKeeperSettings(
                ensemble_size=1, write_quorum=1, ack_quorum=1, tls=Tls(ca_file=str(public))
            )
            store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, secured)
            await registered(store, 1)
            writer = await store.create(1)
            await append(writer, b"secret", bytes(300_000))
            link = store.cluster.links.link(f"127.0.0.1:{bookies.ports[0]}")
            assert link.cipher is not None
            await writer.close()
            assert await payloads_of(await store.open(1)) == [b"secret", bytes(300_000)]
            await store.close()
            await metadata.close()
