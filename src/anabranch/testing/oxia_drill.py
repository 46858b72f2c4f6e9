"""Drill of the Oxia store: a server of three shards is killed again and again under load.

    python -m anabranch.testing.oxia_drill --kills 100

It is away for up to two seconds and comes back with what is on its disk; see `struck_store_drill`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from anabranch.testing.servers.oxia import Oxia, oxia
from anabranch.testing.stopping import run_program
from anabranch.testing.struck_store_drill import StruckStoreDrill, run_drill

_SHARDS: Final = 3
_AWAY_S_MAX: Final = 2.0


class OxiaDrill(StruckStoreDrill):
    """On a server in one process."""

    name = "oxia"
    one_history = False

    def __init__(self, server: Oxia, *, kills: int, seed: int) -> None:
        super().__init__(server.url, kills=kills, seed=seed)
        self._server = server.server

    async def _strike(self) -> None:
        self._server.kill()
        await asyncio.sleep(self._random.uniform(0, _AWAY_S_MAX))
        # Started by the main thread: the kernel ends servers with the thread that started them.
        self._server.launch()
        await asyncio.to_thread(self._server.wait_ready)


@contextmanager
def _drill(kills: int, seed: int) -> Iterator[StruckStoreDrill]:
    with oxia(_SHARDS) as server:
        yield OxiaDrill(server, kills=kills, seed=seed)


def main(arguments: Sequence[str]) -> int:
    """Run a drill and print its verdict."""
    return run_drill(arguments, "anabranch.testing.oxia_drill", _drill)


if __name__ == "__main__":
    run_program(main)
