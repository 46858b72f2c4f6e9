"""Has writers leave bookies that are gone, also those that nothing is appended to.

A bookie that fails an append is replaced for that. One that is lost while nothing is appended would
be missed by BookKeeper's auto-recovery alone, which then opens the ledger itself and so takes it
from its writer.
"""

import asyncio
from collections.abc import Callable, Iterable

from anabranch import limits
from anabranch.ledgers.bookkeeper.cluster import Cluster
from anabranch.ledgers.bookkeeper.ensemble import places_to_leave
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.runtime.tasks import Tasks


class Lookout:
    """Looks at the writers of a store when bookies have come or gone."""

    def __init__(self, cluster: Cluster, writers: Callable[[], Iterable[BookKeeperWriter]]) -> None:
        self._cluster = cluster
        self._writers = writers
        self._changed = asyncio.Event()

    def start(self, tasks: Tasks) -> None:
        """Begin, for as long as the tasks are not closed."""
        self._cluster.bookies.listen(self._changed.set)
        tasks.spawn("leave bookies that are gone", self._run())

    def look(self) -> None:
        """Look soon, whether anything has changed or not."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            # Whoever is missed now has been for long enough then; whoever is missed later leads
            # to another round.
            await asyncio.sleep(self._cluster.settings.leave_gone_s)
            await self._leave()

    async def _leave(self) -> None:
        under_way: list[BookKeeperWriter] = []
        for number, writer in enumerate(list(self._writers()), start=1):
            if number % limits.LEDGER_UPKEEP_SLICE == 0:
                await asyncio.sleep(0)
            if writer.leave(self._vacant(writer)):
                under_way.append(writer)
            while len(under_way) >= limits.BOOKKEEPER_LEAVING_MAX:
                await asyncio.sleep(limits.BOOKKEEPER_LEAVING_POLL_S)
                under_way = [writer for writer in under_way if writer.core.changing]

    def _vacant(self, writer: BookKeeperWriter) -> tuple[int, ...]:
        bookies, gone_s = self._cluster.bookies, self._cluster.settings.leave_gone_s
        there = bookies.writable(with_quarantined=True)
        return places_to_leave(
            writer.core.bookies, lambda bookie: bookies.gone_for_s(bookie) >= gone_s > 0, there
        )
