"""A cluster of model bookies in this process, with stores on it, for tests of what may happen."""

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import RealClock, real_runtime
from anabranch.testing.bookies.loopback import LoopbackBookie

SETTINGS: Final = BookKeeperSettings(request_timeout_s=0.5, explicit_lac_s=0.05, quorum_wait_s=1.0)
"""Impatient, so that tests are not slow."""
_TRIES: Final = 1000
_INTERVAL_S: Final = 0.01


async def until(condition: Callable[[], object]) -> None:
    """Return once something is so.

    Raises:
        TimeoutError: if that takes ten seconds.
    """
    for _ in range(_TRIES):
        if condition():
            return
        await asyncio.sleep(_INTERVAL_S)
    raise TimeoutError("it did not happen")


class LoopbackCluster:
    """Bookies, their metadata, and the stores that a test opens."""

    def __init__(self) -> None:
        self.runtime = real_runtime()
        self.metadata = MemoryStore(RealClock())
        self.bookies: dict[str, LoopbackBookie] = {}
        self._stores: list[BookKeeperLedgerStore] = []

    async def more_bookies(self, count: int) -> None:
        """Start some."""
        for _ in range(count):
            bookie = LoopbackBookie(self.runtime, self.metadata)
            await bookie.start()
            self.bookies[bookie.bookie_id] = bookie

    async def store(self, settings: BookKeeperSettings = SETTINGS) -> BookKeeperLedgerStore:
        """A store as another process would have it."""
        store = await BookKeeperLedgerStore.open_cluster(self.runtime, self.metadata, settings)
        self._stores.append(store)
        return store

    async def ledger(self, ledger_id: int) -> LedgerMetadata:
        """What the metadata say of a ledger."""
        registry = await LedgerRegistry.open(self.metadata, self.runtime)
        return (await registry.read(ledger_id)).metadata

    async def bookie_of(self, ledger_id: int, place: int) -> LoopbackBookie:
        """The bookie that has a place in a ledger's last ensemble."""
        return self.bookies[(await self.ledger(ledger_id)).segments[-1].bookies[place]]

    async def until_without(self, ledger_id: int, bookie: LoopbackBookie) -> None:
        """Return once a ledger has another bookie instead.

        Raises:
            TimeoutError: if that takes ten seconds.
        """
        for _ in range(_TRIES):
            if bookie.bookie_id not in (await self.ledger(ledger_id)).segments[-1].bookies:
                return
            await asyncio.sleep(_INTERVAL_S)
        raise TimeoutError("the bookie was not replaced")

    async def end(self) -> None:
        """Let go of everything."""
        for store in self._stores:
            await store.close()
        for bookie in self.bookies.values():
            await bookie.stop()
        await self.metadata.close()
