"""Size drill of the metadata store: very many nodes, streamed to a client in bounded memory.

    python -m anabranch.testing.metadata_size_drill --nodes 1000000

The store, its server and a client are in this one process. The tree has to be in memory; reading
all of it through the server must add next to nothing. The verdict is one line of JSON; exit code 0
is clean, 1 violated.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.limits import KIB, MIB
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore, Put
from anabranch.runtime.real import real_runtime
from anabranch.testing.stopping import run_program

_BATCH: Final = 1000
_CHILDREN_EACH: Final = 100_000
_EXTRA_MIB_MAX: Final = 64
"""What reading may take besides; a tree of a million nodes is many times that."""


def _broken(name: str, error: BaseException) -> None:
    print(f"{name}: {error!r}", file=sys.stderr)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


async def _fill(store: MetadataStore, nodes: int) -> None:
    for start in range(0, nodes, _BATCH):
        paths = [f"/{i // _CHILDREN_EACH}/{i:08}" for i in range(start, min(start + _BATCH, nodes))]
        for outcome in await store.batch([Put(path, path.encode()) for path in paths]):
            if isinstance(outcome, AnabranchError):
                raise outcome


async def _count(items: AsyncIterator[Any]) -> int:
    count = 0
    async for _ in items:
        count += 1
    return count


async def drill(nodes: int, folder: str, extra_mib_max: int = _EXTRA_MIB_MAX) -> dict[str, Any]:
    """Fill a store and read all of it; return the verdict."""
    runtime = real_runtime()
    store = await open_store(f"embedded:{folder}/metadata", runtime)
    assert isinstance(store, LocalHandle)
    await _fill(store, nodes)
    server = MetadataServer(runtime, store, on_failure=_broken)
    await server.start("127.0.0.1", 0)
    client = await open_store(f"anabranch://127.0.0.1:{server.port}", runtime)
    before, begun = _peak_bytes(), time.perf_counter()
    parents = -(-nodes // _CHILDREN_EACH)
    violations: list[str] = []
    for name, items in (("scan", client.scan("/")), ("export", client.export("/"))):
        # The root, the parents, and what the store itself keeps there.
        if (found := await _count(items)) < nodes + parents + 1:
            violations.append(f"{name} found {found} of {nodes} nodes")
    for parent in range(parents):
        first = parent * _CHILDREN_EACH
        names = [f"{i:08}" for i in range(first, min(first + _CHILDREN_EACH, nodes))]
        if await client.children(f"/{parent}") != names:
            violations.append(f"the children of /{parent} are wrong")
    extra = _peak_bytes() - before
    if extra > extra_mib_max * MIB:
        violations.append(f"reading took {extra} bytes more")
    taken_s = time.perf_counter() - begun
    await client.close()
    await server.close()
    await store.close()
    return {
        "drill": "metadata size",
        "status": "violated" if violations else "clean",
        "nodes": nodes,
        "extra_mib": round(extra / MIB, 1),
        "read_s": round(taken_s, 1),
        "violations": violations,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.metadata_size_drill")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--extra-mib", type=int, default=_EXTRA_MIB_MAX, help="memory for reading")
    found = parser.parse_args(arguments)
    if found.nodes < 1:
        parser.error("at least one node is needed")
    with tempfile.TemporaryDirectory(prefix="anabranch-metadata-size-") as folder:
        verdict = asyncio.run(drill(found.nodes, folder, found.extra_mib))
    print(json.dumps(verdict))
    return 1 if verdict["violations"] else 0


if __name__ == "__main__":
    run_program(main)
