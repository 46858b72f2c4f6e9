"""Copy drill: a large tree goes from ZooKeeper to Oxia and back, in bounded memory.

    python -m anabranch.testing.metadata_copy_drill --nodes 1000000

The servers are real ones, started here. Some nodes of ZooKeeper were written up to a million times,
and on Oxia others join, with numbers of its own, that are hard to bring back. What arrives must
have the digest of what went, every version must be what the rule of its store makes of it, no
sequence number may be issued twice, and this process must stay below a limit however many nodes
there are. The verdict is one line of JSON; exit code 0 is clean, 1 violated.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.limits import KIB, MIB, ZOOKEEPER_RESTORED_VERSION_MAX
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Put, Record
from anabranch.metadata.transfer import version_map
from anabranch.metadata.transfer.copying import Copy, CopyOptions, CopyReport
from anabranch.metadata.transfer.digest import Digest, Summing
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.ordering import Sorting
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.transfer.survey import OnProgress, no_progress
from anabranch.metadata.zookeeper.requests import ANY_VERSION
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.servers.zookeeper import zookeeper
from anabranch.testing.stopping import run_program

_PEAK_MIB_MAX: Final = 400
_TOLD_NODES: Final = 51_200
_AGED: Final = "/aged"
_HARD: Final = "/hard"
_VERSIONS: Final = (3, 999, 1000, 1001, 10**6)
_ISSUED: Final = 50
_OWN_NODES: Final = 1000
_PUTS_PER_REQUEST: Final = 1000
_REQUESTS: Final = 4
_SETTINGS: Final = {"maxSessionTimeout": "40000"}
"""As ensembles usually have it: with so many nodes a server may stand still for seconds, and the
sessions of test servers, which are shorter, are over by then."""


def _aged_paths(below: str, nodes: int) -> dict[str, int]:
    """Nodes that were written often, and how often: in a small drill, not quite so often."""
    return {f"{below}/{version:07}": min(version, nodes) for version in _VERSIONS}


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


def _tell(phase: str, done: Digest, _whole: int | None) -> None:
    if done.nodes % _TOLD_NODES == 0:
        print(f"{phase}: {done.nodes:,} nodes", file=sys.stderr, flush=True)


async def _issue_numbers(store: MetadataStore, parent: str) -> None:
    for _ in range(_ISSUED):
        issued = await store.put(f"{parent}/n-", b"", sequential=True)
        await store.delete(issued.path)


async def _age_nodes(url: str, nodes: int) -> None:
    """Write some nodes of ZooKeeper so often that their versions are large."""
    store = await open_store(url, real_runtime())
    assert isinstance(store, ZooKeeperStore)
    await store.put(_AGED, b"-")
    for path, version in _aged_paths(_AGED, nodes).items():
        await store.put(path, b"v")
        put = store.client.op_set(path, b"v", ANY_VERSION)
        sizes = [_PUTS_PER_REQUEST] * (version // _PUTS_PER_REQUEST)
        sizes.append(version % _PUTS_PER_REQUEST)
        for start in range(0, len(sizes), _REQUESTS):
            some = [size for size in sizes[start : start + _REQUESTS] if size]
            await asyncio.gather(*(store.client.multi([put] * size) for size in some))
    await _issue_numbers(store, _AGED)
    await store.close()


async def _make_hard_nodes(url: str, nodes: int) -> None:
    """Nodes that are hard to bring back: large versions, Oxia's own ids, numbers that are gone."""
    store = await open_store(url, real_runtime())
    aged = [Record(path, b"v", n, 0, 0) for path, n in _aged_paths(_HARD, nodes).items()]
    await store.restore(each(iter([Record(_HARD, b"-", 0, 0, 0), *aged])))
    for turn in range(3):
        await store.batch([Put(f"{_HARD}/own-{n}", b"own") for n in range(turn, _OWN_NODES)])
    await _issue_numbers(store, _HARD)
    await store.close()


async def _digests_by_rule(source: str, target: str) -> tuple[Digest, Digest]:
    """Of what must have arrived by the target's rule for versions, and of what is there."""
    rule = keeping_of(target)

    async def summed(url: str, version_of: Callable[[Record], int]) -> Digest:
        store = await open_store(url, real_runtime())
        summing = Summing()
        async for record in store.export("/", access=False):
            # How far a sequence may have grown is no matter of equality.
            kept = record._replace(native_version=version_of(record), next_sequence=0, indexes=())
            summing.add(kept)
        await store.close()
        return summing.digest

    wanted = await summed(source, rule.version_after)
    return wanted, await summed(target, lambda record: record.native_version)


async def _lost_versions(nodes: int, versions: str) -> list[str]:
    """Whether the map names every version that was not kept, and no other."""
    changes = version_map.decode(versions, await real_runtime().disk.read(versions))
    wanted = {
        path: version
        for parent in (_AGED, _HARD)
        for path, version in _aged_paths(parent, nodes).items()
        if version > ZOOKEEPER_RESTORED_VERSION_MAX
    }
    found = {path: change.source for path, change in changes.items()}
    return [] if found == wanted else [f"the map has {found}, and should have {wanted}"]


async def _issued_again(url: str) -> list[str]:
    store = await open_store(url, real_runtime())
    issued = [await store.put(f"{p}/n-", b"", sequential=True) for p in (_AGED, _HARD)]
    await store.close()
    again = [stat.path for stat in issued if int(stat.path[-10:]) < _ISSUED]
    return [f"{path} was issued before" for path in again]


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
    await _age_nodes(first, nodes)
    violations: list[str] = []

    async def copy(name: str, source: str, target: str) -> CopyReport:
        options = CopyOptions(
            sorting_folder=folder,
            checkpoint=f"{folder}/{name}.checkpoint",
            version_map=f"{folder}/{name}.versions",
        )
        begun = time.perf_counter()
        report = await copied(source, target, folder, options, _tell)
        figures[f"{name}_nodes_per_s"] = report.digest.nodes / (time.perf_counter() - begun)
        if not report.verified:
            violations.append(f"{name}: not verified")
        wanted, found = await _digests_by_rule(source, target)
        if wanted != found:
            violations.append(f"{name}: {wanted} should have arrived, {found} did")
        return report

    there = await copy("there", first, oxia_url)
    await _make_hard_nodes(oxia_url, nodes)
    back = await copy("back", oxia_url, second)
    violations += await _lost_versions(nodes, f"{folder}/back.versions")
    violations += await _issued_again(second)
    aged = len(_VERSIONS) + 1
    if there.digest.nodes != nodes + aged or back.digest.nodes != nodes + 2 * aged + _OWN_NODES:
        violations.append(f"{there.digest.nodes} nodes went there, {back.digest.nodes} back")
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
        zookeeper(memory=("-Xmx3g",), settings=_SETTINGS) as ensemble,
        oxia() as server,
    ):
        verdict = asyncio.run(drill(found.nodes, folder, ensemble.url, server.url, found.peak_mib))
    print(json.dumps(verdict))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
