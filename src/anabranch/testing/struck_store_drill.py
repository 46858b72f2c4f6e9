"""What drills of metadata stores on foreign servers share: clients at work, a blow again and again.

Several clients count, lock and watch (`shared_load`) while the servers are struck. Sessions must
live on, since each blow is over sooner than they may last. The verdict is one line of JSON; exit
code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from random import Random, SystemRandom
from typing import Any, ClassVar, Final

from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.shared_load import Client, Findings, judge, look

SESSION_TIMEOUT_S: Final = 30.0
PROGRESS_S_MAX: Final = 60.0
POLL_S: Final = 0.05
_CLIENTS: Final = 4
_COUNTERS_EACH: Final = 4
_WRITES_BETWEEN_BLOWS: Final = 25
"""Of each counter: a blow that falls on clients which just came back hits next to nothing."""
_STRIKE_AFTER_S_MAX: Final = 1.5


class StruckStoreDrill(ABC):
    """One drill on servers that run already; what a blow is, is up to who extends it."""

    name: ClassVar[str]
    one_history: ClassVar[bool] = True
    """Whether a change has the same revision for all clients."""

    def __init__(self, url: str, *, kills: int, seed: int) -> None:
        self._url = url
        self._kills = kills
        self._seed = seed
        self._random = Random(seed)
        self._clients: list[Client] = []
        self.found = Findings()

    @abstractmethod
    async def _strike(self) -> None:
        """One blow; all servers are up again at the end.

        Raises:
            ServerFailed: if they do not come back.
        """

    async def run(self) -> Findings:
        """Strike as often as asked, then judge.

        Raises:
            ServerFailed: if servers do not come back, or some client does not go on, for too long.
        """
        runtime = real_runtime()
        reader = await open_store(self._url, runtime, session_timeout_s=SESSION_TIMEOUT_S)
        looking = asyncio.ensure_future(look(self._clients, self.found))
        try:
            for number in range(_CLIENTS):
                store = await open_store(self._url, runtime, session_timeout_s=SESSION_TIMEOUT_S)
                client = Client(
                    store,
                    f"client-{number}",
                    runtime.clock,
                    self.found,
                    counters=_COUNTERS_EACH,
                )
                self._clients.append(client)
                await client.listen()
            for client in self._clients:
                client.begin()
            for number in range(1, self._kills + 1):
                await self._wait_for_progress()
                await asyncio.sleep(self._random.uniform(0, _STRIKE_AFTER_S_MAX))
                await self._strike()
                print(f"kill {number} of {self._kills}", file=sys.stderr, flush=True)
            await asyncio.gather(*(client.stop() for client in self._clients))
            await judge(self._clients, reader, self.found, one_history=self.one_history)
            if self.found.sessions_lost:
                self.found.wrong.append(f"{self.found.sessions_lost} sessions were lost")
        finally:
            looking.cancel()
            for client in self._clients:
                await client.close()
            await reader.close()
        return self.found

    async def _wait_for_progress(self) -> None:
        """Until every counter of every client was written to often enough since the last blow."""
        wanted = [client.fewest + _WRITES_BETWEEN_BLOWS for client in self._clients]
        for _ in range(int(PROGRESS_S_MAX / POLL_S)):
            if all(c.fewest >= least for c, least in zip(self._clients, wanted, strict=True)):
                return
            await asyncio.sleep(POLL_S)
        raise ServerFailed(f"some client was not answered as it should in {PROGRESS_S_MAX:g} s")

    @property
    def verdict(self) -> dict[str, Any]:
        """What came of it, as it is printed."""
        counts = asdict(self.found)
        violations = counts.pop("wrong")
        return {
            "drill": self.name,
            "status": "violated" if violations else "clean",
            "kills": self._kills,
            "seed": self._seed,
            "violations": violations[:20],
            "counts": counts,
        }


def run_drill(
    arguments: Sequence[str],
    module: str,
    drill_of: Callable[[int, int], AbstractContextManager[StruckStoreDrill]],
) -> int:
    """Run a drill on its own servers and print its verdict."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--kills", type=int, default=10, help="how often (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the moments of the kills")
    asked = parser.parse_args(arguments)
    if asked.kills < 1:
        parser.error("at least one kill is needed")
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    print(f"seed {seed}", file=sys.stderr)
    try:
        with drill_of(asked.kills, seed) as drill:
            found = asyncio.run(drill.run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(drill.verdict))
    return 1 if found.wrong else 0
