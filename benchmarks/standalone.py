"""Standalone servers: start-up, idle memory, publishing and draining with pulsar-perf.

Every run begins with a fresh server on an empty folder. Both sides sync to disk before they
acknowledge. Rates come from pulsar-perf's interval lines: for publishing the median of those
after the first, for draining the best one, since a drain may end in the middle of one.
"""

import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from anabranch.testing.servers import (
    PerfResult,
    Standalone,
    ToolFailed,
    anabranch_standalone,
    pulsar_client,
    pulsar_perf,
    pulsar_standalone,
)
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun

LOADS: Final = {"batched": (), "unbatched": ("-db", "-o", "1000")}
"""The loads and what each adds to pulsar-perf's options; 1,000 are sends without receipt."""
MESSAGE_BYTES: Final = 1024
IDLE_S: Final = 5
TOOL_SPARE_S: Final = 90
"""What pulsar-perf may take beyond the load itself: JVM start, and its last 10 s tick."""
SUBSCRIPTION: Final = "drain"
PROFILE_ROWS: Final = 25
PULSAR_MEMORY: Final = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")
"""Pulsar's own defaults."""

MEASURES: Final = (
    Measure("ready", "ready after", "s", False),
    Measure("idle", f"memory, idle {IDLE_S} s", "MiB", False),
    Measure("publish_batched", "publish batched", "msg/s", True),
    Measure("drain_batched", "drain batched", "msg/s", True),
    Measure("publish_unbatched", "publish unbatched", "msg/s", True),
    Measure("p50_unbatched", "publish unbatched p50", "ms", False),
    Measure("p99_unbatched", "publish unbatched p99", "ms", False),
    Measure("drain_unbatched", "drain unbatched", "msg/s", True),
    Measure("loaded", "memory after the loads", "MiB", False),
)


@contextmanager
def _profiled_anabranch() -> Iterator[Standalone]:
    """Our server under the profiler; prints where its time went once it has ended."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats"
        wrapper = Path(__file__).with_name("profiled.py")
        # -P, or the modules beside the wrapper would hide installed ones of the same name.
        command = (sys.executable, "-P", str(wrapper), str(stats))
        with anabranch_standalone(command=command) as server:
            yield server
        if stats.exists():
            pstats.Stats(str(stats)).sort_stats("tottime").print_stats(PROFILE_ROWS)
        else:
            print("no profile: the server did not end by itself when asked to", file=sys.stderr)


SIDES: Final[dict[str, Callable[[], AbstractContextManager[Standalone]]]] = {
    "anabranch": anabranch_standalone,
    "pulsar": lambda: pulsar_standalone(memory=PULSAR_MEMORY),
}


def _perf(server: Standalone, action: str, options: Options, *arguments: str) -> PerfResult:
    target = ("-u", server.service_url, "-time", str(options.seconds), *arguments)
    result = pulsar_perf([action, *target], timeout_s=2 * options.seconds + TOOL_SPARE_S)
    if not result.intervals:
        raise ToolFailed(
            f"pulsar-perf {action} printed no rate within {options.seconds} s: give more --seconds"
        )
    return result


def _rate_of_drain(result: PerfResult, available: int) -> Figure:
    best = max(result.intervals, key=lambda interval: interval.messages_per_s)
    return Figure(best.messages_per_s, at_least=best.messages_so_far >= available)


def _measure_load(server: Standalone, load: str, options: Options, run: SideRun) -> None:
    """Fill one topic at the highest rate, then drain it."""
    topic = f"persistent://public/default/{load}"
    with pulsar_client(server.service_url) as client:
        # Without a subscription the server may trim what nobody is going to read.
        client.subscribe(topic, SUBSCRIPTION).close()
    run.load_averages.append(os.getloadavg()[0])
    size = ("-r", "10000000", "-s", str(MESSAGE_BYTES))
    published = _perf(server, "produce", options, *size, *LOADS[load], topic)
    run.figures[f"publish_{load}"] = Figure(median(i.messages_per_s for i in published.warm))
    if any(interval.failures_per_s for interval in published.intervals):
        run.remarks.append(f"some {load} sends failed")
    if published.latency is not None and "-o" in LOADS[load]:
        run.figures[f"p50_{load}"] = Figure(published.latency.p50_ms)
        run.figures[f"p99_{load}"] = Figure(published.latency.p99_ms)
    drained = _perf(server, "consume", options, "-sp", "Earliest", "-ss", SUBSCRIPTION, topic)
    run.figures[f"drain_{load}"] = _rate_of_drain(drained, published.messages)


def measure(side: str, options: Options, say: Callable[[str], None]) -> SideRun:
    """Run one side once, from start to end."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    start = _profiled_anabranch if options.profile else SIDES[side]
    with start() as server:
        run.figures["ready"] = Figure(server.ready_after_s)
        time.sleep(IDLE_S)
        run.figures["idle"] = Figure(server.resident_bytes() / 2**20)
        for load in options.loads:
            say(f"{side}: {load}")
            _measure_load(server, load, options, run)
        run.figures["loaded"] = Figure(server.resident_bytes() / 2**20)
    return run


def run(options: Options) -> None:
    run_pairs("standalone", MEASURES, measure, options)
