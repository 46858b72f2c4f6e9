"""A process that wants a lock, and acts while it holds it; tests kill and stop it.

Each line on standard output is one word and what belongs to it: `waits`, `held` with the token,
`acts`, `lost` with the reason. Each ends with the machine's monotonic clock, which all processes
share.
"""

import argparse
import asyncio
import sys
import time

from anabranch.errors import OutcomeUnknown, Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.locks import Lock, Locks
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

ACT_EVERY_S = 0.01


def say(*words: object) -> None:
    """Write one line with the present moment."""
    print(*words, f"{time.monotonic():.6f}", flush=True)


async def hold(url: str, path: str, name: str, timeout_s: float) -> None:
    """Wait for the lock, act, and wait again when it is lost."""
    runtime = real_runtime()
    tasks = Tasks(lambda task, failure: sys.exit(f"{task}: {failure!r}"))
    store = await open_store(url, runtime, session_timeout_s=timeout_s)
    locks = Locks(store, runtime.clock, tasks)
    locks.start()
    while True:
        say("waits")
        lock = await _acquired(locks, path, name.encode())
        say("held", lock.token.index)
        while not lock.expired.done():
            if lock.held:
                say("acts")
            await asyncio.sleep(ACT_EVERY_S)
        say("lost", lock.expired.result().replace(" ", "-"))


async def _acquired(locks: Locks, path: str, value: bytes) -> Lock:
    while True:
        try:
            return await locks.acquire_when_free(path, value)
        except (Unreachable, OutcomeUnknown):
            await asyncio.sleep(ACT_EVERY_S)


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.lock_holder")
    parser.add_argument("url")
    parser.add_argument("path")
    parser.add_argument("name")
    parser.add_argument("--timeout-s", type=float, default=2.0)
    options = parser.parse_args()
    asyncio.run(hold(options.url, options.path, options.name, options.timeout_s))


if __name__ == "__main__":
    main()
