"""Apache BookKeeper: any number of bookies that share one metadata store.

They use Pulsar's metadata driver, as the bookies of a Pulsar cluster do, and come with its jars.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.testing.servers.failures import ToolFailed
from anabranch.testing.servers.limits import SERVER_READY_S_MAX
from anabranch.testing.servers.member import Member, group, port_answers
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.pulsar import java_command

MAIN_CLASS: Final = "org.apache.bookkeeper.server.Main"
SHELL_CLASS: Final = "org.apache.bookkeeper.bookie.BookieShell"
TLS_WITHOUT_JARS: Final = ("bc-fips-",)
"""With two cryptographic libraries of one name among the jars a bookie does not start with TLS."""
MEMORY: Final = ("-Xmx512m", "-XX:MaxDirectMemorySize=512m")


def _settings(home: Path, port: int, metadata_url: str) -> dict[str, str]:
    return {
        "bookiePort": str(port),
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "metadataServiceUri": f"metadata-store:{metadata_url}",
        "journalDirectories": str(home / "journal"),
        "ledgerDirectories": str(home / "ledgers"),
        "indexDirectories": str(home / "index"),
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "64",
        "dbStorage_readAheadCacheMaxSizeMb": "32",
        "dbStorage_rocksDB_blockCacheSize": "16777216",
        "journalMaxSizeMB": "128",
        "journalPreAllocSizeMB": "4",
        "httpServerEnabled": "false",
        "autoRecoveryDaemonEnabled": "false",
        # As Pulsar's own configuration of bookies has it: its largest messages fit.
        "nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX),
    }


@dataclass(frozen=True, slots=True)
class BookieIdentity:
    """Files in PEM, and roles: a client is let in whose certificate has one as OU (`0:ROLE`)."""

    certificate: Path
    key: Path
    trusted: Path
    """Certificates, or their authorities, of those who may come."""
    roles: tuple[str, ...]


def _tls_settings(identity: BookieIdentity) -> dict[str, str]:
    return {
        "tlsProvider": "JDK",
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": str(identity.key),
        "tlsCertificatePath": str(identity.certificate),
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": str(identity.trusted),
        "tlsClientAuthentication": "true",
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.tls.BookieAuthZFactory",
        "authorizedRoles": ",".join(identity.roles),
    }


def point(bookie: Member, metadata_url: str) -> None:
    """Have a bookie start with another metadata store the next time."""
    conf = bookie.folder / "bookie.conf"
    lines = [
        f"metadataServiceUri=metadata-store:{metadata_url}"
        if line.startswith("metadataServiceUri=")
        else line
        for line in conf.read_text().splitlines()
    ]
    conf.write_text("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class BookKeeper:
    """Running bookies."""

    members: tuple[Member, ...]
    ports: tuple[int, ...]

    def move(self, metadata_url: str) -> None:
        """Restart every bookie with another metadata store, one after the other."""
        for member in self.members:
            member.stop()
            point(member, metadata_url)
            member.start()

    def shell(self, *arguments: str) -> str:
        """Run `bookkeeper shell` as the first bookie is configured; return what it printed.

        Raises:
            ToolFailed: if it ends with an error.
        """
        home = self.members[0].folder
        command = java_command(home, "-Xmx256m", main=SHELL_CLASS)
        done = subprocess.run(
            [*command, "-conf", str(home / "bookie.conf"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=SERVER_READY_S_MAX,
        )
        if done.returncode:
            raise ToolFailed(f"bookkeeper shell {' '.join(arguments)}:\n{done.stdout[-4000:]}")
        return done.stdout


@contextmanager
def bookkeeper(
    metadata_url: str,
    bookies: int = 3,
    *,
    folder: Path | None = None,
    ports: Sequence[int] = (),
    settings: Mapping[str, str] | None = None,
    identity: BookieIdentity | None = None,
    java_options: Sequence[str] = (),
) -> Iterator[BookKeeper]:
    """Run bookies on a metadata store that was set up for them, for as long as the body runs.

    Args:
        metadata_url: of the store as Pulsar writes it, such as `zk:127.0.0.1:2181/chroot`.
        bookies: how many, if no ports are given.
        folder: for data, configuration and logs; kept. Without it, a temporary one.
        ports: of bookies that were here before: a bookie is known by its port, for good.
        settings: added to, or put in place of, the lines of each bookie's configuration.
        identity: with which the bookies speak TLS, and refuse whoever has no role that they know.
        java_options: of each bookie's virtual machine.

    Raises:
        MissingTool: if Java or the jars are missing.
        ServerFailed: if a bookie does not become ready.
    """
    chosen = tuple(ports) or tuple(free_port() for _ in range(bookies))
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        for number, port in enumerate(chosen, start=1):
            home = root / f"bookie-{number}"
            home.mkdir(parents=True, exist_ok=True)
            lines = _settings(home, port, metadata_url) | dict(settings or {})
            lines |= _tls_settings(identity) if identity else {}
            (home / "bookie.conf").write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
            without_jars = TLS_WITHOUT_JARS if identity else ()
            command = java_command(
                home, *MEMORY, *java_options, main=MAIN_CLASS, without_jars=without_jars
            )
            members.append(
                Member(
                    f"bookie-{number}",
                    [*command, "--conf", str(home / "bookie.conf")],
                    folder=home,
                    ready=partial(port_answers, port),
                )
            )
        return members

    with group("bookkeeper", folder, build):
        yield BookKeeper(tuple(members), chosen)
