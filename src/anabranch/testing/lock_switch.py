"""Real processes that share one lock of a served store, and how long it takes to change hands."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import NamedTuple

from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.runtime.real import real_runtime
from anabranch.testing.planted import child_command

PATH = "/locks/mill"
LINE_S_MAX = 30.0


class Said(NamedTuple):
    """One line of a holder."""

    word: str
    detail: str
    at_s: float
    """By the monotonic clock of the machine."""


class Holder:
    """One process that wants the lock."""

    def __init__(self, url: str, name: str, timeout_s: float) -> None:
        self.name = name
        self.said: list[Said] = []
        self._command = child_command(
            "anabranch.testing.lock_holder", url, PATH, name, "--timeout-s", str(timeout_s)
        )
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> "Holder":
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it may have ended by itself just now
                self.signal(signal.SIGKILL)
            await self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to this very process."""
        os.kill(self._process.pid, number)

    async def kill(self) -> float:
        """End it with SIGKILL; returns when."""
        at_s = time.monotonic()
        self.signal(signal.SIGKILL)
        await self._process.wait()
        return at_s

    async def until(self, word: str) -> Said:
        """Read until it says this."""
        assert self._process.stdout is not None
        async with asyncio.timeout(LINE_S_MAX):
            while True:
                line = (await self._process.stdout.readline()).decode().split()
                assert line, f"{self.name} ended; it said {self.said[-3:]}"
                self.said.append(Said(line[0], " ".join(line[1:-1]), float(line[-1])))
                if line[0] == word:
                    return self.said[-1]


@asynccontextmanager
async def served_store(folder: str) -> AsyncIterator[str]:
    """Serve an embedded store from this process; gives its URL."""
    runtime = real_runtime()
    failures: list[str] = []
    store = await EmbeddedStore.open(runtime, folder)
    server = MetadataServer(
        runtime, store, on_failure=lambda name, error: failures.append(f"{name}: {error!r}")
    )
    await server.start("127.0.0.1", 0)
    try:
        yield f"anabranch://127.0.0.1:{server.port}"
    finally:
        await server.close()
        await store.close()
    assert not failures, failures


async def measure_switches(folder: str, *, timeout_s: float, switches: int) -> list[float]:
    """Kill the holder and see how long the next one takes to hold the lock; seconds of each."""
    taken_s: list[float] = []
    async with served_store(folder) as url, AsyncExitStack() as stack:
        holder = await stack.enter_async_context(Holder(url, "holder-0", timeout_s))
        token = int((await holder.until("held")).detail)
        for number in range(1, switches + 1):
            heir = await stack.enter_async_context(Holder(url, f"holder-{number}", timeout_s))
            await heir.until("waits")
            # Not always at the same moment of the renewals.
            await asyncio.sleep(timeout_s * (number % 5) / 15)
            killed_s = await holder.kill()
            held = await heir.until("held")
            assert int(held.detail) > token, "tokens rise"
            taken_s.append(held.at_s - killed_s)
            holder, token = heir, int(held.detail)
    return taken_s
