"""One broker on ZooKeeper and three bookies: ours beside Pulsar's, with pulsar-perf.

Every run begins with empty servers. Both brokers write to two of three bookies and wait for both,
and the bookies sync to disk before they answer. CPU is that of the broker alone: what its bookies
use depends on how many entries it sends them, and is shown by itself.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from anabranch.testing.servers import (
    Member,
    bookkeeper,
    free_port,
    pulsar_brokers,
    set_up_cluster,
    zookeeper,
)
from anabranch.testing.servers.our_brokers import our_brokers
from benchmarks import perf_loads
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.perf_loads import measure_loads
from benchmarks.report import Figure, Measure, SideRun

ENSEMBLE: Final = 3
QUORUM: Final = 2
IDLE_S: Final = 5
SESSION_MS_MAX: Final = 40_000
"""Both brokers ask for 30 s, and would get 10: too little beside other work on the machine."""

MEASURES: Final = (
    Measure("ready", "broker ready after", "s", False),
    Measure("idle", f"memory of the broker, idle {IDLE_S} s", "MiB", False),
    *perf_loads.MEASURES,
    Measure("loaded", "memory of the broker after the loads", "MiB", False),
    Measure("bookies_cpu", "CPU of the bookies, all loads", "s", False),
)


@dataclass(frozen=True, slots=True)
class LoadedBroker:
    """A broker that a load is put on, and the bookies below it."""

    service_url: str
    broker: Member
    bookies: tuple[Member, ...]

    def cpu_s(self) -> float:
        """Return the CPU seconds that the broker has used so far."""
        return self.broker.cpu_s()

    def cpu_wait_s(self) -> float:
        """Return the seconds that threads of the broker were ready and had no processor."""
        return self.broker.cpu_wait_s()


@contextmanager
def _anabranch(metadata_url: str) -> Iterator[tuple[str, Member]]:
    ledgers_url = f"bookkeeper:?ensemble={ENSEMBLE}&write={QUORUM}&ack={QUORUM}"
    with our_brokers(metadata_url, 1, ledgers_url=ledgers_url) as brokers:
        yield brokers.service_url, brokers.members[0]


@contextmanager
def _pulsar(metadata_url: str) -> Iterator[tuple[str, Member]]:
    settings = {
        "managedLedgerDefaultEnsembleSize": str(ENSEMBLE),
        "managedLedgerDefaultWriteQuorum": str(QUORUM),
        "managedLedgerDefaultAckQuorum": str(QUORUM),
    }
    memory = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")
    with pulsar_brokers(metadata_url, 1, settings=settings, memory=memory) as brokers:
        yield brokers.service_url, brokers.members[0]


SIDES: Final = {"anabranch": _anabranch, "pulsar": _pulsar}


@contextmanager
def _cluster(side: str) -> Iterator[LoadedBroker]:
    with zookeeper(settings={"maxSessionTimeout": str(SESSION_MS_MAX)}) as metadata:
        # Prepared by Pulsar's own tool for both, so that they find the same.
        set_up_cluster(metadata.url, port=free_port(), web_port=free_port())
        with (
            bookkeeper(metadata.url, ENSEMBLE) as bookies,
            SIDES[side](metadata.url) as (service_url, broker),
        ):
            yield LoadedBroker(service_url, broker, bookies.members)


def measure(side: str, options: Options, say: Callable[[str], None]) -> SideRun:
    """Run one side once, from start to end."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    with _cluster(side) as loaded:
        run.figures["ready"] = Figure(loaded.broker.ready_after_s)
        time.sleep(IDLE_S)
        run.figures["idle"] = Figure(loaded.broker.resident_bytes() / 2**20)
        before_s = sum(bookie.cpu_s() for bookie in loaded.bookies)
        measure_loads(loaded, options, run, say)
        run.figures["loaded"] = Figure(loaded.broker.resident_bytes() / 2**20)
        used_s = sum(bookie.cpu_s() for bookie in loaded.bookies) - before_s
        run.figures["bookies_cpu"] = Figure(used_s)
    return run


def run(options: Options) -> None:
    run_pairs("cluster", MEASURES, measure, options)
