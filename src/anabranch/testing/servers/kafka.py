"""Apache Kafka: one node that is broker and controller in one (KRaft)."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from anabranch.testing.servers.cache import locate
from anabranch.testing.servers.failures import ToolFailed
from anabranch.testing.servers.java import find_java
from anabranch.testing.servers.limits import SERVER_READY_S_MAX
from anabranch.testing.servers.member import Member, group, port_answers
from anabranch.testing.servers.process import free_port

MAIN_CLASS: Final = "kafka.Kafka"
STORAGE_CLASS: Final = "kafka.tools.StorageTool"
TOPICS_CLASS: Final = "org.apache.kafka.tools.TopicCommand"
PUBLISH_CLASS: Final = "org.apache.kafka.tools.ProducerPerformance"
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Kafka wants 16 bytes in base64; every test has a cluster of its own, so one id serves all."""


def _java_command(*options: str, main: str) -> list[str]:
    java = find_java()
    return [str(java.program), *java.flags, *options, "-cp", f"{locate('kafka')}/*", main]


def _run(*arguments: str, main: str) -> str:
    """Run one of Kafka's tools to its end and return what it printed.

    Raises:
        ToolFailed: with the end of its output, if it ends with an error.
    """
    done = subprocess.run(
        [*_java_command("-Xmx256m", main=main), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SERVER_READY_S_MAX,
    )
    if done.returncode:
        raise ToolFailed(f"{main} {' '.join(arguments)}:\n{done.stdout[-4000:]}")
    return done.stdout


def _settings(home: Path, port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running node."""

    server: Member
    port: int

    @property
    def bootstrap_server(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def topics(self, *arguments: str) -> str:
        """Run `kafka-topics` against the node and return what it printed.

        Raises:
            ToolFailed: if it ends with an error.
        """
        return _run("--bootstrap-server", self.bootstrap_server, *arguments, main=TOPICS_CLASS)

    def publish(self, topic: str, records: int, size: int, per_s: int) -> str:
        """Publish records of one size with `kafka-producer-perf-test`; returns what it printed.

        Raises:
            ToolFailed: if it ends with an error, or does not end within two minutes.
        """
        wishes = {"topic": topic, "num-records": records, "record-size": size, "throughput": per_s}
        words = [word for name, value in wishes.items() for word in (f"--{name}", str(value))]
        server = f"bootstrap.servers={self.bootstrap_server}"
        return _run(*words, "--producer-props", server, main=PUBLISH_CLASS)


@contextmanager
def kafka(
    *,
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
    memory: tuple[str, ...] = ("-Xmx1g",),
) -> Iterator[Kafka]:
    """Run one node for as long as the body runs.

    Args:
        folder: for data, configuration and logs; kept. Without it, a temporary one.
        settings: added to, or put in place of, the lines of `server.properties`.
        memory: the JVM's memory options.

    Raises:
        MissingTool: if Java or the jars are missing.
        ServerFailed: if it does not become ready.
    """
    port, controller_port = free_port(), free_port()
    members: list[Member] = []

    def build(root: Path) -> list[Member]:
        home = root / "kafka"
        home.mkdir(parents=True, exist_ok=True)
        properties = home / "server.properties"
        lines = _settings(home, port, controller_port) | dict(settings or {})
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        if not (home / "data").exists():
            _run("format", "-t", CLUSTER_ID, "-c", str(properties), main=STORAGE_CLASS)
        command = [*_java_command(*memory, main=MAIN_CLASS), str(properties)]
        members.append(Member("kafka", command, folder=home, ready=partial(port_answers, port)))
        return members

    with group("kafka", folder, build):
        yield Kafka(members[0], port)
