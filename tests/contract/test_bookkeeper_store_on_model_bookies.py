"""The ledger store's contract on BookKeeper's protocol, with model bookies in this process."""

from collections.abc import AsyncIterator

import pytest

from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import RealClock, real_runtime
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.contracts.ledger_owners import Closing, Fencing, Surviving
from anabranch.testing.contracts.ledgers import Appending, LedgerBench, Living, Reading


class ModelBench:
    """Bookies that outlive the stores on them; a crashed store is left where it was."""

    def __init__(self, settings: BookKeeperSettings) -> None:
        self.runtime = real_runtime()
        self.metadata = MemoryStore(RealClock())
        self.bookies = [LoopbackBookie(self.runtime, self.metadata) for _ in range(3)]
        self.settings = settings
        self.lives: list[BookKeeperLedgerStore] = []

    @property
    def store(self) -> LedgerStore:
        return self.lives[-1]

    async def begin(self) -> LedgerStore:
        if not self.lives:
            for bookie in self.bookies:
                await bookie.start()
        store = await BookKeeperLedgerStore.open_cluster(self.runtime, self.metadata, self.settings)
        self.lives.append(store)
        return store

    async def restart(self) -> LedgerStore:
        await self.lives[-1].close()
        return await self.begin()

    async def crash(self) -> LedgerStore:
        return await self.begin()

    async def end(self) -> None:
        for store in self.lives:
            await store.close()
        for bookie in self.bookies:
            await bookie.stop()
        await self.metadata.close()


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
