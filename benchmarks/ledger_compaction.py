"""How long appends take while old segments are compacted, beside the same store with nothing to do.

A store is filled with ledgers whose entries lie between each other's, most of which are then
deleted. Appends come at a steady rate, first with nothing to compact, then while it runs, in turn;
each round gives one pair of p50 and p99.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time

import uvloop

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.store import LedgerWriter
from anabranch.limits import KIB, MIB, THREAD_SWITCH_S
from anabranch.runtime.real_disk import RealDisk

ROUNDS = 5
SEGMENT_BYTES = 64 * MIB
LEDGERS = 64
KEPT = 16
ENTRY_BYTES = 4 * KIB
SEGMENTS = 2
APPENDS_PER_S = 400
SECONDS = 3.0


async def fill(store: EmbeddedLedgerStore, first_id: int) -> list[int]:
    """Ledgers that share a few segments; returns the ids that may go."""
    writers = [await store.create(first_id + number) for number in range(LEDGERS)]
    entry = os.urandom(ENTRY_BYTES)
    each = SEGMENTS * SEGMENT_BYTES // ENTRY_BYTES // LEDGERS
    for _ in range(each):
        last = asyncio.Event()
        for writer in writers:
            writer.append(entry, lambda *_, last=last: last.set())
        await last.wait()
    for writer in writers:
        await writer.close()
    return list(range(first_id + KEPT, first_id + LEDGERS))


async def append_steadily(writer: LedgerWriter, until: asyncio.Task[None] | None) -> list[float]:
    """Latencies in ms, for some seconds or until a task is done."""
    entry = os.urandom(1 * KIB)
    latencies: list[float] = []
    begun = time.perf_counter()
    sent = 0
    while time.perf_counter() - begun < SECONDS if until is None else not until.done():
        due = begun + sent / APPENDS_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        at = time.perf_counter()

        def done(_entry_id: int, error: Exception | None, at: float = at) -> None:
            assert error is None, error
            latencies.append((time.perf_counter() - at) * 1000)

        writer.append(entry, done)
        sent += 1
    await asyncio.sleep(0.2)
    return latencies


def percentiles(latencies: list[float]) -> tuple[float, float]:
    ordered = sorted(latencies)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


async def measure() -> None:
    print(f"{'':>10} {'p50 ms':>8} {'p99 ms':>8} {'compacted':>12} {'in s':>6} {'p99 ratio':>10}")
    ratios = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        disk = RealDisk()
        store = await EmbeddedLedgerStore.open_folder(disk, folder, segment_bytes=SEGMENT_BYTES)
        writer = await store.create(1)
        for number in range(ROUNDS):
            doomed = await fill(store, 1000 * (number + 1))
            await store.tidied()
            idle = percentiles(await append_steadily(writer, None))
            before = _journal_bytes(folder)
            started = time.perf_counter()
            for ledger_id in doomed:
                await store.delete(ledger_id)
            tidy = asyncio.ensure_future(store.tidied())
            busy = percentiles(await append_steadily(writer, tidy))
            taken = time.perf_counter() - started
            assert store.upkeep_failure is None, store.upkeep_failure
            freed = (before - _journal_bytes(folder)) / MIB
            ratios.append(busy[1] / idle[1])
            print(f"{'idle':>10} {idle[0]:8.2f} {idle[1]:8.2f}")
            print(
                f"{'compacting':>10} {busy[0]:8.2f} {busy[1]:8.2f} {freed:8.0f} MiB {taken:6.1f} "
                f"{ratios[-1]:10.2f}"
            )
        await store.close()
        disk.close()
    print(f"p99 ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


def _journal_bytes(folder: str) -> int:
    with os.scandir(f"{folder}/journal") as files:
        return sum(file.stat().st_size for file in files)


def run() -> None:
    sys.setswitchinterval(THREAD_SWITCH_S)  # as the server does
    uvloop.run(measure())


if __name__ == "__main__":
    run()
