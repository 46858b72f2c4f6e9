"""The ledger store's contract on BookKeeper's protocol, with model bookies in this process."""

from collections.abc import AsyncIterator

import pytest

from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.testing.bookies.loopback_cluster import LoopbackCluster
from anabranch.testing.contracts.ledger_owners import Closing, Fencing, Surviving
from anabranch.testing.contracts.ledgers import Appending, LedgerBench, Living, Reading


class ModelBench:
    """Bookies that outlive the stores on them; a crashed store is left where it was."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self.cluster = LoopbackCluster()
        self.settings = settings
        self.lives: list[BookKeeperLedgerStore] = []

    @property
    def store(self) -> LedgerStore:
        return self.lives[-1]

    async def begin(self) -> LedgerStore:
        if not self.lives:
            await self.cluster.more_bookies(3)
        self.lives.append(await self.cluster.store(self.settings))
        return self.store

    async def restart(self) -> LedgerStore:
        await self.lives[-1].close()
        return await self.begin()

    async def crash(self) -> LedgerStore:
        return await self.begin()

    async def end(self) -> None:
        await self.cluster.end()


class OnModelBookies:
    @pytest.fixture(params=[(3, 3, 2), (3, 2, 2)], ids=["3-3-2", "3-2-2"])
    async def bench(self, request: pytest.FixtureRequest) -> AsyncIterator[LedgerBench]:
        ensemble, write, ack = request.param
        bench = ModelBench(
            BookKeeperSettings(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
        )
        await bench.begin()
        yield bench
        await bench.end()


class TestAppending(OnModelBookies, Appending):
    pass


class TestReading(OnModelBookies, Reading):
    pass


class TestLiving(OnModelBookies, Living):
    remembers_deleted = False


class TestClosing(OnModelBookies, Closing):
    pass


class TestFencing(OnModelBookies, Fencing):
    pass


class TestSurviving(OnModelBookies, Surviving):
    remembers_deleted = False
