"""Apache ZooKeeper, alone or as an ensemble. It comes with Pulsar's jars, in Pulsar's version."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.limits import SERVER_PROBE_S_MAX
from anabranch.testing.servers.member import Member, group
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.pulsar import java_command

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def four_letters(port: int, word: str) -> str:
    """Ask a server one of ZooKeeper's four-letter questions; "" if it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), SERVER_PROBE_S_MAX) as peer:
            peer.sendall(word.encode())
            return b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    except OSError:
        return ""


def _answers(port: int) -> bool:
    return "Mode: " in four_letters(port, "srvr")


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    """A running ensemble."""

    members: tuple[Member, ...]
    ports: tuple[int, ...]

    @property
    def servers(self) -> str:
        """What clients connect to: `host:port` of every member."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def url(self) -> str:
        """The ensemble as Pulsar writes it."""
        return f"zk:{self.servers}"

    def leader(self) -> Member | None:
        """The member that leads, or is alone; None while there is none."""
        for member, port in zip(self.members, self.ports, strict=True):
            answer = four_letters(port, "srvr") if member.running else ""
            if "Mode: leader" in answer or "Mode: standalone" in answer:
                return member
        return None


def _settings(data: Path, port: int, ensemble: Mapping[int, tuple[int, int]]) -> str:
    lines = {
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "*",
        "extendedTypesEnabled": "true",
    }
    if len(ensemble) > 1:
        lines |= {"initLimit": "20", "syncLimit": "10"}
        lines |= {
            f"server.{number}": f"127.0.0.1:{peer}:{election}"
            for number, (peer, election) in ensemble.items()
        }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


@contextmanager
def zookeeper(
    nodes: int = 1,
    *,
    port: int | None = None,
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
    memory: tuple[str, ...] = ("-Xmx512m",),
) -> Iterator[ZooKeeper]:
    """Run an ensemble for as long as the body runs.

    Args:
        nodes: 1, or an odd number of voters.
        port: of the only node; without it, a free one.
        folder: for data, configuration and logs; kept. Without it, a temporary one.
        settings: added to, or put in place of, the lines of each `zoo.cfg`.
        memory: the JVM's memory options.

    Raises:
        MissingTool: if Java or the jars are missing.
        ServerFailed: if a node does not become ready.
    """
    assert port is None or nodes == 1, "a port is chosen for one node alone"
    find_java()
    ports = tuple(port or free_port() for _ in range(nodes))
    ensemble = {number + 1: (free_port(), free_port()) for number in range(nodes)}
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        for number, port in enumerate(ports, start=1):
            home = root / f"zookeeper-{number}"
            data = home / "data"
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(f"{number}\n")
            extra = "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
            (home / "zoo.cfg").write_text(_settings(data, port, ensemble) + extra)
            # An ensemble that starts on empty folders must not take that for lost data.
            flags = (*memory, "-Dzookeeper.snapshot.trust.empty=true")
            command = java_command(home, *flags, main=MAIN_CLASS)
            members.append(
                Member(
                    f"zookeeper-{number}",
                    [*command, str(home / "zoo.cfg")],
                    folder=home,
                    ready=partial(_answers, port),
                )
            )
        return members

    with group("zookeeper", folder, build):
        yield ZooKeeper(tuple(members), ports)
