"""Locks, elections, caches and counters on the simulated metadata service, through its faults."""

from collections.abc import Callable
from typing import Final, cast

from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.coordination_servers import PacedNemesis
from anabranch.testing.coordination_story import PARTICIPANTS, TABLES, Story, play
from anabranch.testing.simulation.metadata_service import MetadataService
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.remote_store import RemoteStore
from anabranch.testing.simulation.scenario import Taken, scenario
from anabranch.testing.simulation.world import World

WEIGHTS: Final = {
    "crash": 2.0,
    "pause": 3.0,
    "cut_link": 2.0,
    "reset_link": 2.0,
    "store_restart": 1.0,
}


class SimulatedBackend:
    """The simulated metadata service."""

    fencing = Fencing.SERVER

    def __init__(self, world: World) -> None:
        rng = world.rng("coordination")
        self.timeout_s = rng.choice((1.0, 3.0))
        self.service = MetadataService(
            world,
            timeout_s=self.timeout_s,
            delay_s=rng.choice((0.001, 0.01, 0.05)),
            flaky=rng.choice((0.0, 0.01, 0.04)),
        )
        self.stores: dict[str, RemoteStore] = {}

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        store = self.stores[name] = RemoteStore(self.service, runtime.clock)
        await store.open()
        return cast("MetadataStore", store)

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""
        tree = self.service.machine.tree
        found = [self.service.read(0, f"{path}/{name}") for name in tree.children(path)]
        return [node.value for node in found if node is not None]


class LinkNemesis(PacedNemesis):
    """Also hurts the participants' connections to the simulated metadata service."""

    def __init__(self, backend: SimulatedBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
        super().__init__(world, targets, WEIGHTS, backend.timeout_s)

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


@scenario(
    "coordination",
    time_limit_s=600.0,
    tables=TABLES,
    reaches=(
        "busy",
        "connection lost",
        "fault crash",
        "fault cut_link",
        "fault pause",
        "fault reset_link",
        "fault store_restart",
        "fenced",
        "following",
        "leading",
        "lost: its node was deleted",
        "lost: its session ended",
        "no leader",
        "reconnected",
        "session expired",
        "session lost",
        "session reestablished",
        "stray request",
        "value updated",
    ),
)
async def coordination(world: World) -> Taken:
    """Locks, election, counters and cache on the simulated metadata service."""
    backend, story = SimulatedBackend(world), Story(world)
    nemesis = LinkNemesis(backend, world, [world.process(name) for name in PARTICIPANTS])
    return await play(world, backend, nemesis, story)
