"""The one authority for ledger ids: every ledger ever created gets an id above all before it.

Pulsar takes its ids from a generator of the metadata store in use, so that changing the store
could hand out an id twice. Here the counter is a plain document that moves with all the others;
until bookies share the metadata store: then Pulsar may create ledgers there too, and ids come from
its generator alone.
"""

from typing import Protocol

from anabranch import limits
from anabranch.metadata.counters import BlockCounter
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

PATH = "/anabranch/ledger-ids"


class LedgerIdSource(Protocol):
    """Hands out ledger ids; any number of processes may draw from it."""

    async def next(self) -> int:
        """Return an id above every one drawn here before, and that nobody else gets."""
        ...

    async def issued_below(self) -> int:
        """Every id that anybody ever got is below this one."""
        ...

    async def raise_floor(self, floor: int) -> None:
        """Make every id from now on at least `floor`."""
        ...


class LedgerIdAuthority(LedgerIdSource, Protocol):
    """The source that ledgers of this process get their ids from."""

    def pass_over(self, up_to: int) -> None:
        """Give no id from here up to this one out of what was reserved before.

        Another process may have reserved later, and its ids be in use where ours is to go.
        """
        ...


class LedgerIds(BlockCounter):
    """Hands out ledger ids by a document."""

    def __init__(self, metadata: MetadataStore, runtime: Runtime) -> None:
        super().__init__(
            metadata,
            runtime,
            PATH,
            document_format="anabranch.ledger-ids",
            block=limits.LEDGER_IDS_RESERVED,
            first=1,
        )

    def pass_over(self, up_to: int) -> None:
        """See `LedgerIdAuthority.pass_over`."""
        if self._following <= up_to:
            self._following = self._end


class SharedAuthority:
    """The document's ids, until they have to be shared with the generator of others; then theirs.

    Both go on above the other's ids: an id of one is never given by the other.
    """

    def __init__(self, own: LedgerIdAuthority, others: LedgerIdSource) -> None:
        self._own = own
        self._others = others
        self._source: LedgerIdSource = own

    async def share(self) -> None:
        """From now on draw from the generator of others, above every id drawn so far."""
        if self._source is self._own:
            await self._others.raise_floor(await self._own.issued_below())
            self._source = self._others

    async def next(self) -> int:
        """See `LedgerIdSource.next`."""
        return await self._source.next()

    def pass_over(self, up_to: int) -> None:
        """See `LedgerIdAuthority.pass_over`; others reserve nothing."""
        self._own.pass_over(up_to)

    async def issued_below(self) -> int:
        """See `LedgerIdSource.issued_below`."""
        own = await self._own.issued_below()
        return own if self._source is self._own else max(own, await self._others.issued_below())

    async def raise_floor(self, floor: int) -> None:
        """See `LedgerIdSource.raise_floor`."""
        await self._source.raise_floor(floor)
