"""Copy drill: a large tree goes from ZooKeeper to Oxia and back, in bounded memory.

    python -m anabranch.testing.metadata_copy_drill --nodes 1000000

The servers are real ones, started here. On Oxia some nodes join that are hard to bring back. What
comes back must have the digest of what went, no sequence number may be issued twice, and this
process must stay below a limit however many nodes there are. The verdict is one line of JSON;
exit code 0 is clean, 1 violated.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.limits import KIB, MIB, ZOOKEEPER_RESTORED_VERSION_MAX
from anabranch.metadata.factory import open_store
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import Record
from anabranch.metadata.transfer import version_map
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.digest import Digest
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.transfer.survey import OnProgress, no_progress
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.servers.zookeeper import zookeeper
from anabranch.testing.stopping import run_program

_PEAK_MIB_MAX: Final = 400
_TOLD_NODES: Final = 51_200
_HARD: Final = "/hard"
_VERSIONS: Final = (3, 999, 1000, 1001, 10**6)
_ISSUED: Final = 50


async def copied(
    source_url: str,
    target_url: str,
    folder: str,
    options: CopyOptions,
    on_progress: OnProgress = no_progress,
) -> CopyReport:
    """Copy all of one store into another."""
    runtime = real_runtime()
    source = await open_store(source_url, runtime)
    try:
        target = await open_store(target_url, runtime)
        try:
            keeping = keeping_of(source_url)
            nodes = StoreSource(source, source_url, "/", keeping, Sorting(runtime, folder))
            kept = keeping_of(target_url)
            copy = Copy(runtime, nodes, target, target_url, kept, options, on_progress)
            return await copy.run()
        finally:
            await target.close()
    finally:
        await source.close()


def _tell(phase: str, done: Digest) -> None:
    if done.nodes % _TOLD_NODES == 0:
        print(f"{phase}: {done.nodes:,} nodes", file=sys.stderr, flush=True)


async def _make_hard_nodes(url: str) -> list[Record]:
    """Nodes that are hard to bring back: large versions, Oxia's own ids, numbers that are gone."""
    store = await open_store(url, real_runtime())
    hard = [Record(f"{_HARD}/{version:07}", b"v", version, 0, 0) for version in _VERSIONS]
    await store.restore(each(iter([Record(_HARD, b"-", 0, 0, 0), *hard])))
    for _ in range(_ISSUED):
        await store.put(f"{_HARD}/own", b"own")
        issued = await store.put(f"{_HARD}/n-", b"", sequential=True)
        await store.delete(issued.path)
    records = [record async for record in store.export(_HARD)]
    await store.close()
    return records


async def _hard_violations(url: str, versions: str) -> list[str]:
    """What became of them."""
    found: list[str] = []
    changes = version_map.decode(versions, await real_runtime().disk.read(versions))
    hard = [path for path in changes if is_within(_HARD, path)]
    wanted = [
        f"{_HARD}/{version:07}" for version in _VERSIONS if version > ZOOKEEPER_RESTORED_VERSION_MAX
    ]
    if hard != wanted:
        found.append(f"versions of {hard} were not kept, and should have been of {wanted}")
    store = await open_store(url, real_runtime())
    issued = await store.put(f"{_HARD}/n-", b"", sequential=True)
    if int(issued.path[-10:]) < _ISSUED:
        found.append(f"{issued.path} was issued before")
    await store.close()
    return found


def _peak_bytes() -> int:
    # What getrusage tells includes the process that started this one, before it became this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmHWM"].removesuffix("kB")) * KIB


async def drill(
    nodes: int, folder: str, zookeeper_url: str, oxia_url: str, peak_mib_max: int
) -> dict[str, Any]:
    """Fill ZooKeeper and copy its tree there and back; return the verdict."""
    first, second = f"{zookeeper_url}/first", f"{zookeeper_url}/second"
    store = await open_store(first, real_runtime())
    begun = time.perf_counter()
    await store.restore(each(made_tree(nodes)))
    figures = {"fill_nodes_per_s": nodes / (time.perf_counter() - begun)}
    await store.close()

    async def copy(name: str, source: str, target: str) -> CopyReport:
        options = CopyOptions(
            sorting_folder=folder,
            checkpoint=f"{folder}/{name}.checkpoint",
            version_map=f"{folder}/{name}.versions",
        )
        begun = time.perf_counter()
        report = await copied(source, target, folder, options, _tell)
        figures[f"{name}_nodes_per_s"] = report.digest.nodes / (time.perf_counter() - begun)
        return report

    there = await copy("there", first, oxia_url)
    wanted = there.digest
    for record in await _make_hard_nodes(oxia_url):
        wanted = wanted.plus(record)
    back = await copy("back", oxia_url, second)
    violations = await _hard_violations(second, f"{folder}/back.versions")
    if there.digest.nodes != nodes or not (there.verified and back.verified):
        violations.append(f"{there.digest.nodes} of {nodes} nodes arrived and were verified")
    if wanted[:3] != back.digest[:3]:
        violations.append(f"digest {wanted.content_text} became {back.digest.content_text}")
    peak_mib = _peak_bytes() / MIB
    if peak_mib > peak_mib_max:
        violations.append(f"it took {peak_mib:.0f} MiB")
    return {
        "drill": "metadata copy",
        "status": "violated" if violations else "clean",
        "nodes": nodes,
        "peak_mib": round(peak_mib),
        "figures": {name: round(value) for name, value in figures.items()},
        "versions_changed": there.versions_changed + back.versions_changed,
        "violations": violations,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.metadata_copy_drill")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--peak-mib", type=int, default=_PEAK_MIB_MAX, help="memory of a copy")
    found = parser.parse_args(arguments)
    if found.nodes < 1:
        parser.error("at least one node is needed")
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-metadata-copy-") as folder,
        zookeeper(memory=("-Xmx3g",)) as ensemble,
        oxia() as server,
    ):
        verdict = asyncio.run(drill(found.nodes, folder, ensemble.url, server.url, found.peak_mib))
    print(json.dumps(verdict))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
