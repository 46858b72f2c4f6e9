"""Our own brokers of a cluster as child processes, in the shape of Pulsar's."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from anabranch.ids import TopicName
from anabranch.testing.broker_links import BrokerLinks
from anabranch.testing.planted import child_command
from anabranch.testing.servers.failures import ToolFailed
from anabranch.testing.servers.limits import SERVER_PROBE_S_MAX, SERVER_READY_S_MAX
from anabranch.testing.servers.member import Member, group
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.standalone import healthy

LEDGERS_URL: Final = "bookkeeper:?ensemble=3&write=3&ack=2"


def init_cluster(metadata_url: str, *, cluster: str = "test", configuration_url: str = "") -> None:
    """Prepare a metadata store with our own tool, and a configuration store if there is one.

    Raises:
        ToolFailed: with its output, if it fails.
    """
    command = child_command("anabranch", "cluster", "init")
    done = subprocess.run(
        [
            *(*command, "--cluster", cluster, "--metadata-url", metadata_url),
            *("--configuration-metadata-url", configuration_url),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SERVER_READY_S_MAX,
    )
    if done.returncode:
        raise ToolFailed(f"anabranch cluster init of {metadata_url} failed:\n{done.stdout}")


@dataclass(frozen=True, slots=True)
class OurBrokers:
    """Running brokers."""

    members: tuple[Member, ...]
    ports: tuple[int, ...]
    web_ports: tuple[int, ...]

    @property
    def service_url(self) -> str:
        """What clients connect to: every broker."""
        return "pulsar://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def owner(self, topic: str, *, asked: Sequence[Member] = ()) -> Member | None:
        """Who serves a topic, by what the first broker says that answers; None if nobody knows.

        All are asked, one after the other, or those of them that are named.
        """
        name = TopicName.parse(topic)
        path = f"/lookup/v2/topic/{name.domain}/{name.namespace_name}/{name.local}"
        for member, web_port in zip(self.members, self.web_ports, strict=True):
            if not member.running or (asked and member not in asked):
                continue
            connection = HTTPConnection("127.0.0.1", web_port, timeout=SERVER_PROBE_S_MAX)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, HTTPException):
                continue
            finally:
                connection.close()
            if answer.status == 200:
                port = int(json.loads(body)["brokerUrl"].rpartition(":")[2])
                return self.members[self.ports.index(port)]
        return None


@contextmanager
def our_brokers(
    metadata_url: str,
    brokers: int = 3,
    *,
    cluster: str = "test",
    ledgers_url: str = LEDGERS_URL,
    options: Sequence[str] = (),
    links: Sequence[BrokerLinks] = (),
    folder: Path | None = None,
) -> Iterator[OurBrokers]:
    """Run `anabranch broker` several times on a cluster that was set up and has bookies.

    With links, each broker reaches its stores by those that are its own.

    Raises:
        ServerFailed: if a broker does not become healthy.
    """
    ports = tuple(free_port() for _ in range(brokers))
    web_ports = tuple(free_port() for _ in range(brokers))
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        for number, (port, web_port) in enumerate(zip(ports, web_ports, strict=True), start=1):
            own = links[number - 1] if links else None
            words = (
                *("anabranch", "broker", "--cluster", cluster),
                *("--port", str(port), "--web-port", str(web_port)),
                *("--metadata-url", own.metadata_url if own else metadata_url),
                *("--ledgers-url", ledgers_url, *options),
            )
            command = child_command(*(own.arguments(words) if own else words))
            members.append(
                Member(
                    f"broker-{number}",
                    command,
                    folder=root / f"broker-{number}",
                    ready=partial(healthy, web_port),
                )
            )
        return members

    with group("brokers", folder, build):
        yield OurBrokers(tuple(members), ports, web_ports)
