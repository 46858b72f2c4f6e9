"""Apache Pulsar as a cluster: its metadata set up once, then any number of brokers."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from anabranch.testing.servers.failures import ToolFailed
from anabranch.testing.servers.limits import SERVER_READY_S_MAX
from anabranch.testing.servers.member import Member, group
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.pulsar import java_command
from anabranch.testing.servers.standalone import healthy

SETUP_CLASS: Final = "org.apache.pulsar.PulsarClusterMetadataSetup"
BROKER_CLASS: Final = "org.apache.pulsar.PulsarBrokerStarter"
MEMORY: Final = ("-Xmx1g", "-XX:MaxDirectMemorySize=1g")


def set_up_cluster(metadata_url: str, *, cluster: str = "test", port: int, web_port: int) -> None:
    """Write what brokers and bookies expect to find in a new metadata store.

    Raises:
        ToolFailed: with the end of its output, if Pulsar's own tool fails.
    """
    with TemporaryDirectory(prefix="anabranch-setup-") as folder:
        command = java_command(Path(folder), "-Xmx256m", main=SETUP_CLASS)
        done = subprocess.run(
            [
                *command,
                *("--cluster", cluster),
                *("--metadata-store", metadata_url),
                *("--configuration-metadata-store", metadata_url),
                *("--web-service-url", f"http://127.0.0.1:{web_port}"),
                *("--broker-service-url", f"pulsar://127.0.0.1:{port}"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SERVER_READY_S_MAX,
        )
    if done.returncode:
        raise ToolFailed(f"Pulsar's set-up of {metadata_url} failed:\n{done.stdout[-4000:]}")


@dataclass(frozen=True, slots=True)
class PulsarBrokers:
    """Running brokers."""

    members: tuple[Member, ...]
    ports: tuple[int, ...]
    web_ports: tuple[int, ...]

    @property
    def service_url(self) -> str:
        """What clients connect to: every broker."""
        return "pulsar://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def web_url(self) -> str:
        """What administrators connect to: the first broker."""
        return f"http://127.0.0.1:{self.web_ports[0]}"


@contextmanager
def pulsar_brokers(
    metadata_url: str,
    brokers: int = 1,
    *,
    cluster: str = "test",
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
    memory: tuple[str, ...] = MEMORY,
) -> Iterator[PulsarBrokers]:
    """Run brokers of a cluster that was set up and has bookies, for as long as the body runs.

    Raises:
        MissingTool: if Java or the jars are missing.
        ServerFailed: if a broker does not become healthy.
    """
    ports = tuple(free_port() for _ in range(brokers))
    web_ports = tuple(free_port() for _ in range(brokers))
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        for number, (port, web_port) in enumerate(zip(ports, web_ports, strict=True), start=1):
            home = root / f"broker-{number}"
            home.mkdir(parents=True, exist_ok=True)
            lines = {
                "clusterName": cluster,
                "metadataStoreUrl": metadata_url,
                "configurationMetadataStoreUrl": metadata_url,
                "brokerServicePort": str(port),
                "webServicePort": str(web_port),
                "bindAddress": "127.0.0.1",
                "advertisedAddress": "127.0.0.1",
                "managedLedgerDefaultEnsembleSize": "1",
                "managedLedgerDefaultWriteQuorum": "1",
                "managedLedgerDefaultAckQuorum": "1",
                **(settings or {}),
            }
            conf = home / "broker.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            command = java_command(home, *memory, main=BROKER_CLASS)
            members.append(
                Member(
                    f"broker-{number}",
                    [*command, "--broker-conf", str(conf)],
                    folder=home,
                    ready=partial(healthy, web_port),
                )
            )
        return members

    with group("pulsar", folder, build):
        yield PulsarBrokers(tuple(members), ports, web_ports)
