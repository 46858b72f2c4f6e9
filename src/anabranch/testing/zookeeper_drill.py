"""Drill of the ZooKeeper store: the leader of three nodes is killed again and again under load.

    python -m anabranch.testing.zookeeper_drill --kills 100

Several clients count, lock and watch (`shared_load`) while the leader dies, another is elected, and
the dead one comes back. Sessions must live on, since each election is shorter than they may last.
The verdict is one line of JSON; exit code 0 is clean, 1 violated, 2 no verdict.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from random import Random, SystemRandom
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.metadata.factory import open_store
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import Member, ZooKeeper, zookeeper
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.shared_load import Client, Findings, judge, look
from anabranch.testing.stopping import run_program

SESSION_TIMEOUT_S: Final = 30.0
_CLIENTS: Final = 4
_KILL_AFTER_S_MAX: Final = 1.5
_PROGRESS_S_MAX: Final = 60.0
_POLL_S: Final = 0.05


class ZooKeeperDrill:
    """One drill on an ensemble of three that runs already."""

    def __init__(self, ensemble: ZooKeeper, *, kills: int, seed: int) -> None:
        self._ensemble = ensemble
        self._kills = kills
        self._random = Random(seed)
        self._clients: list[Client] = []
        self.found = Findings()

    async def run(self) -> Findings:
        """Kill as often as asked, then judge.

        Raises:
            ServerFailed: if nobody leads, or some client does not go on, for too long.
        """
        runtime, url = real_runtime(), f"{self._ensemble.url}/drill"
        reader = await open_store(url, runtime, session_timeout_s=SESSION_TIMEOUT_S)
        looking = asyncio.ensure_future(look(self._clients, self.found))
        try:
            for number in range(_CLIENTS):
                store = await open_store(url, runtime, session_timeout_s=SESSION_TIMEOUT_S)
                client = Client(store, f"client-{number}", runtime.clock, self.found)
                self._clients.append(client)
                await client.listen()
            for client in self._clients:
                client.begin()
            for number in range(1, self._kills + 1):
                await self._kill_the_leader()
                print(f"kill {number} of {self._kills}", file=sys.stderr, flush=True)
            await asyncio.gather(*(client.stop() for client in self._clients))
            await judge(self._clients, reader, self.found)
            if self.found.sessions_lost:
                self.found.wrong.append(f"{self.found.sessions_lost} sessions were lost")
        finally:
            looking.cancel()
            for client in self._clients:
                await client.close()
            await reader.close()
        return self.found

    async def _kill_the_leader(self) -> None:
        await self._wait_for_progress()
        await asyncio.sleep(self._random.uniform(0, _KILL_AFTER_S_MAX))
        leader = await self._leader()
        leader.kill()
        await self._leader()
        # Started by the main thread: the kernel ends servers with the thread that started them.
        leader.launch()
        await asyncio.to_thread(leader.wait_ready)

    async def _leader(self) -> Member:
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            leader = await asyncio.to_thread(self._ensemble.leader)
            if leader is not None:
                return leader
            await asyncio.sleep(_POLL_S)
        raise ServerFailed(f"nobody led the ensemble for {_PROGRESS_S_MAX:g} s")

    async def _wait_for_progress(self) -> None:
        values = [client.value for client in self._clients]
        for _ in range(int(_PROGRESS_S_MAX / _POLL_S)):
            if all(c.value > value for c, value in zip(self._clients, values, strict=True)):
                return
            await asyncio.sleep(_POLL_S)
        raise ServerFailed(f"some client was not answered for {_PROGRESS_S_MAX:g} s")


def verdict_of(found: Findings, *, kills: int, seed: int) -> dict[str, Any]:
    """The verdict as it is printed."""
    counts = asdict(found)
    violations = counts.pop("wrong")
    status = "violated" if violations else "clean"
    return {
        "drill": "zookeeper",
        "status": status,
        "kills": kills,
        "seed": seed,
        "violations": violations[:20],
        "counts": counts,
    }


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.zookeeper_drill")
    parser.add_argument("--kills", type=int, default=10, help="how often (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the moments of the kills")
    asked = parser.parse_args(arguments)
    if asked.kills < 1:
        parser.error("at least one kill is needed")
    seed = SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    print(f"seed {seed}", file=sys.stderr)
    try:
        with zookeeper(3, memory=("-Xmx256m",)) as ensemble:
            found = asyncio.run(ZooKeeperDrill(ensemble, kills=asked.kills, seed=seed).run())
    except AnabranchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(verdict_of(found, kills=asked.kills, seed=seed)))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    run_program(main)
