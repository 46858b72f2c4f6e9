"""Drill of the ZooKeeper store: the leader of three nodes is killed again and again under load.

    python -m anabranch.testing.zookeeper_drill --kills 100

The leader dies, another is elected, and the dead one comes back; see `struck_store_drill`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from anabranch.testing.servers import Member, ZooKeeper, zookeeper
from anabranch.testing.servers.failures import ServerFailed
from anabranch.testing.stopping import run_program
from anabranch.testing.struck_store_drill import (
    POLL_S,
    PROGRESS_S_MAX,
    StruckStoreDrill,
    run_drill,
)


class ZooKeeperDrill(StruckStoreDrill):
    """On an ensemble of three."""

    name = "zookeeper"

    def __init__(self, ensemble: ZooKeeper, *, kills: int, seed: int) -> None:
        super().__init__(f"{ensemble.url}/drill", kills=kills, seed=seed)
        self._ensemble = ensemble

    async def _strike(self) -> None:
        leader = await self._leader()
        leader.kill()
        await self._leader()
        # Started by the main thread: the kernel ends servers with the thread that started them.
        leader.launch()
        await asyncio.to_thread(leader.wait_ready)

    async def _leader(self) -> Member:
        for _ in range(int(PROGRESS_S_MAX / POLL_S)):
            leader = await asyncio.to_thread(self._ensemble.leader)
            if leader is not None:
                return leader
            await asyncio.sleep(POLL_S)
        raise ServerFailed(f"nobody led the ensemble for {PROGRESS_S_MAX:g} s")


@contextmanager
def _drill(kills: int, seed: int) -> Iterator[StruckStoreDrill]:
    with zookeeper(3, memory=("-Xmx256m",)) as ensemble:
        yield ZooKeeperDrill(ensemble, kills=kills, seed=seed)


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    return run_drill(arguments, "anabranch.testing.zookeeper_drill", _drill)


if __name__ == "__main__":
    run_program(main)
