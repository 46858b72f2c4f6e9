"""The stores of all storage clusters: the active one for new ledgers, the stamp's for all others.

Stores are opened when they are first needed. What is kept in memory about a ledger belongs under
its `key`: the same id may be a ledger in each cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from anabranch.errors import AnabranchError, ConflictError, StorageError
from anabranch.journal import Pressure
from anabranch.ledgers.catalog import ORIGIN, CatalogDocument, StorageCatalog, StorageCluster
from anabranch.ledgers.ledger_ids import LedgerIdAuthority
from anabranch.ledgers.stamps import LedgerPlace, Stamp
from anabranch.ledgers.store import (
    LedgerDescription,
    LedgerQuorums,
    LedgerReader,
    LedgerStore,
    LedgerWriter,
)
from anabranch.metadata.store import Guard
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("storage")

OpenStore = Callable[[str, Pressure, AsyncExitStack], Awaitable[LedgerStore]]
"""Opens the store at a URL of the catalog; its appends count in the pressure, the stack closes it.
"""
LedgerKey = tuple[str, int]
"""The name of a cluster, and the id of a ledger there."""


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """A ledger that nobody names yet. All of it was decided at once, and is published at once."""

    writer: LedgerWriter
    stamp: Stamp
    """Belongs to the document that names the ledger."""
    guard: Guard | None
    """Under which that document is written: it refuses once the catalog has changed."""

    @property
    def place(self) -> LedgerPlace:
        """Which ledger it is."""
        return LedgerPlace(self.writer.ledger_id, self.stamp)


class StorageClusters:
    """Creates, opens and deletes ledgers in the storage clusters of a catalog."""

    def __init__(
        self,
        ids: LedgerIdAuthority,
        stores: Mapping[str, LedgerStore],
        *,
        catalog: StorageCatalog | None = None,
        open_store: OpenStore | None = None,
    ) -> None:
        """Closes the stores it opens, and not those it is given, which share one pressure."""
        self.ids = ids
        self._catalog = catalog
        self._stores = dict(stores)
        self._open_store = open_store
        self._opening: dict[str, asyncio.Task[LedgerStore]] = {}
        self._tasks = Tasks(self._task_failed)
        self._held = AsyncExitStack()
        self._pressure = next(iter(self._stores.values())).pressure

    @classmethod
    def of_one(cls, store: LedgerStore, ids: LedgerIdAuthority) -> "StorageClusters":
        """One store and no catalog: no ledger has a stamp."""
        return cls(ids, {ORIGIN: store})

    @property
    def document(self) -> CatalogDocument:
        """What the catalog says, as far as this process has seen."""
        if self._catalog is None:
            return CatalogDocument(1, ORIGIN, ORIGIN, {ORIGIN: StorageCluster("")})
        return self._catalog.document

    @property
    def pressure(self) -> Pressure:
        """What was appended and is not durable yet; see `LedgerStore.pressure`."""
        return self._pressure

    def key(self, place: LedgerPlace) -> LedgerKey:
        """Under which name to keep things of a ledger."""
        return place.stamp.cluster or self.document.origin, place.ledger_id

    async def create(
        self,
        owner: str,
        custom_metadata: Mapping[str, bytes],
        *,
        above: int = -1,
        quorums: LedgerQuorums | None = None,
    ) -> CreatedLedger:
        """Begin a ledger in the active cluster, with an id above all others.

        `owner` is for whom, in words.

        Raises:
            ConflictError: if the id is not even above `above`; nothing was created.
        """
        document = self.document
        guard = None if self._catalog is None else self._catalog.guard()
        store = await self.store(document.active)
        self.ids.pass_over(above)
        ledger_id = await self.ids.next()
        if ledger_id <= above:
            raise ConflictError(
                f"ledger id {ledger_id} is not above {above}, the newest ledger of {owner}: "
                "the counter of ledger ids went back; raise it above all ledgers in use"
            )
        writer = await store.create(ledger_id, custom_metadata=custom_metadata, quorums=quorums)
        return CreatedLedger(writer, document.stamp(), guard)

    async def refresh(self) -> None:
        """Read the catalog again, after a guard has refused."""
        if self._catalog is not None:
            await self._catalog.refresh()

    async def open(self, place: LedgerPlace) -> LedgerReader:
        """Fence, recover and close a ledger; see `LedgerStore.open`."""
        return await (await self._store_of(place)).open(place.ledger_id)

    async def describe(self, place: LedgerPlace) -> LedgerDescription:
        """What is known of a ledger; see `LedgerStore.describe`."""
        return await (await self._store_of(place)).describe(place.ledger_id)

    async def delete(self, place: LedgerPlace) -> None:
        """Remove a ledger durably; see `LedgerStore.delete`."""
        await (await self._store_of(place)).delete(place.ledger_id)

    async def store(self, cluster: str) -> LedgerStore:
        """The store of a cluster, opened if it is not yet.

        Raises:
            StorageError: if the catalog does not know it.
        """
        while (found := self._stores.get(cluster)) is None:
            task = self._opening.get(cluster)
            if task is None:
                task = self._tasks.spawn(f"open {cluster}", self._open(cluster))
                self._opening[cluster] = task
            await asyncio.shield(task)
        return found

    async def _open(self, cluster: str) -> LedgerStore:
        try:
            if cluster not in self.document.clusters:
                await self.refresh()
            known = self.document.clusters.get(cluster)
            if known is None or self._open_store is None:
                raise StorageError(
                    f"there is no storage cluster {cluster} in the catalog, which names "
                    f"{', '.join(sorted(self.document.clusters))}"
                )
            async with AsyncExitStack() as opened:
                store = await self._open_store(known.url, self._pressure, opened)
                self._held.push_async_callback(opened.pop_all().aclose)
            self._stores[cluster] = store
            return store
        finally:
            del self._opening[cluster]

    async def _store_of(self, place: LedgerPlace) -> LedgerStore:
        return await self.store(self.key(place)[0])

    @property
    def failure(self) -> AnabranchError | None:
        """Why one of the stores accepts nothing more; None while all work."""
        return next((s.failure for s in self._stores.values() if s.failure is not None), None)

    @property
    def degraded(self) -> str | None:
        """What does not work in one of the stores as it should; None if all is well."""
        return next((s.degraded for s in self._stores.values() if s.degraded is not None), None)

    async def close(self) -> None:
        """Close the stores that were opened here."""
        await self._tasks.close()
        await self._held.aclose()

    def _task_failed(self, name: str, failure: BaseException) -> None:
        # Whoever needed the store got the error.
        _log.info("task_failed", task=name, error=str(failure))
