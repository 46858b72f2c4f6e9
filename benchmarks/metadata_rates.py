"""What is measured of a metadata store on a real server, and of whoever stands beside it.

A side offers the operations of `Side`; each rate is of the same work on the same server. Values
have 500 bytes. Single operations wait for each other, pipelined ones are 256 at a time.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.runtime.real import real_runtime
from anabranch.testing.made_trees import each
from benchmarks.report import Figure, Measure, SideRun

VALUE: Final = b"v" * 500
SINGLE: Final = 300
PIPELINED: Final = 5_000
IN_FLIGHT: Final = 256
BULK: Final = 30_000
_FOLDER_NODES: Final = 1000
MEASURES: Final = (
    Measure("get_us", "get, one at a time", "us", False),
    Measure("put_us", "put, one at a time", "us", False),
    Measure("gets", f"gets, {IN_FLIGHT} at a time", "1/s", True),
    Measure("puts", f"puts, {IN_FLIGHT} at a time", "1/s", True),
    Measure("written", f"{BULK:,} nodes written in bulk", "1/s", True),
    Measure("read", f"{BULK:,} nodes read in bulk", "1/s", True),
)


def bulk_paths() -> list[str]:
    """What is written in bulk: folders, and many nodes in each; parents come first."""
    paths: list[str] = []
    for number in range(BULK):
        folder = f"/folder-{number // _FOLDER_NODES:03}"
        paths.append(folder if number % _FOLDER_NODES == 0 else f"{folder}/node-{number:06}")
    return paths


class Side(Protocol):
    """One way to talk to the server; each method does what its name says so many times."""

    async def write_all(self, paths: Sequence[str]) -> None:
        """Make all nodes with `VALUE`."""

    async def read_all(self) -> int:
        """Read every node with value and version; return how many there were."""

    async def get(self, path: str) -> None:
        """Read one node."""

    async def put(self, path: str) -> None:
        """Write one node."""

    async def get_many(self, paths: Sequence[str]) -> None:
        """Read nodes, `IN_FLIGHT` at a time."""

    async def put_many(self, paths: Sequence[str]) -> None:
        """Write nodes, `IN_FLIGHT` at a time."""


async def measure(side: Side, name: str) -> SideRun:
    """All figures of one side, on an empty place."""
    run = SideRun(name, load_averages=[os.getloadavg()[0]])
    paths = bulk_paths()

    async def timed(work: Coroutine[Any, Any, Any]) -> float:
        begun = time.perf_counter()
        await work
        return time.perf_counter() - begun

    async def one_by_one(operation: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        for path in paths[1 : SINGLE + 1]:
            await operation(path)

    run.figures["written"] = Figure(BULK / await timed(side.write_all(paths)))
    begun = time.perf_counter()
    found = await side.read_all()
    run.figures["read"] = Figure(found / (time.perf_counter() - begun))
    if found < BULK:
        run.remarks.append(f"only {found} of {BULK} nodes were read")
    run.figures["get_us"] = Figure(await timed(one_by_one(side.get)) / SINGLE * 1e6)
    run.figures["put_us"] = Figure(await timed(one_by_one(side.put)) / SINGLE * 1e6)
    run.figures["gets"] = Figure(PIPELINED / await timed(side.get_many(paths[:PIPELINED])))
    run.figures["puts"] = Figure(PIPELINED / await timed(side.put_many(paths[:PIPELINED])))
    run.load_averages.append(os.getloadavg()[0])
    return run


class StoreSide:
    """Our store, through its contract."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def write_all(self, paths: Sequence[str]) -> None:
        """See `Side.write_all`."""
        await self._store.restore(each(Record(path, VALUE, 0, 0, 0) for path in paths))

    async def read_all(self) -> int:
        """See `Side.read_all`."""
        count = 0
        async for _ in self._store.export("/"):
            count += 1
        return count

    async def get(self, path: str) -> None:
        """See `Side.get`."""
        await self._store.get(path)

    async def put(self, path: str) -> None:
        """See `Side.put`."""
        await self._store.put(path, VALUE)

    async def get_many(self, paths: Sequence[str]) -> None:
        """See `Side.get_many`."""
        await self._spread(paths, self.get)

    async def put_many(self, paths: Sequence[str]) -> None:
        """See `Side.put_many`."""
        await self._spread(paths, self.put)

    async def _spread(
        self, paths: Sequence[str], operation: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        left = iter(paths)

        async def one_in_flight() -> None:
            for path in left:
                await operation(path)

        await asyncio.gather(*(one_in_flight() for _ in range(IN_FLIGHT)))


@asynccontextmanager
async def store_side(url: str) -> AsyncIterator[Side]:
    """Our store at a URL."""
    store = await open_store(url, real_runtime())
    try:
        yield StoreSide(store)
    finally:
        await store.close()
