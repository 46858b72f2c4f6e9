"""Locks, elections, caches and counters on the simulated metadata service, through its faults."""

from typing import cast

from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.coordination_story import PARTICIPANTS, TABLES, Story, play
from anabranch.testing.link_nemesis import LinkNemesis
from anabranch.testing.simulation.metadata_service import MetadataService
from anabranch.testing.simulation.remote_store import RemoteStore
from anabranch.testing.simulation.scenario import Taken, scenario, transition_mark
from anabranch.testing.simulation.world import World


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
    reaches_seldom=(transition_mark("locks", "removing to looking"),),
)
async def coordination(world: World) -> Taken:
    """Locks, election, counters and cache on the simulated metadata service."""
    backend, story = SimulatedBackend(world), Story(world)
    nemesis = LinkNemesis(backend, world, [world.process(name) for name in PARTICIPANTS])
    return await play(world, backend, nemesis, story)
