"""A cluster of model bookies with the settings of one world, and the faults that are its own."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.errors import AnabranchError, Unreachable
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.limits import BOOKKEEPER_REQUEST_TIMEOUT_S
from anabranch.metadata.served.client import ServedStore
from anabranch.runtime import Runtime
from anabranch.testing.bookies.hunter import Hunter
from anabranch.testing.bookies.server import Bookie, BookieServer, Heard
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, STORAGE_WEIGHTS, Nemesis
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.world import World

BOOKIES: Final = 6
SESSION_TIMEOUT_S: Final = 6.0
_RETRY_S: Final = 0.2
QUORUMS: Final = ((3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 3, 3))
"""Bookies of a ledger, copies of an entry, and answers that acknowledge it."""
WEIGHTS: Final = {**DEFAULT_WEIGHTS, **STORAGE_WEIGHTS, "full_bookie": 2.0, "rot": 2.0}


class Cluster:
    """The bookies of one world, and what a ledger on them looks like."""

    def __init__(self, world: World, metadata_url: str, *, heard: Heard | None = None) -> None:
        self._metadata_url = metadata_url
        rng = world.rng("cluster")
        ensemble, write, ack = rng.choice(QUORUMS)
        self.settings = BookKeeperSettings(
            ensemble_size=ensemble,
            write_quorum=write,
            ack_quorum=ack,
            digest=rng.choice((DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)),
            password=rng.choice((b"", b"secret")),
            request_timeout_s=rng.choice((0.3, 1.0, 5.0)),
            quorum_wait_s=rng.choice((2.0, 20.0)),
            explicit_lac_s=rng.choice((0.0, 0.1, 1.0)),
        )
        names = [f"bookie-{number}" for number in range(BOOKIES)]
        self.hunter = Hunter(world, timeout_s=self.settings.request_timeout_s)
        self.bookies: dict[str, Bookie] = {}
        self.processes: list[Process] = []
        for name in names:
            bookie = Bookie(name, heard=heard, treat=self.hunter.treat)
            self.bookies[name] = bookie
            process = world.process(name)
            process.start(
                lambda runtime, bookie=bookie: BookieServer(  # type: ignore[misc]
                    runtime, bookie, metadata_url, SESSION_TIMEOUT_S
                ).run(),
                tolerates=(AnabranchError, OSError),
            )
            self.processes.append(process)
        self.rotten = rng.choice(list(self.bookies.values()))
        """Copies are made against the loss of one; damage to two of them may be damage to all."""

    async def open(
        self, runtime: Runtime, *, patient: bool = False
    ) -> tuple[ServedStore, BookKeeperLedgerStore]:
        """A client's stores, as soon as somebody answers.

        A patient one waits for bookies as long as servers do. Others may give a request less time
        than a retransmission takes: where segments are lost, such a client is not promised to get
        to the end of a recovery ever, since each begins anew.
        """
        settings = self.settings
        if patient:
            settings = replace(settings, request_timeout_s=BOOKKEEPER_REQUEST_TIMEOUT_S)
        while True:
            try:
                metadata = await ServedStore.open(
                    runtime, self._metadata_url, session_timeout_s=SESSION_TIMEOUT_S
                )
            except Unreachable:
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                ledgers = await BookKeeperLedgerStore.open_cluster(runtime, metadata, settings)
            except Unreachable:
                await metadata.close()
                await asyncio.sleep(_RETRY_S)
                continue
            return metadata, ledgers

    def copies(self, metadata: LedgerMetadata, entry_id: int) -> int:
        """On how many of the bookies that the metadata name an entry is."""
        return sum(
            self._has(name, metadata.ledger_id, entry_id) for name in holders(metadata, entry_id)
        )

    def _has(self, bookie_id: str, ledger_id: int, entry_id: int) -> bool:
        server = self.bookies[bookie_id.partition(":")[0]].server
        assert server is not None, f"{bookie_id} does not run"
        shelf = server.shelves.ledgers.get(ledger_id)
        return shelf is not None and entry_id in shelf.entries


class BookieNemesis(Nemesis):
    """Also fills bookies, and lets the bytes of one rot."""

    def __init__(self, world: World, cluster: Cluster, targets: list[Process]) -> None:
        self._cluster = cluster
        self._rot_rng = world.rng("rot")
        super().__init__(world, targets, weights=WEIGHTS, gap_s=(0.1, 1.5), duration_s=(0.05, 10.0))

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {**super()._kinds(), "full_bookie": self._full_bookie, "rot": self._rot}

    def _full_bookie(self, target: Process, duration_s: float) -> None:
        bookie = self._cluster.bookies.get(target.name)
        if bookie is not None:
            bookie.fill(full=True)
            self._later(duration_s, lambda: bookie.fill(full=False))

    def _rot(self, target: Process, duration_s: float) -> None:
        bookie = self._cluster.rotten
        if bookie.server is None or not self._world.process(bookie.name).alive:
            return
        rng = self._rot_rng
        for ledger_id, shelf in bookie.server.shelves.ledgers.items():
            for entry_id in list(shelf.entries):
                if rng.random() < 0.1:
                    bookie.rot(ledger_id, entry_id, rng.randrange(1 << 16))


def holders(metadata: LedgerMetadata, entry_id: int) -> list[str]:
    """The bookies that were asked to keep an entry."""
    bookies = metadata.segment_of(entry_id).bookies
    return [bookies[(entry_id + i) % len(bookies)] for i in range(metadata.write_quorum)]
