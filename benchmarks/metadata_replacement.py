"""The metadata store under a broker goes from ZooKeeper to Oxia: ours beside Pulsar's own PIP-454.

On both sides one broker, one bookie that registers elsewhere and takes no part, and the same tree
in ZooKeeper; namespaces are made and changed all the time, and every write that was acknowledged is
looked for in Oxia afterwards. Writes are held, by ours from `freezing` to `switched`, by Pulsar
while its flag says PREPARATION or COPYING; Pulsar has no comparison, and no way back.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH
from anabranch.runtime.real import real_runtime
from anabranch.testing.large_replacement import (
    SOURCE_MEMORY,
    SOURCE_SETTINGS,
    Replacement,
    fill,
    missing,
    replaced_by_ours,
)
from anabranch.testing.namespace_load import NamespaceLoad
from anabranch.testing.servers.bookkeeper import bookkeeper
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.servers.our_brokers import init_cluster
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.servers.process import free_port
from anabranch.testing.servers.pulsar_cluster import pulsar_brokers, set_up_cluster
from anabranch.testing.servers.zookeeper import zookeeper
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun

PAIR_NODES: Final = 100_000
PREPARATION, COPYING, COMPLETED = "PREPARATION", "COPYING", "COMPLETED"
_BEFORE_S: Final = 3.0
_AFTER_S: Final = 10.0
"""In which requests that waited for Pulsar's migration are answered."""
_LOOK_S: Final = 0.01
_WHOLE_S_MAX: Final = 900.0
MEASURES: Final = (
    Measure("freeze", "writes are held", "s", False),
    Measure("total", "request until the new store is in use", "s", False),
    Measure("nodes", "everything is copied", "nodes/s", True),
    Measure("longest", "longest wait for one acknowledged write", "s", False),
    Measure("acknowledged", "writes acknowledged meanwhile", "", True),
    Measure("refused", "writes refused", "", False),
    Measure("lost", "acknowledged writes that are not in the new store", "", False),
)


async def _flag(store: MetadataStore) -> str:
    node = await store.get(FLAG_PATH)
    return "" if node is None else str(json.loads(node.value)["phase"])


async def _led_by_pulsar(
    source: str, target: str, web_port: int, load: NamespaceLoad, nodes: int
) -> Replacement:
    store = await open_store(source, real_runtime())
    await asyncio.sleep(_BEFORE_S)
    began_s = time.time()
    await asyncio.to_thread(_start, web_port, target)
    seen_s: dict[str, float] = {}
    while COMPLETED not in seen_s:
        phase = await _flag(store)
        seen_s.setdefault(phase, time.time())
        if phase == "FAILED" or time.time() - began_s > _WHOLE_S_MAX:
            raise ServerFailed(f"Pulsar's migration: {phase}")
        await asyncio.sleep(_LOOK_S)
    over_s = seen_s[COMPLETED]
    await store.close()
    await asyncio.sleep(_AFTER_S)
    await asyncio.to_thread(load.stop)
    held_s = seen_s.get(PREPARATION, seen_s.get(COPYING, over_s))
    meanwhile = load.within(began_s, over_s + _AFTER_S)
    return Replacement(
        nodes=nodes,
        total_s=over_s - began_s,
        freeze_s=over_s - held_s,
        copy_s=over_s - seen_s.get(COPYING, held_s),
        longest_write_s=max((each.took_s for each in meanwhile), default=0.0),
        acknowledged=len(load.within(began_s, over_s)),
        lost=[*await load.lost(target), *await missing(target, nodes)],
        refused=load.answers,
    )


def _start(web_port: int, target: str) -> None:
    connection = HTTPConnection("127.0.0.1", web_port, timeout=_WHOLE_S_MAX)
    try:
        connection.request("POST", f"/admin/v2/metadata/migration/start?target={target}")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 204:
        raise ServerFailed(f"Pulsar answered {status} to the start")


def replaced_by_pulsar(nodes: int, folder: Path) -> Replacement:
    """From ZooKeeper to Oxia, by a broker of Pulsar."""
    with ExitStack() as held:
        source = held.enter_context(
            zookeeper(memory=SOURCE_MEMORY, settings=SOURCE_SETTINGS, folder=folder / "source")
        )
        target = held.enter_context(oxia(folder=folder / "target"))
        registry = held.enter_context(oxia(folder=folder / "registry"))
        set_up_cluster(source.url, port=free_port(), web_port=free_port())
        init_cluster(registry.url)
        held.enter_context(bookkeeper(registry.url, 1, folder=folder / "bookies"))
        brokers = held.enter_context(
            pulsar_brokers(
                source.url,
                1,
                folder=folder / "brokers",
                settings={"bookkeeperMetadataServiceUri": f"metadata-store:{registry.url}"},
            )
        )
        asyncio.run(fill(source.url, nodes))
        with NamespaceLoad(brokers.web_ports) as load:
            return asyncio.run(
                _led_by_pulsar(source.url, target.url, brokers.web_ports[0], load, nodes)
            )


SIDES: Final = {"anabranch": replaced_by_ours, "pulsar": replaced_by_pulsar}


def measure(side: str, options: Options, say: Callable[[str], None]) -> SideRun:
    """Run one side once, from start to end."""
    run = SideRun(side, load_averages=[os.getloadavg()[0]])
    nodes = options.nodes or PAIR_NODES
    with tempfile.TemporaryDirectory(prefix="anabranch-replacement-") as folder:
        found = SIDES[side](nodes, Path(folder))
    say(json.dumps(found.as_json()))
    run.figures = {
        "freeze": Figure(found.freeze_s),
        "total": Figure(found.total_s),
        "nodes": Figure(found.nodes_per_s),
        "longest": Figure(found.longest_write_s),
        "acknowledged": Figure(found.acknowledged),
        "refused": Figure(sum(found.refused.values())),
        "lost": Figure(len(found.lost)),
    }
    run.load_averages.append(os.getloadavg()[0])
    run.remarks.append(f"{nodes:,} nodes; {json.dumps(found.as_json())}")
    return run


def run(options: Options) -> None:
    run_pairs("metadata_replacement", MEASURES, measure, replace(options, profile=False))
