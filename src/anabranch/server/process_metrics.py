"""Figures of the process itself, under the names that every Prometheus client uses."""

from collections.abc import Iterable

from anabranch.runtime.real_process import process_usage
from anabranch.telemetry.metrics import Metric, counter, gauge


def process_metrics() -> Iterable[Metric]:
    """Ask the operating system now; see `MetricSource`."""
    now = process_usage()
    yield counter("process_cpu_seconds_total", "Time on processors.", now.cpu_s)
    if now.resident_bytes is not None:
        yield gauge("process_resident_memory_bytes", "Memory in use.", now.resident_bytes)
    if now.open_files is not None:
        yield gauge("process_open_fds", "Files and sockets that are open.", now.open_files)
    yield gauge("process_max_fds", "Files and sockets there may be.", now.open_files_max)
