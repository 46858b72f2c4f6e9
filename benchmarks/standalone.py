"""Standalone servers: start-up, idle memory, publishing and draining with pulsar-perf.

Every run begins with a fresh server on an empty folder. Both sides sync to disk before they
acknowledge.
"""

import os
import pstats
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from anabranch.testing.servers import (
    Standalone,
    anabranch_standalone,
    pulsar_standalone,
)
from benchmarks import perf_loads
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.perf_loads import measure_loads
from benchmarks.report import Figure, Measure, SideRun

IDLE_S: Final = 5
PROFILE_ROWS: Final = 25
PULSAR_MEMORY: Final = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")
"""Pulsar's own defaults."""

MEASURES: Final = (
    Measure("ready", "ready after", "s", False),
    Measure("idle", f"memory, idle {IDLE_S} s", "MiB", False),
    *perf_loads.MEASURES,
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


def measure(side: str, options: Options, say: Callable[[str], None]) -> SideRun:
    """Run one side once, from start to end."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    start = _profiled_anabranch if options.profile else SIDES[side]
    with start() as server:
        run.figures["ready"] = Figure(server.ready_after_s)
        time.sleep(IDLE_S)
        run.figures["idle"] = Figure(server.resident_bytes() / 2**20)
        measure_loads(server, options, run, say)
        run.figures["loaded"] = Figure(server.resident_bytes() / 2**20)
    return run


def run(options: Options) -> None:
    run_pairs("standalone", MEASURES, measure, options)
