"""How long a large embedded ledger store takes to open, and how much memory that needs.

    clean      after a stop: index files for all sealed segments, the last segment is read
    killed     the last sealed segment has no index file yet, and the end of the journal is torn
    no index   all index files are lost: every segment is read

Each start is a process of its own. The store is made once, of entries of `ENTRY_BYTES`; it takes
`GIB` GiB of disk while the benchmark runs.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.limits import KIB, MIB, THREAD_SWITCH_S
from anabranch.runtime.real_disk import RealDisk

GIB = 5
ENTRY_BYTES = 4 * KIB
LEDGERS = 100
IN_FLIGHT = 2000
STARTS = 3


async def fill(folder: str) -> int:
    """Make the store; returns how many entries it has."""
    disk = RealDisk()
    store = await EmbeddedLedgerStore.open_folder(disk, folder)
    writers = [await store.create(ledger_id) for ledger_id in range(LEDGERS)]
    entry = os.urandom(ENTRY_BYTES)
    wanted = GIB * 1024 * MIB // ENTRY_BYTES
    done = 0
    fewer = asyncio.Event()

    def durable(_entry_id: int, error: Exception | None) -> None:
        nonlocal done
        assert error is None, error
        done += 1
        fewer.set()

    for number in range(wanted):
        writers[number % LEDGERS].append(entry, durable)
        while number - done > IN_FLIGHT:
            fewer.clear()
            await fewer.wait()
        if number % (wanted // 10) == 0:
            print(f"making the store: {number * 100 // wanted} %", file=sys.stderr, flush=True)
    for writer in writers:
        await writer.close()
    await store.tidied()
    await store.close()
    disk.close()
    return wanted


async def start(folder: str) -> dict[str, float]:
    """Open the store in this process and say what that took."""
    disk = RealDisk()
    begun = time.perf_counter()
    store = await EmbeddedLedgerStore.open_folder(disk, folder)
    taken = time.perf_counter() - begun
    entries = 0
    for ledger_id in range(LEDGERS):
        entries += (await store.describe(ledger_id)).last_entry_id + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
    await store.tidied()
    await store.close()
    disk.close()
    return {"seconds": taken, "entries": entries, "peak_mib": peak}


def measured(folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ledger_recovery", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def tear(folder: str) -> None:
    """Leave the folder as a kill in full swing does."""
    sorted(Path(folder, "index").iterdir())[-1].unlink()
    tail = sorted(Path(folder, "journal").iterdir())[-1]
    with tail.open("ab") as file:
        file.write(b"\x00\x00\x10\x00torn" + bytes(1000))


def lose_index(folder: str) -> None:
    for file in Path(folder, "index").iterdir():
        file.unlink()


def run() -> None:
    sys.setswitchinterval(THREAD_SWITCH_S)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        entries = uvloop.run(fill(folder))
        print(f"{GIB} GiB, {entries:,} entries of {ENTRY_BYTES // KIB} KiB in {LEDGERS} ledgers")
        print(f"{'':>10} {'seconds':>24} {'peak MiB':>9}")
        for name, hurt, starts in (
            ("clean", lambda _folder: None, STARTS),
            ("killed", tear, STARTS),
            ("no index", lose_index, 1),
        ):
            found = []
            for _ in range(starts):
                hurt(folder)
                found.append(measured(folder))
            assert all(each["entries"] == entries for each in found), found
            seconds = ", ".join(f"{each['seconds']:.2f}" for each in found)
            print(f"{name:>10} {seconds:>24} {max(each['peak_mib'] for each in found):9.0f}")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(uvloop.run(start(sys.argv[1]))))
    else:
        run()
