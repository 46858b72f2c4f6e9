"""Launchers of the real servers and tools that tests and benchmarks stand beside.

Nothing here is used by the product. The servers are fetched once by `fetch`, run as child
processes on loopback ports with their own folders, and always ended by the process that began
them.
"""

from anabranch.testing.servers.bookkeeper import BookKeeper, bookkeeper
from anabranch.testing.servers.clients import pulsar_client
from anabranch.testing.servers.failures import FetchFailed, MissingTool, ServerFailed, ToolFailed
from anabranch.testing.servers.kafka import Kafka, kafka
from anabranch.testing.servers.member import Member
from anabranch.testing.servers.ours import anabranch_standalone
from anabranch.testing.servers.oxia import Oxia, oxia
from anabranch.testing.servers.perf_output import Interval, Latency, PerfResult, parse_perf_output
from anabranch.testing.servers.process import ServerProcess, free_port
from anabranch.testing.servers.pulsar import pulsar_standalone
from anabranch.testing.servers.pulsar_cluster import (
    PulsarBrokers,
    pulsar_brokers,
    set_up_cluster,
)
from anabranch.testing.servers.standalone import Standalone
from anabranch.testing.servers.tools import pulsar_admin, pulsar_perf
from anabranch.testing.servers.zookeeper import ZooKeeper, zookeeper

__all__ = [
    "BookKeeper",
    "FetchFailed",
    "Interval",
    "Kafka",
    "Latency",
    "Member",
    "MissingTool",
    "Oxia",
    "PerfResult",
    "PulsarBrokers",
    "ServerFailed",
    "ServerProcess",
    "Standalone",
    "ToolFailed",
    "ZooKeeper",
    "anabranch_standalone",
    "bookkeeper",
    "free_port",
    "kafka",
    "oxia",
    "parse_perf_output",
    "pulsar_admin",
    "pulsar_brokers",
    "pulsar_client",
    "pulsar_perf",
    "pulsar_standalone",
    "set_up_cluster",
    "zookeeper",
]
