"""Appends and reads on three real bookies: our client beside BookKeeper's own in Java.

Both keep the same number of appends under way, on ledgers with E3 Qw3 Qa2 and CRC32C, and then read
the ledger back a hundred entries at a time. Rounds of the sides are interleaved, and the first of
each is dropped: a Java client is one process for all its rounds of a load, so that it is warm. It
is measured with version 3 of the protocol, which ours speaks, and with version 2, as in Pulsar.
"""

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerStore, LedgerWriter
from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX, KIB
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing import measured
from anabranch.testing.bookies.registered import registered
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.servers.pulsar import java_command

ROUNDS: Final = 5
FIRST_ID: Final = 1_000_000_000
"""Far from those that the Java client draws."""
PROGRAM: Final = Path(__file__).with_name("BookKeeperAppends.java")


@dataclass(frozen=True, slots=True)
class Load:
    """Entries of one size, so many of them under way."""

    entry_bytes: int
    window: int
    entries: int


LOADS: Final = (
    Load(1 * KIB, 1000, 40_000),
    Load(64 * KIB, 64, 3_000),
    Load(1 * KIB, 1, 500),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one round."""

    appends_per_s: float
    p50_s: float
    p99_s: float
    read_mb_per_s: float


class Appends:
    """Keeps a number of appends under way until all are done."""

    def __init__(self, writer: LedgerWriter, load: Load) -> None:
        self.writer = writer
        self.entry = os.urandom(load.entry_bytes)
        self.to_append = load.entries
        self.begun_s: list[float] = []
        self.taken_s: list[float] = []
        self.entries = load.entries
        self.finished = asyncio.Event()

    def append(self, count: int) -> None:
        """Begin so many more."""
        for _ in range(min(count, self.to_append)):
            self.to_append -= 1
            self.begun_s.append(time.perf_counter())
            self.writer.append(self.entry, self.done)

    def done(self, entry_id: int, error: Exception | None) -> None:
        """Go on for each that is done."""
        if error is not None:
            raise error
        self.taken_s.append(time.perf_counter() - self.begun_s[entry_id])
        if self.to_append:
            self.append(1)
        elif len(self.taken_s) == self.entries:
            self.finished.set()


async def ours(store: LedgerStore, ledger_id: int, load: Load) -> Figures:
    """One round of our client."""
    writer = await store.create(ledger_id)
    appends = Appends(writer, load)
    start_s = time.perf_counter()
    appends.append(load.window)
    await appends.finished.wait()
    per_s = load.entries / (time.perf_counter() - start_s)
    await writer.close()
    taken_s = sorted(appends.taken_s)
    reader = await store.open(ledger_id)
    start_s = time.perf_counter()
    read_bytes = first = 0
    while first < load.entries:
        found = await reader.read(first, first + 99, max_bytes=1 << 30)
        read_bytes += sum(len(entry.payload) for entry in found)
        first += len(found)
    read_s = time.perf_counter() - start_s
    return Figures(
        per_s,
        taken_s[load.entries // 2],
        taken_s[int(load.entries * 0.99)],
        read_bytes / read_s / 1e6,
    )


class JavaClient:
    """The Java client, round by round: it writes a line when one is over."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def round(self) -> Figures:
        """Have it make a round.

        Raises:
            RuntimeError: if it ends instead, or appends failed.
        """
        assert self._process.stdin is not None, "its input is a pipe"
        assert self._process.stdout is not None, "its output is a pipe"
        self._process.stdin.write("!")
        self._process.stdin.flush()
        said: deque[str] = deque(maxlen=20)
        for line in self._process.stdout:
            said.append(line)
            if line.startswith("figures "):
                failed, *numbers = map(float, line.split()[1:])
                if failed:
                    raise RuntimeError(f"{failed:.0f} appends of the Java client failed")
                return Figures(*numbers)
        raise RuntimeError(f"the Java client ended:\n{''.join(said)}")


@contextmanager
def java(folder: Path, metadata_url: str, protocol: str, load: Load) -> Iterator[JavaClient]:
    """Run the Java client for all its rounds of one load."""
    command = java_command(folder, "-Xmx512m", main=str(PROGRAM))
    arguments = [f"metadata-store:{metadata_url}", protocol]
    arguments += map(str, (load.entry_bytes, load.entries, load.window))
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield JavaClient(process)
        finally:
            process.kill()


def _show(load: Load, side: str, rounds: list[Figures]) -> None:
    middle = [
        statistics.median(getattr(figures, name) for figures in rounds)
        for name in ("appends_per_s", "p50_s", "p99_s", "read_mb_per_s")
    ]
    name = f"{load.window} x {load.entry_bytes // KIB} KiB"
    print(
        f"{name:>14} {side:>8} {middle[0]:12.0f} {1000 * middle[1]:9.2f} {1000 * middle[2]:9.2f} "
        f"{middle[3]:10.1f}"
    )


async def measure() -> None:
    print(
        f"{'load':>14} {'side':>8} {'appends/s':>12} {'p50 ms':>9} {'p99 ms':>9} {'read MB/s':>10}"
    )
    settings = {"nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX)}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        zookeeper() as ensemble,
    ):
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 3, settings=settings):
            runtime = real_runtime()
            metadata = await open_store(ensemble.url, runtime)
            store = await BookKeeperLedgerStore.open_cluster(
                runtime, metadata, BookKeeperSettings()
            )
            await registered(store, 3)
            ledger_id = FIRST_ID
            ratios: dict[tuple[str, str], list[float]] = {}
            for load in LOADS:
                found: dict[str, list[Figures]] = {"ours": [], "java v3": [], "java v2": []}
                with (
                    java(Path(folder), ensemble.url, "v3", load) as java_v3,
                    java(Path(folder), ensemble.url, "v2", load) as java_v2,
                ):
                    for _ in range(ROUNDS + 1):
                        ledger_id += 1
                        found["ours"].append(await ours(store, ledger_id, load))
                        found["java v3"].append(await asyncio.to_thread(java_v3.round))
                        found["java v2"].append(await asyncio.to_thread(java_v2.round))
                for side, rounds in found.items():
                    _show(load, side, rounds[1:])
                    if side != "ours":
                        name = f"{load.window} x {load.entry_bytes // KIB} KiB"
                        ratios[name, side] = [
                            first.appends_per_s / other.appends_per_s
                            for first, other in zip(found["ours"][1:], rounds[1:], strict=True)
                        ]
            await store.close()
            await metadata.close()
    measured.save("bookkeeper_append", ratios)


def run() -> None:
    uvloop.run(measure())


if __name__ == "__main__":
    run()
