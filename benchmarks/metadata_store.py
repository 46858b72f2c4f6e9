"""Puts per second of the embedded metadata store beside a plain loop of write and fdatasync.

Both sides write values of the same size and wait for the disk before the next put (single) or
before the next group of 256 (pipelined); pairs are interleaved and the first one is dropped.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime

VALUE = b"x" * 300
PAIRS = 6
SINGLE_PUTS = 500
PIPELINED_PUTS = 256 * 40
IN_FLIGHT = 256


def plain_loop(folder: str, puts: int, group: int) -> float:
    """Append and sync in the same groups; returns puts per second."""
    fd = os.open(f"{folder}/plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        start = time.perf_counter()
        for _ in range(puts // group):
            os.writev(fd, [VALUE] * group)
            os.fdatasync(fd)
        return puts / (time.perf_counter() - start)
    finally:
        os.close(fd)


async def single(store: MetadataStore) -> float:
    start = time.perf_counter()
    for i in range(SINGLE_PUTS):
        await store.put(f"/single/{i % 1000:04}", VALUE)
    return SINGLE_PUTS / (time.perf_counter() - start)


async def pipelined(store: MetadataStore) -> float:
    numbers: Iterator[int] = iter(range(PIPELINED_PUTS))

    async def one_in_flight() -> None:
        for i in numbers:
            await store.put(f"/pipelined/{i % 1000:04}", VALUE)

    start = time.perf_counter()
    await asyncio.gather(*(one_in_flight() for _ in range(IN_FLIGHT)))
    return PIPELINED_PUTS / (time.perf_counter() - start)


async def measure() -> None:
    kinds: list[tuple[str, Callable[[MetadataStore], Coroutine[None, None, float]], int, int]] = [
        ("single", single, SINGLE_PUTS, 1),
        (f"pipelined {IN_FLIGHT}", pipelined, PIPELINED_PUTS, IN_FLIGHT),
    ]
    print(f"{'puts of 300 bytes':20} {'embedded/s':>12} {'plain/s':>12} {'ratio (min-max)':>22}")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        store = await open_store(f"embedded:{folder}/store", real_runtime())
        for name, ours, puts, group in kinds:
            pairs = [
                (await ours(store), plain_loop(folder, puts, group)) for _ in range(PAIRS + 1)
            ][1:]
            ratios = [a / b for a, b in pairs]
            print(
                f"{name:20} {statistics.median(a for a, _ in pairs):12.0f} "
                f"{statistics.median(b for _, b in pairs):12.0f} "
                f"{statistics.median(ratios):8.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            )
        await store.close()


def run() -> None:
    asyncio.run(measure())


if __name__ == "__main__":
    run()
