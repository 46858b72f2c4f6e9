"""Faults of connections to the simulated metadata service, beside those of processes."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from anabranch.testing.coordination_servers import PacedNemesis
from anabranch.testing.simulation.metadata_service import MetadataService
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.remote_store import RemoteStore
from anabranch.testing.simulation.world import World

WEIGHTS: Final = {
    "crash": 2.0,
    "pause": 3.0,
    "cut_link": 2.0,
    "reset_link": 2.0,
    "store_restart": 1.0,
}


class Linked(Protocol):
    """Processes with connections to one service."""

    timeout_s: float
    service: MetadataService
    stores: dict[str, RemoteStore]
    """By name of the process, the handle of its present life."""


class LinkNemesis(PacedNemesis):
    """Also hurts the participants' connections to the simulated metadata service."""

    def __init__(
        self,
        backend: Linked,
        world: World,
        targets: list[Process],
        weights: Mapping[str, float] = WEIGHTS,
    ) -> None:
        self._backend = backend
        super().__init__(world, targets, weights, backend.timeout_s)

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            **super()._kinds(),
            "cut_link": self._cut_link,
            "reset_link": self._reset_link,
            "store_restart": self._restart_store,
        }

    def _cut_link(self, target: Process, duration_s: float) -> None:
        if store := self._backend.stores.get(target.name):
            store.cut = True

            def mend() -> None:
                store.cut = False

            self._later(duration_s, mend)

    def _reset_link(self, target: Process, duration_s: float) -> None:
        if store := self._backend.stores.get(target.name):
            store.reset()

    def _restart_store(self, target: Process, duration_s: float) -> None:
        self._backend.service.crash(duration_s / 4)
