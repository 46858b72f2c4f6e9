"""The managed ledgers of one process: at most one object per name."""

import asyncio

from anabranch import limits
from anabranch.errors import AnabranchError, BadVersion, InvalidName
from anabranch.journal import Pressure
from anabranch.ledgers.clusters import StorageClusters
from anabranch.ledgers.ledger_ids import LedgerIds
from anabranch.ledgers.store import LedgerQuorums, LedgerStore
from anabranch.managed_ledger.cache import EntryCache
from anabranch.managed_ledger.environment import Environment, ManagedLedgerConfig
from anabranch.managed_ledger.ledger import ManagedLedger
from anabranch.managed_ledger.opening import open_chain
from anabranch.managed_ledger.owned_node import MANAGED_LEDGERS
from anabranch.managed_ledger.schemas import SchemaStorage
from anabranch.metadata.store import ABSENT, MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("managed_ledger")


class ManagedLedgers:
    """Opens and deletes managed ledgers."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        ledgers: LedgerStore | StorageClusters,
        runtime: Runtime,
        config: ManagedLedgerConfig | None = None,
    ) -> None:
        """`ledgers` are the clusters of the catalog, or one store and no catalog."""
        config = config or ManagedLedgerConfig()
        if not isinstance(ledgers, StorageClusters):
            ledgers = StorageClusters.of_one(ledgers, LedgerIds(metadata, runtime))
        self._tasks = Tasks(self._task_failed)
        self.ids = ledgers.ids
        self.clock = runtime.clock
        self.schemas = SchemaStorage(metadata=metadata, ledgers=ledgers)
        self._env = Environment(
            metadata,
            ledgers,
            runtime,
            config,
            EntryCache(config.entry_cache_bytes_max),
        )
        self._open: dict[str, ManagedLedger] = {}
        self._busy: dict[str, asyncio.Task[ManagedLedger]] = {}
        self._tending = False

    @property
    def pressure(self) -> Pressure:
        """What waits for the ledger store; see there."""
        return self._env.ledgers.pressure

    async def open(
        self, name: str, *, create: bool = True, quorums: LedgerQuorums | None = None
    ) -> ManagedLedger:
        """Return the managed ledger of that name, taking it over if this process has not yet.

        One that has failed is closed and opened anew. The ledger it begins has these quorums.

        Raises:
            InvalidName: if the name is not a relative path.
            NotFound: if there is none and `create` is false.
            Fenced: if another owner takes it over at the same time.
        """
        _check_name(name)
        while True:
            busy = self._busy.get(name)
            if busy is not None:
                await asyncio.wait([busy])
                continue
            present = self._open.get(name)
            if present is not None and present.is_usable:
                return present
            task = self._tasks.spawn(f"open {name}", self._take_over(name, create, quorums))
            self._busy[name] = task
            return await asyncio.shield(task)

    async def exists(self, name: str) -> bool:
        """Whether there is a managed ledger of that name."""
        _check_name(name)
        return await self._env.metadata.exists(f"{MANAGED_LEDGERS}/{name}")

    async def declare(self, name: str) -> None:
        """Let a managed ledger exist that nobody has opened yet, as Pulsar does: an empty node."""
        _check_name(name)
        try:
            await self._env.metadata.put(f"{MANAGED_LEDGERS}/{name}", b"", ABSENT)
        except BadVersion:
            return  # there already

    async def delete(self, name: str) -> None:
        """Remove a managed ledger with its cursors and ledgers.

        Raises:
            NotFound: if there is none.
        """
        ledger = await self.open(name, create=False)
        await ledger.delete()

    async def close(self) -> None:
        """Close every managed ledger that is open."""
        while self._busy:
            await asyncio.wait(list(self._busy.values()))
        for ledger in list(self._open.values()):
            await ledger.close()
        await self._tasks.close()

    async def list(self, prefix: str) -> "list[str]":
        """Full names of the managed ledgers right below a prefix such as `t/ns/persistent`."""
        _check_name(prefix)
        children = await self._env.metadata.children(f"{MANAGED_LEDGERS}/{prefix}")
        return [f"{prefix}/{child}" for child in children]

    async def _take_over(
        self, name: str, create: bool, quorums: LedgerQuorums | None
    ) -> ManagedLedger:
        try:
            present = self._open.get(name)
            if present is not None:
                await present.close()
            opened = await open_chain(name, self._env, create=create, quorums=quorums)
            ledger = ManagedLedger(opened, self._env, lambda: self._released(name))
            try:
                await ledger.load_cursors()
            except AnabranchError:
                await ledger.close()
                raise
            self._open[name] = ledger
            self._tend_from_now_on()
            return ledger
        finally:
            del self._busy[name]

    def _tend_from_now_on(self) -> None:
        if not self._tending:
            self._tending = True
            self._tasks.spawn("tend managed ledgers", self._tend())

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(limits.MANAGED_LEDGERS_TEND_INTERVAL_S)
            for number, ledger in enumerate(list(self._open.values()), start=1):
                ledger.tend()
                if number % limits.LEDGER_UPKEEP_SLICE == 0:
                    await asyncio.sleep(0)

    def _released(self, name: str) -> None:
        # A name is opened again only after its last object was closed, so this is the one.
        self._open.pop(name, None)

    def _task_failed(self, name: str, failure: BaseException) -> None:
        # Whoever asked got the error too, unless they went away meanwhile.
        if isinstance(failure, AnabranchError):
            _log.info("task_failed", task=name, error=str(failure))
        else:
            _log.error("task_failed", cause=failure, task=name)


def _check_name(name: str) -> None:
    if not name or name.startswith("/") or name.endswith("/") or "//" in name:
        raise InvalidName(f"a managed ledger's name is a relative path, not {name!r}")
