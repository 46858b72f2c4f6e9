"""What all users of one BookKeeper cluster share: the ways to it, and what is under way."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from anabranch import limits
from anabranch.errors import Unreachable
from anabranch.journal import Pressure
from anabranch.ledgers.bookkeeper.bookies import Bookies
from anabranch.ledgers.bookkeeper.ensemble import choose, choose_replacements
from anabranch.ledgers.bookkeeper.lanes import Turn
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.ledgers.bookkeeper.link import BookieLinks
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log: Final = get_logger("bookkeeper")


class Cluster:
    """A BookKeeper cluster as one store sees it."""

    def __init__(
        self,
        runtime: Runtime,
        settings: BookKeeperSettings,
        registry: LedgerRegistry,
        bookies: Bookies,
        pressure: Pressure | None = None,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.registry = registry
        self.bookies = bookies
        self.pressure = pressure or Pressure()
        self.tasks = Tasks(self._task_failed)
        self.links = BookieLinks(runtime, self._resolve, settings, self.tasks)
        self.turn = Turn()
        self.untold: dict[Callable[[], None], None] = {}
        """Called soon, once each: they tell bookies what no further entry has told them."""
        self.lacking: dict[int, str] = {}
        """Ledgers that have fewer bookies than they should, and why."""
        self._loop = asyncio.get_running_loop()
        self._failed_s: dict[str, float] = {}

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        metadata: MetadataStore,
        settings: BookKeeperSettings,
        pressure: Pressure | None = None,
    ) -> "Cluster":
        """Learn where ledgers are and which bookies there are.

        Raises:
            Unreachable: if the metadata store cannot be asked.
            FormatError: if ledgers are laid out in an unknown way.
        """
        registry = await LedgerRegistry.open(metadata, runtime, settings.ledgers_root)
        bookies = Bookies(metadata, runtime, registry.paths)
        cluster = cls(runtime, settings, registry, bookies, pressure)
        await cluster.bookies.start(cluster.tasks)
        if settings.explicit_lac_s:
            cluster.tasks.spawn("tell bookies of last entries", cluster._tell())
        return cluster

    async def close(self) -> None:
        """Let go of every connection."""
        self.links.close()
        await self.tasks.close()

    # --- choosing bookies ---------------------------------------------------------------------

    def new_ensemble(self, size: int) -> tuple[str, ...]:
        """Draw the bookies of a new ledger; those that failed of late come last.

        Raises:
            Unreachable: if there are too few.
        """
        draw = self.runtime.entropy.below
        chosen = choose(size, self.bookies.writable(), draw)
        if len(chosen) < size:
            others = [
                bookie
                for bookie in self.bookies.writable(with_quarantined=True)
                if bookie not in chosen
            ]
            chosen += choose(size - len(chosen), others, draw)
        if len(chosen) < size:
            raise Unreachable(
                f"a new ledger needs {size} bookies, but {len(chosen)} take entries at present"
            )
        return tuple(chosen)

    def replacements(self, bookies: Sequence[str], places: Sequence[int]) -> dict[int, str]:
        """Draw bookies for places of an ensemble; empty if there is nobody."""
        draw = self.runtime.entropy.below
        fresh = choose_replacements(bookies, places, self.bookies.writable(), draw)
        if fresh:
            return fresh
        # Two that fail at once would otherwise take each other's place without end.
        before_s = self._loop.time() - limits.BOOKKEEPER_BOOKIE_RETRY_S
        there = [
            bookie
            for bookie in self.bookies.writable(with_quarantined=True)
            if self._failed_s.get(bookie, before_s) <= before_s
        ]
        return choose_replacements(bookies, places, there, draw)

    def failed(self, bookie: str) -> None:
        """Avoid a bookie for some time, and for a moment altogether."""
        self._failed_s[bookie] = self._loop.time()
        self.bookies.quarantine(bookie)

    # --- background ---------------------------------------------------------------------------

    async def _resolve(self, bookie: str) -> tuple[str, int]:
        address = self.bookies.address(bookie)
        return address.host, address.port

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(self.settings.explicit_lac_s)
            self._tell_now()

    def _tell_now(self) -> None:
        # Apart, so that nobody who was called is kept until the next time.
        calls, self.untold = self.untold, {}
        for call in calls:
            call()

    def _task_failed(self, name: str, failure: BaseException) -> None:
        _log.error("bookkeeper_task_broke", task=name, reason=repr(failure))
        self._loop.call_exception_handler({"message": f"{name} broke", "exception": failure})
