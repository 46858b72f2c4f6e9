"""Memory of one process with many managed ledgers open, on embedded stores or on three bookies.

Each has a cursor and one entry of `ENTRY_BYTES` that nobody has acknowledged. Opening is in a
process of its own for each count, which ends without closing them; what is measured is that
process: with its stores if they are embedded, and as a client of ZooKeeper and of bookies if not.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from anabranch.ids import Position
from anabranch.ledgers.factory import open_ledgers
from anabranch.limits import KIB, MIB, THREAD_SWITCH_S
from anabranch.managed_ledger import ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper

COUNTS: Final = (10_000, 100_000)
ENTRY_BYTES: Final = 100
AT_ONCE: Final = 256
"""Managed ledgers being opened at any moment: each waits for the metadata several times."""
ZOOKEEPER_MEMORY: Final = ("-Xmx1536m",)
"""A managed ledger is three nodes there."""
BOUND_BYTES: Final = 4096 * MIB
"""What 100,000 may take."""


class Urls(NamedTuple):
    """Where the stores are."""

    metadata: str
    ledgers: str


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


async def _measure(urls: Urls, count: int) -> dict[str, float]:
    runtime = real_runtime()
    metadata = await open_store(urls.metadata, runtime)
    ledgers = await open_ledgers(urls.ledgers, runtime, metadata=metadata)
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
    return {"before": before, "after": _resident_bytes(), "opening_s": opening_s}


@contextmanager
def _embedded() -> Iterator[Urls]:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:
        yield Urls(f"embedded:{folder}/metadata", f"embedded:{folder}/ledgers")


@contextmanager
def _bookies() -> Iterator[Urls]:
    with zookeeper(memory=ZOOKEEPER_MEMORY) as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 3):
            yield Urls(ensemble.url, "bookkeeper:")


def _in_a_process(urls: Urls, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.open_managed_ledgers", *urls, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _compare(stores: Callable[[], AbstractContextManager[Urls]]) -> None:
    print(f"load {os.getloadavg()[0]:.1f}; an entry of {ENTRY_BYTES} bytes and a cursor each")
    print(f"{'open':>9} {'before, MiB':>12} {'after, MiB':>11} {'each, KiB':>10} {'opened, s':>10}")
    for count in COUNTS:
        with stores() as urls:
            found = _in_a_process(urls, count)
        each = (found["after"] - found["before"]) / count
        within = found["after"] <= BOUND_BYTES * max(1, count / 100_000)
        print(
            f"{count:>9,} {found['before'] / MIB:>12,.0f} {found['after'] / MIB:>11,.0f} "
            f"{each / KIB:>10.1f} {found['opening_s']:>10.1f}"
            f"{'' if within else '  above the bound'}",
            flush=True,
        )


def run() -> None:
    """Print one row for each count on embedded stores."""
    _compare(_embedded)


def run_on_bookies() -> None:
    """Print one row for each count on bookies and ZooKeeper."""
    _compare(_bookies)


if __name__ == "__main__":
    sys.setswitchinterval(THREAD_SWITCH_S)
    _, metadata_url, ledgers_url, count_text = sys.argv
    print(json.dumps(uvloop.run(_measure(Urls(metadata_url, ledgers_url), int(count_text)))))
    sys.stdout.flush()
    os._exit(0)  # what is open goes with the process
