"""The story of `coordination` on a modelled Oxia, over the simulated network.

The client is the real one above the door `channels`; behind it calls go over the simulated network.
One shard or three, on one server or three, whose shards move between them, which are replaced
without knowing it, forget what they told, and end connections when they have carried out a write.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.errors import Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.coordination_story import PARTICIPANTS, Story, play
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import NAMESPACE, ModelServer
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import Incarnation, Process, SimulatedClock
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

PORT: Final = 6648
WEIGHTS: Final = {
    "crash": 3.0,
    "forget": 0.5,
    "island": 2.0,
    "move": 1.0,
    "one_way_partition": 1.0,
    "partition": 2.0,
    "pause": 3.0,
    "refuse": 0.5,
    "reset": 3.0,
    "slow_network": 1.0,
}
_SERVERS_SHARE: Final = 2
"""How much more often a server is hurt than a participant."""


class ModelBackend:
    """A cluster whose servers are processes."""

    fencing = Fencing.LEASE

    def __init__(self, world: World) -> None:
        self._world = world
        rng = world.rng("oxia")
        self.timeout_s = rng.choice((2.0, 4.0))
        nature = Nature(
            shards=rng.choice((1, 3)),
            election_s=rng.choice((0.1, 1.0)),
            rate=rng.uniform(0.99, 1.01),
            lost_answers=rng.choice((0.0, 0.005, 0.02)),
        )
        self.servers: dict[str, ModelServer] = {}
        self.names = [f"oxia{number}" for number in range(1, 1 + rng.choice((1, 3)))]
        clock = SimulatedClock(world.loop, world.machine(self.names[0]), world.start_s)
        around = Surroundings(world.loop, clock, rng, world.context, world.reach)
        self.cluster = Cluster(around, nature)

    async def serve(self, runtime: Runtime, name: str) -> None:
        """The process of a server."""
        server = self.servers[name] = ModelServer(self.cluster, contextvars.copy_context())
        life = OWNER.get()
        assert isinstance(life, Incarnation)
        life.ended.add_done_callback(
            lambda _: self.cluster.left(server), context=self._world.context
        )
        await server.start(runtime.network, name, PORT)
        await asyncio.get_running_loop().create_future()

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        del name
        runtime = replace(runtime, channels=ModelChannels(runtime.network))
        while True:
            server = self.names[runtime.entropy.below(len(self.names))]
            try:
                return await open_store(
                    f"oxia://{server}:{PORT}/{NAMESPACE}",
                    runtime,
                    session_timeout_s=self.timeout_s,
                )
            except Unreachable:
                self._world.reach("nobody there")

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""

        async def read(runtime: Runtime) -> list[bytes]:
            store = await self.open(runtime, "judge")
            found = [node.value async for node in store.scan(path) if node.stat.path != path]
            await store.close()
            return found

        found: list[bytes] = await self._world.process("judge").run(read)
        return found


class ClusterNemesis(Nemesis):
    """Also moves shards, and lets them forget what they told."""

    def __init__(self, backend: ModelBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
        self._cluster = backend.cluster
        timeout_s = backend.timeout_s
        super().__init__(
            world,
            targets,
            weights=WEIGHTS,
            gap_s=(0.0, 2 * timeout_s),
            duration_s=(0.05, 4 * timeout_s),
        )

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            **super()._kinds(),
            "forget": self._forget,
            "island": self._island,
            "move": self._move,
        }

    def _island(self, target: Process, duration_s: float) -> None:
        """Some participants reach one server only, which others replace without its knowledge."""
        name = self._rng.choice(self._backend.names)
        outside = [other for other in self._backend.names if other != name]
        server = self._backend.servers[name]
        if not outside:
            return
        inside = self._rng.sample(PARTICIPANTS, self._rng.randrange(1, len(PARTICIPANTS)))
        partition = self._world.network.partition(inside, outside)
        self._later(duration_s, partition.heal)
        self._cluster.isolate(server)

        def reunite() -> None:
            if self._backend.servers[name] is server and self._world.process(name).alive:
                self._cluster.reunite(server)

        self._later(duration_s, reunite)

    def _move(self, target: Process, duration_s: float) -> None:
        self._cluster.move(self._rng.randrange(len(self._cluster.shards)))

    def _forget(self, target: Process, duration_s: float) -> None:
        for shard in self._cluster.shards:
            shard.kept_from = len(shard.batches)


@scenario(
    "coordination_oxia",
    time_limit_s=1800.0,
    reaches=(
        "busy",
        "fault crash",
        "fault forget",
        "fault island",
        "fault move",
        "fault partition",
        "fault pause",
        "fault reset",
        "fenced",
        "following",
        "leading",
        "lost: its session ended",
        "no leader",
        "oxia: connection ends before an answer",
        "oxia: session expired",
        "value updated",
    ),
)
async def coordination_oxia(world: World) -> None:
    """Locks, election, counters and cache on Oxia."""
    backend, story = ModelBackend(world), Story(world)
    servers = [world.process(name) for name in backend.names]
    for process in servers:
        process.start(lambda runtime, name=process.name: backend.serve(runtime, name))  # type: ignore[misc]
    participants = [world.process(name) for name in PARTICIPANTS]
    nemesis = ClusterNemesis(backend, world, participants + servers * _SERVERS_SHARE)
    await play(world, backend, nemesis, story)
