"""Memory of one process with many managed ledgers open on embedded stores.

Each has a cursor and one entry of `ENTRY_BYTES` that nobody has acknowledged. Opening is in a
process of its own for each count; what is measured is that process, with its stores.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from anabranch.ids import Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.limits import KIB, MIB, THREAD_SWITCH_S
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime

COUNTS: Final = (10_000, 100_000)
ENTRY_BYTES: Final = 100
AT_ONCE: Final = 64
"""Managed ledgers being opened at any moment."""
BOUND_BYTES: Final = 4096 * MIB
"""What 100,000 may take."""


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def _open_one(topics: ManagedLedgers, number: int, payload: bytes) -> None:
    ledger = await topics.open(f"public/default/persistent/open-{number:06}")
    await ledger.open_cursor("waiting", initial="earliest")
    durable: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        assert position is not None, error
        durable.set_result(position)

    ledger.append(payload, done)
    await durable


async def _measure(folder: str, count: int) -> dict[str, float]:
    runtime = real_runtime()
    metadata = await open_store(f"embedded:{folder}/metadata", runtime)
    ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, f"{folder}/ledgers")
    topics = ManagedLedgers(metadata=metadata, ledgers=ledgers, runtime=runtime)
    payload = os.urandom(ENTRY_BYTES)
    before, began = _resident_bytes(), time.monotonic()
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await _open_one(topics, number, payload)
            if number % (count // 10) == 0:
                print(f"{number:,} of {count:,} open", file=sys.stderr, flush=True)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    opening_s = time.monotonic() - began
    await asyncio.sleep(1)
    after, began = _resident_bytes(), time.monotonic()
    await topics.close()
    closing_s = time.monotonic() - began
    await ledgers.close()
    await metadata.close()
    return {"before": before, "after": after, "opening_s": opening_s, "closing_s": closing_s}


def _in_a_process(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        command = [sys.executable, "-m", "benchmarks.open_managed_ledgers", folder, str(count)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run() -> None:
    """Print one row for each count."""
    print(f"load {os.getloadavg()[0]:.1f}; an entry of {ENTRY_BYTES} bytes and a cursor each")
    print(f"{'open':>9} {'before, MiB':>12} {'after, MiB':>11} {'each, KiB':>10} {'opened, s':>10}")
    for count in COUNTS:
        found = _in_a_process(count)
        each = (found["after"] - found["before"]) / count
        within = found["after"] <= BOUND_BYTES * max(1, count / 100_000)
        print(
            f"{count:>9,} {found['before'] / MIB:>12,.0f} {found['after'] / MIB:>11,.0f} "
            f"{each / KIB:>10.1f} {found['opening_s']:>10.1f}"
            f"{'' if within else '  above the bound'}",
            flush=True,
        )


if __name__ == "__main__":
    sys.setswitchinterval(THREAD_SWITCH_S)
    print(json.dumps(uvloop.run(_measure(sys.argv[1], int(sys.argv[2])))))
