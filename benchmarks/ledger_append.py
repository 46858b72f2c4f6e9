"""Appends per second of the embedded ledger store beside a plain loop of write and fdatasync.

Both sides write the same bytes in groups of the same size and wait for the disk; the store has two
groups of appends under way, one on its way to the disk and one that gathers. Pairs are interleaved
and the first one is dropped.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import uvloop

from anabranch.ledgers.factory import open_ledgers
from anabranch.ledgers.store import LedgerStore, LedgerWriter
from anabranch.limits import KIB, THREAD_SWITCH_S
from anabranch.runtime.real import real_runtime
from anabranch.testing import measured

PAIRS = 6


@dataclass(frozen=True, slots=True)
class Load:
    """Entries of one size, appended in groups."""

    entry_bytes: int
    group: int
    entries: int


LOADS = (
    Load(1 * KIB, 256, 256 * 150),
    Load(64 * KIB, 16, 16 * 150),
    Load(1 * KIB, 1, 300),
)


def plain_loop(folder: str, load: Load) -> float:
    """Append and sync in the same groups; returns entries per second."""
    path = f"{folder}/plain"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    entry = os.urandom(load.entry_bytes)
    try:
        start = time.perf_counter()
        for _ in range(load.entries // load.group):
            os.writev(fd, [entry] * load.group)
            os.fdatasync(fd)
        return load.entries / (time.perf_counter() - start)
    finally:
        os.close(fd)
        os.unlink(path)


class Appends:
    """Keeps a number of appends under way until all are done."""

    def __init__(self, writer: LedgerWriter, load: Load) -> None:
        self.writer = writer
        self.entry = os.urandom(load.entry_bytes)
        self.to_append = load.entries
        self.to_finish = load.entries
        self.finished = asyncio.Event()

    def append(self, count: int) -> None:
        """Begin so many more."""
        for _ in range(min(count, self.to_append)):
            self.to_append -= 1
            self.writer.append(self.entry, self.done)

    def done(self, _entry_id: int, error: Exception | None) -> None:
        """Go on for each that is done."""
        if error is not None:
            raise error
        self.to_finish -= 1
        if self.to_append:
            self.append(1)
        elif not self.to_finish:
            self.finished.set()


async def embedded(store: LedgerStore, ledger_id: int, load: Load) -> float:
    """Entries per second of the store."""
    writer = await store.create(ledger_id)
    appends = Appends(writer, load)
    start = time.perf_counter()
    appends.append(load.group if load.group == 1 else 2 * load.group)
    await appends.finished.wait()
    taken = time.perf_counter() - start
    await writer.close()
    return load.entries / taken


async def measure() -> None:
    print(f"{'entries':>20} {'embedded/s':>12} {'plain/s':>12} {'MB/s':>8} {'ratio (min-max)':>22}")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        store = await open_ledgers(f"embedded:{folder}/store", real_runtime())
        ledger_id = 0
        found: dict[tuple[str, str], list[float]] = {}
        for load in LOADS:
            pairs = []
            for _ in range(PAIRS + 1):
                ledger_id += 1
                pairs.append((await embedded(store, ledger_id, load), plain_loop(folder, load)))
            ours, plain = (statistics.median(side) for side in zip(*pairs[1:], strict=True))
            ratios = [a / b for a, b in pairs[1:]]
            name = f"{load.group} x {load.entry_bytes // KIB} KiB"
            found[name, "plain loop"] = ratios
            print(
                f"{name:>20} {ours:12.0f} {plain:12.0f} {ours * load.entry_bytes / 1e6:8.0f} "
                f"{statistics.median(ratios):8.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            )
        await store.close()
    measured.save("ledger_append", found)


def run() -> None:
    sys.setswitchinterval(THREAD_SWITCH_S)  # as the server does
    uvloop.run(measure())


if __name__ == "__main__":
    run()
