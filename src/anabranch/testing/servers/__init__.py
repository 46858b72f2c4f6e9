"""Launchers of the real servers and tools that tests and benchmarks stand beside.

Nothing here is used by the product. The servers are fetched once by `fetch`, run as child
processes on loopback ports with their own folders, and always ended by the process that began
them.
"""

from anabranch.testing.servers.clients import pulsar_client
from anabranch.testing.servers.failures import FetchFailed, MissingTool, ServerFailed, ToolFailed
from anabranch.testing.servers.ours import anabranch_standalone
from anabranch.testing.servers.perf_output import Interval, Latency, PerfResult, parse_perf_output
from anabranch.testing.servers.process import ServerProcess, free_port
from anabranch.testing.servers.pulsar import pulsar_standalone
from anabranch.testing.servers.standalone import Standalone
from anabranch.testing.servers.tools import pulsar_admin, pulsar_perf

__all__ = [
    "FetchFailed",
    "Interval",
    "Latency",
    "MissingTool",
    "PerfResult",
    "ServerFailed",
    "ServerProcess",
    "Standalone",
    "ToolFailed",
    "anabranch_standalone",
    "free_port",
    "parse_perf_output",
    "pulsar_admin",
    "pulsar_client",
    "pulsar_perf",
    "pulsar_standalone",
]
