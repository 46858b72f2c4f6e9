"""Where to wait for the disk while the loop is busy: a thread of this process, or a helper process.

    thread          write and fdatasync on the file's thread, as `runtime.real_disk` does
    thread, 5 ms    the same with Python's default switch interval
    thread, sync    write on the loop, fdatasync on a thread
    process         write on the loop, fdatasync in a helper that is told by one byte

Groups of entries are appended one after the other to each in turn. Meanwhile the loop works as it
does under load: pieces of plain Python of a fraction of a millisecond, one after the other.
"""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import uvloop

from anabranch.limits import KIB, THREAD_SWITCH_S
from anabranch.runtime.disk import WriteDone
from anabranch.runtime.real_disk import RealDisk

ROUNDS = 8
GROUPS = 60
WARM_UP = 5
"""Groups that are not counted: a helper takes a while to start."""
BUSY_PIECE_S = 0.0003
_HELPER = """
import os, socket, sys
told = socket.socket(fileno=int(sys.argv[1]))
fd = os.open(sys.argv[2], os.O_WRONLY)
while told.recv(1):
    os.fdatasync(fd)
    told.send(b".")
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What one group is, and how much of the loop's time is taken."""

    entry_bytes: int
    group: int
    busy: float


LOADS = (
    Load(64 * KIB, 16, 0.0),
    Load(64 * KIB, 16, 0.8),
    Load(1 * KIB, 64, 0.0),
    Load(1 * KIB, 64, 0.8),
)


class Appending(Protocol):
    """One way to append durably; see `DiskFile`."""

    def append(self, buffers: Sequence[bytes], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        ...

    async def close(self) -> None:
        """See `DiskFile.close`."""
        ...


class SyncThread:
    """A file whose syncs are done by a thread."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._thread = ThreadPoolExecutor(1)
        self._loop = asyncio.get_running_loop()

    def append(self, buffers: Sequence[bytes], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        assert sync
        os.writev(self._fd, buffers)
        self._thread.submit(self._sync, done)

    def _sync(self, done: WriteDone) -> None:
        os.fdatasync(self._fd)
        self._loop.call_soon_threadsafe(done, None)

    async def close(self) -> None:
        """See `DiskFile.close`."""
        self._thread.shutdown()
        os.close(self._fd)


class SyncProcess:
    """A file whose syncs are done by another process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._told, theirs = socket.socketpair()
        command = [sys.executable, "-c", _HELPER, str(theirs.fileno()), path]
        self._helper = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self._told.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._told, self._synced)
        self._done: WriteDone | None = None

    def append(self, buffers: Sequence[bytes], *, sync: bool, done: WriteDone) -> None:
        """See `DiskFile.append`."""
        assert sync
        assert self._done is None
        os.writev(self._fd, buffers)
        self._done = done
        self._told.send(b".")

    def _synced(self) -> None:
        self._told.recv(1)
        done, self._done = self._done, None
        assert done is not None
        done(None)

    async def close(self) -> None:
        """See `DiskFile.close`."""
        self._loop.remove_reader(self._told)
        self._told.close()
        self._helper.wait()
        os.close(self._fd)


async def keep_busy(share: float) -> None:
    """Take that share of the loop's time, in pieces."""
    while True:
        end = time.perf_counter() + BUSY_PIECE_S
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(BUSY_PIECE_S * (1 / share - 1))


async def append_groups(file: Appending, load: Load) -> tuple[float, list[float]]:
    """MB/s, and the ms each group took."""
    entries = [os.urandom(load.entry_bytes)] * load.group
    taken: list[float] = []
    busy = asyncio.ensure_future(keep_busy(load.busy)) if load.busy else None
    begun = time.perf_counter()
    for number in range(WARM_UP + GROUPS):
        if number == WARM_UP:
            begun = time.perf_counter()
        at = time.perf_counter()
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: OSError | None, durable: asyncio.Future[None] = durable) -> None:
            assert error is None, error
            durable.set_result(None)

        file.append(entries, sync=True, done=done)
        await durable
        taken.append((time.perf_counter() - at) * 1000)
    rate = GROUPS * load.group * load.entry_bytes / (time.perf_counter() - begun) / 1e6
    if busy is not None:
        busy.cancel()
    return rate, sorted(taken[WARM_UP:])


async def measure() -> None:
    print(f"{'group':>12} {'loop busy':>10} {'':>14} {'MB/s':>7} {'p50 ms':>7} {'p99 ms':>7}")
    disk = RealDisk()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=".") as folder:

        async def thread() -> Appending:
            return await disk.open(f"{folder}/{time.perf_counter_ns()}", create=True)

        async def sync_thread() -> Appending:
            return SyncThread(f"{folder}/{time.perf_counter_ns()}")

        async def process() -> Appending:
            return SyncProcess(f"{folder}/{time.perf_counter_ns()}")

        ways: dict[str, tuple[float, Callable[[], object]]] = {
            "thread": (THREAD_SWITCH_S, thread),
            "thread, 5 ms": (0.005, thread),
            "thread, sync": (THREAD_SWITCH_S, sync_thread),
            "process": (THREAD_SWITCH_S, process),
        }
        for load in LOADS:
            found: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, (switch_s, begin) in ways.items():
                    sys.setswitchinterval(switch_s)
                    file = await begin()  # type: ignore[misc]
                    found[name].append(await append_groups(file, load))
                    await file.close()
            for name, runs in found.items():
                rate = statistics.median(run[0] for run in runs)
                p50 = statistics.median(run[1][GROUPS // 2] for run in runs)
                p99 = statistics.median(run[1][GROUPS * 99 // 100] for run in runs)
                size = f"{load.group} x {load.entry_bytes // KIB} KiB"
                print(f"{size:>12} {load.busy:>10.0%} {name:>14} {rate:7.0f} {p50:7.2f} {p99:7.2f}")
    disk.close()


def run() -> None:
    uvloop.run(measure())


if __name__ == "__main__":
    run()
