"""Ledger ids that are shared with others, where the store that they are drawn from may be replaced.

How a generator numbers depends on the kind of store. A draw that began in the one way and ended in
the other store may have got a number that was given before: it is not used.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.metadata.counters import Numbering, numbering_of
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

T = TypeVar("T")


class LedgerIdsInUse:
    """Draws from the store in use. See `LedgerIdSource`."""

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        url_in_use: Callable[[], str],
        paths: LedgerPaths,
    ) -> None:
        self._url_in_use = url_in_use
        self._ways = {
            numbering: SharedLedgerIds(store, runtime, numbering=numbering, paths=paths)
            for numbering in Numbering
        }

    async def next(self) -> int:
        """See `LedgerIdSource.next`."""
        return await self._in_one_store(lambda ids: ids.next())

    async def issued_below(self) -> int:
        """See `LedgerIdSource.issued_below`."""
        return await self._in_one_store(lambda ids: ids.issued_below())

    async def raise_floor(self, floor: int) -> None:
        """See `LedgerIdSource.raise_floor`."""
        await self._in_one_store(lambda ids: ids.raise_floor(floor))

    async def _in_one_store(self, work: Callable[[SharedLedgerIds], Awaitable[T]]) -> T:
        while True:
            url = self._url_in_use()
            found = await work(self._ways[numbering_of(url)])
            if self._url_in_use() == url:
                return found
