"""A copy from ZooKeeper to Oxia end to end, and what a guard costs on a write to ZooKeeper.

The copy is the one of `anabranch metadata copy`: look, copy, verify. Beside it, two bare loops read
the same nodes from the same ZooKeeper, write them to an Oxia, and read them back instead of
verifying; they look for no rights and keep no versions. Pulsar's own tool moves about 6,600 nodes a
second. A guarded write has its guard checked in the same multi.
"""

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import Guard, MetadataStore, Record
from anabranch.metadata.transfer.copying import CopyOptions
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.metadata_copy_drill import copied
from anabranch.testing.servers.oxia import oxia
from anabranch.testing.servers.zookeeper import zookeeper
from benchmarks import metadata_oxia, metadata_zookeeper
from benchmarks.metadata_rates import VALUE, bulk_paths
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import Figure, Measure, SideRun

PUTS: Final = 2_000
SINGLE_PUTS: Final = 300
IN_FLIGHT: Final = 256
_SESSION_TIMEOUT_S: Final = 30.0
MEASURES: Final = (
    Measure("whole", "ZooKeeper to Oxia: look, copy, verify", "nodes/s", True),
    Measure("no_rights", "the same with export.acl=skip", "nodes/s", True),
    Measure("unverified", "the same without verify", "nodes/s", True),
    Measure("plain_us", "put, one at a time", "us", False),
    Measure("guarded_us", "guarded put, one at a time", "us", False),
    Measure("plain", f"puts, {IN_FLIGHT} at a time", "1/s", True),
    Measure("guarded", f"guarded puts, {IN_FLIGHT} at a time", "1/s", True),
)


async def _puts(store: MetadataStore, puts: int, in_flight: int, guard: Guard | None) -> float:
    """Seconds that so many puts take."""
    numbers = iter(range(puts))

    async def one_in_flight() -> None:
        for number in numbers:
            await store.put(f"/puts/{number % 1000:04}", VALUE, guard=guard)

    begun = time.perf_counter()
    await asyncio.gather(*(one_in_flight() for _ in range(in_flight)))
    return time.perf_counter() - begun


async def _guards(url: str, run: SideRun) -> None:
    store = await open_store(url, real_runtime())
    held = await store.put("/held", b"", ephemeral=True)
    await _puts(store, 1000, IN_FLIGHT, None)
    for name, guard in (("plain", None), ("guarded", Guard("/held", held.version))):
        single_s = await _puts(store, SINGLE_PUTS, 1, guard)
        run.figures[f"{name}_us"] = Figure(single_s / SINGLE_PUTS * 1e6)
        run.figures[name] = Figure(PUTS / await _puts(store, PUTS, IN_FLIGHT, guard))
    await store.close()


async def _one(url: str, root: str, folder: str) -> SideRun:
    run = SideRun("anabranch", load_averages=[os.getloadavg()[0]])
    source = f"{url}{root}"
    store = await open_store(source, real_runtime(), session_timeout_s=_SESSION_TIMEOUT_S)
    await store.restore(each(Record(path, VALUE, 0, 0, 0) for path in bulk_paths()))
    await store.close()
    skipping = f"{source}?export.acl=skip"
    for name, from_url, verify in (
        ("whole", source, True),
        ("no_rights", skipping, True),
        ("unverified", skipping, False),
    ):
        options = CopyOptions(
            verify=verify, sorting_folder=folder, version_map=f"{folder}/version-map.tsv"
        )
        with oxia() as target:
            begun = time.perf_counter()
            report = await copied(from_url, target.url, folder, options)
            run.figures[name] = Figure(report.digest.nodes / (time.perf_counter() - begun))
    await _guards(f"{url}{root}-guards", run)
    run.load_averages.append(os.getloadavg()[0])
    return run


async def _raw(port: int, root: str) -> SideRun:
    run = SideRun("raw", load_averages=[os.getloadavg()[0]])
    source, paths = metadata_zookeeper.RawSide(port, root), bulk_paths()
    await source.write_all(paths)
    with oxia() as server:
        target = metadata_oxia.RawSide(server.address)
        begun = time.perf_counter()
        nodes = await source.read_all()
        await target.write_all(paths)
        copied_s = time.perf_counter() - begun
        await target.read_all()
        verified_s = time.perf_counter() - begun
        await target.close()
    source.close()
    for name, seconds in (
        ("whole", verified_s),
        ("no_rights", verified_s),
        ("unverified", copied_s),
    ):
        run.figures[name] = Figure(nodes / seconds)
    run.load_averages.append(os.getloadavg()[0])
    return run


def run(options: Options) -> None:
    numbers = itertools.count()
    with (
        zookeeper(memory=("-Xmx1g",)) as server,
        tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder,
    ):
        (port,) = server.ports

        def one(side: str, _options: Options, _say: Callable[[str], None]) -> SideRun:
            root = f"/copy-{next(numbers)}"
            if side == "raw":
                return asyncio.run(_raw(port, root))
            return asyncio.run(_one(server.url, root, folder))

        sides = ("anabranch",) if options.profile else ("anabranch", "raw")
        run_pairs("metadata_copy", MEASURES, one, replace(options, sides=sides))
