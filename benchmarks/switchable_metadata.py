"""What it costs that a metadata store could be replaced, while it is not.

The same calls on a store, and on the same store behind `SwitchableStore`, in turn: the memory
store, where the wrapper is the largest share there can be, and the embedded one. Time is the
process's own, so that what else the machine does counts little.
"""

import asyncio
import os
import statistics
import tempfile
import time

from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.runtime.real import real_runtime

PAIRS = 7
READS = 20_000
WRITES = {"memory": 10_000, "embedded": 1_000}
AT_ONCE = 16


async def _gets(store: MetadataStore, count: int) -> None:
    for _ in range(count):
        await store.get("/measured/node")


async def _puts(store: MetadataStore, count: int) -> None:
    async def some(place: int) -> None:
        for _ in range(count // AT_ONCE):
            await store.put(f"/measured/{place}", b"x" * 100)

    await asyncio.gather(*(some(place) for place in range(AT_ONCE)))


async def _measured(kind: str, url: str) -> None:
    runtime = real_runtime()
    bare = await open_store(url, runtime)
    assert isinstance(bare, LocalHandle)
    wrapped = SwitchableStore(
        await bare.handle(), await bare.handle(), runtime.clock, "metadata", "measured"
    )
    await bare.put("/measured/node", b"x" * 100)
    for name, work, count in (("get", _gets, READS), ("put", _puts, WRITES[kind])):
        ratios: list[float] = []
        rates: dict[str, list[float]] = {"bare": [], "wrapped": []}
        for pair in range(PAIRS + 1):
            taken_s = {}
            for side, store in (("bare", bare), ("wrapped", wrapped)):
                began_s = time.process_time()
                await work(store, count)
                taken_s[side] = time.process_time() - began_s
            if pair:  # the first one warms up
                ratios.append(taken_s["wrapped"] / taken_s["bare"])
                for side, seconds in taken_s.items():
                    rates[side].append(count / seconds)
        bare_rate, wrapped_rate = (statistics.median(rates[side]) for side in rates)
        print(
            f"{kind:10} {name:5} {bare_rate:12,.0f} {wrapped_rate:12,.0f} "
            f"{statistics.median(ratios):8.3f} {f'{min(ratios):.2f}-{max(ratios):.2f}':>12} "
            f"{os.getloadavg()[0]:6.1f}"
        )
    await wrapped.close()
    await bare.close()


def run() -> None:
    print(
        f"{'store':10} {'call':5} {'bare /s':>12} {'wrapped /s':>12} {'time x':>8} "
        f"{'min-max':>12} {'load':>6}"
    )
    asyncio.run(_measured("memory", "memory:"))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measured("embedded", f"embedded:{folder}/store"))
