"""The ledger store's contract, shown on three real bookies and a real ZooKeeper.

All tests share them; each has ledger ids of its own. A store that crashed is left where it was.
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.ledgers.store import LedgerStore
from anabranch.limits import BOOKKEEPER_FRAME_BYTES_MAX
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledger_owners import Closing, Fencing, Surviving
from anabranch.testing.contracts.ledgers import Appending, LedgerBench, Living, Reading
from anabranch.testing.servers import bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.shifted_ledgers import ShiftedStore

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(300),
    pytest.mark.goal("core.L1", part="bookkeeper"),
]
_numbers = count(1)


@pytest.fixture(scope="module")
def metadata_url() -> Iterator[str]:
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        settings = {"nettyMaxFrameSizeBytes": str(BOOKKEEPER_FRAME_BYTES_MAX)}
        with bookkeeper(ensemble.url, 3, settings=settings):
            yield ensemble.url


class BookKeeperBench:
    def __init__(self, metadata_url: str) -> None:
        self._metadata_url = metadata_url
        self._number = next(_numbers)
        self._lives: list[tuple[MetadataStore, BookKeeperLedgerStore]] = []

    @property
    def store(self) -> LedgerStore:
        return ShiftedStore(self._lives[-1][1], self._number)

    async def begin(self) -> LedgerStore:
        runtime = real_runtime()
        metadata = await open_store(self._metadata_url, runtime)
        store = await BookKeeperLedgerStore.open_cluster(runtime, metadata, BookKeeperSettings())
        await registered(store, 3)
        self._lives.append((metadata, store))
        return self.store

    async def restart(self) -> LedgerStore:
        await self._lives[-1][1].close()
        return await self.begin()

    async def crash(self) -> LedgerStore:
        return await self.begin()

    async def end(self) -> None:
        for metadata, store in self._lives:
            await store.close()
            await metadata.close()


class OnBookKeeper:
    @pytest.fixture
    async def bench(self, metadata_url: str) -> AsyncIterator[LedgerBench]:
        bench = BookKeeperBench(metadata_url)
        await bench.begin()
        yield bench
        await bench.end()


class TestBookKeeperAppending(OnBookKeeper, Appending):
    pass


class TestBookKeeperReading(OnBookKeeper, Reading):
    pass


class TestBookKeeperLiving(OnBookKeeper, Living):
    remembers_deleted = False


class TestBookKeeperClosing(OnBookKeeper, Closing):
    pass


class TestBookKeeperFencing(OnBookKeeper, Fencing):
    pass


class TestBookKeeperSurviving(OnBookKeeper, Surviving):
    remembers_deleted = False
