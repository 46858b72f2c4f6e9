"""The ledger store on Apache BookKeeper."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Final

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, InputError
from anabranch.journal import Pressure
from anabranch.ledgers.bookkeeper import transitions
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.confirmed import fence, last_known
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata, State
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.ledgers.bookkeeper.lookout import Lookout
from anabranch.ledgers.bookkeeper.reader import BookKeeperReader, LedgerView, check_password
from anabranch.ledgers.bookkeeper.recovering import Recovering
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.transitions import RECOVERED_KEY
from anabranch.ledgers.store import LedgerDescription, LedgerQuorums, LedgerState
from anabranch.limits import LEDGER_ID_MAX
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime

_FIRST_EPOCH: Final = 1
_FENCED_EPOCH: Final = 2


class BookKeeperLedgerStore:
    """See `LedgerStore`.

    Ids of deleted ledgers are not remembered, for BookKeeper does not: they must come from a
    source that gives none twice.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._registry = cluster.registry
        # Who lets go of a writer, perhaps not knowing whether its ledger was published, may.
        self._writers: weakref.WeakValueDictionary[int, BookKeeperWriter] = (
            weakref.WeakValueDictionary()
        )
        self._views: weakref.WeakValueDictionary[int, LedgerView] = weakref.WeakValueDictionary()
        self._closed = False
        self._lookout = Lookout(cluster, self._writers.values)
        self._lookout.start(cluster.tasks)

    @classmethod
    async def open_cluster(
        cls,
        runtime: Runtime,
        metadata: MetadataStore,
        settings: BookKeeperSettings,
        pressure: Pressure | None = None,
    ) -> "BookKeeperLedgerStore":
        """Use the cluster whose bookies are registered in a metadata store.

        Appends count in `pressure`, which several stores may share.

        Raises:
            Unreachable: if the metadata store cannot be asked.
            FormatError: if the cluster lays out its ledgers in an unknown way.
        """
        return cls(await Cluster.open(runtime, metadata, settings, pressure))

    @property
    def pressure(self) -> Pressure:
        """See `LedgerStore.pressure`."""
        return self.cluster.pressure

    @property
    def failure(self) -> AnabranchError | None:
        """See `LedgerStore.failure`: bookies may come back."""
        return None

    @property
    def degraded(self) -> str | None:
        """See `LedgerStore.degraded`."""
        lacking = self.cluster.lacking
        if not lacking:
            return None
        ledger_id, why = next(iter(lacking.items()))
        return f"{len(lacking)} ledgers lack a bookie; {why} in ledger {ledger_id}"

    # --- the life of ledgers ------------------------------------------------------------------

    async def create(
        self,
        ledger_id: int,
        *,
        custom_metadata: Mapping[str, bytes] | None = None,
        quorums: LedgerQuorums | None = None,
    ) -> BookKeeperWriter:
        """See `LedgerStore.create`.

        Raises:
            Unreachable: if too few bookies take entries, or the metadata store is away.
        """
        self._check_open()
        if not 0 <= ledger_id <= LEDGER_ID_MAX:
            raise InputError(f"ledger id {ledger_id} is not in 0..{LEDGER_ID_MAX}")
        custom = dict(custom_metadata or {})
        if RECOVERED_KEY in custom:
            raise InputError(f"{RECOVERED_KEY} is not for the metadata of others")
        settings = self.cluster.settings
        ensemble, write, ack = quorums or (
            settings.ensemble_size, settings.write_quorum, settings.ack_quorum
        )  # fmt: skip
        if not 1 <= ack <= write <= ensemble <= limits.BOOKKEEPER_ENSEMBLE_MAX:
            raise InputError(f"impossible quorums: ensemble {ensemble}, write {write}, ack {ack}")
        metadata = LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=ensemble,
            write_quorum=write,
            ack_quorum=ack,
            state=State.OPEN,
            last_entry_id=-1,
            length=0,
            digest=settings.digest,
            password=settings.password,
            segments=(EnsembleSegment(0, self.cluster.new_ensemble(ensemble)),),
            custom_metadata=MappingProxyType(custom),
            ctoken=self._registry.new_token(),
        )
        found = await self._registry.create(metadata)
        # Closed meanwhile: nobody would ever answer what is appended.
        self._check_open()
        writer = BookKeeperWriter(self.cluster, found)
        self._writers[ledger_id] = writer
        self._views[ledger_id] = writer.view
        writer.when_over(self._forget)
        if any(map(self.cluster.bookies.gone_for_s, writer.core.bookies)):
            self._lookout.look()  # it went while the ledger was made
        return writer

    async def open(self, ledger_id: int) -> BookKeeperReader:
        """See `LedgerStore.open`.

        Raises:
            Unreachable: if too few bookies answer to tell where the ledger ends; try again later.
            ConfigError: if the ledger has another password than the settings.
        """
        self._check_open()
        found = await self._registry.read(ledger_id)
        check_password(found.metadata, self.cluster.settings.password)
        self._fence_own(ledger_id, "opened")
        found = await transitions.begin_recovery(self._registry, found)
        if found.metadata.state is not State.CLOSED:
            found = await Recovering(self.cluster, found).run()
        return BookKeeperReader(self.cluster, self._view(found.metadata))

    async def delete(self, ledger_id: int) -> None:
        """See `LedgerStore.delete`. A writer in another process is fenced as far as bookies answer.

        Raises:
            Unreachable: if the metadata store is away.
        """
        self._check_open()
        found = await self._registry.read(ledger_id)
        own = self._fence_own(ledger_id, "deleted")
        if found.metadata.state is not State.CLOSED and not own:
            found = await transitions.begin_recovery(self._registry, found)
            await fence(self.cluster, found.metadata)
        await self._registry.delete(ledger_id)
        view = self._views.get(ledger_id)
        if view is not None:
            view.deleted = True

    async def list(self) -> AsyncIterator[int]:
        """See `LedgerStore.list`."""
        self._check_open()
        async for ledger_id in self._registry.list():
            yield ledger_id

    async def describe(self, ledger_id: int) -> LedgerDescription:
        """See `LedgerStore.describe`: the epoch is 2 once somebody was seen to open the ledger."""
        self._check_open()
        metadata = (await self._registry.read(ledger_id)).metadata
        custom = dict(metadata.custom_metadata)
        recovered = custom.pop(RECOVERED_KEY, None) is not None
        last, length = metadata.last_entry_id, metadata.length
        writer = self._writers.get(ledger_id)
        if metadata.state is not State.CLOSED:
            if writer is not None:
                last, length = writer.last_entry_id, writer.length_bytes
            else:
                last, length = await last_known(self.cluster, metadata)
        fenced = recovered or metadata.state is State.IN_RECOVERY
        return LedgerDescription(
            ledger_id=ledger_id,
            state=LedgerState.CLOSED if metadata.state is State.CLOSED else LedgerState.OPEN,
            writer_epoch=_FENCED_EPOCH if fenced else _FIRST_EPOCH,
            last_entry_id=last,
            length_bytes=length,
            custom_metadata=custom,
        )

    async def close(self) -> None:
        """See `LedgerStore.close`."""
        if self._closed:
            return
        self._closed = True
        writers = list(self._writers.values())
        try:
            async with asyncio.timeout(self.cluster.settings.request_timeout_s):
                for writer in writers:
                    await writer.finished()
        except TimeoutError:
            pass  # what is still under way fails below, and its callers are told
        for writer in writers:
            writer.stop(AlreadyClosed("the ledger store was closed"))
        await self.cluster.close()

    # --- what is known of ledgers -------------------------------------------------------------

    def _fence_own(self, ledger_id: int, why: str) -> bool:
        writer = self._writers.pop(ledger_id, None)
        if writer is None:
            return False
        writer.fence(why)
        return True

    def _forget(self, writer: BookKeeperWriter) -> None:
        if self._writers.get(writer.ledger_id) is writer:
            del self._writers[writer.ledger_id]

    def _view(self, metadata: LedgerMetadata) -> LedgerView:
        view = self._views.get(metadata.ledger_id)
        if view is None:
            view = self._views[metadata.ledger_id] = LedgerView(metadata)
        view.metadata = metadata
        return view

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the ledger store is closed")
