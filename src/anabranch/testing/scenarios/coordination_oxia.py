"""The story of `coordination` on a modelled Oxia, over the simulated network.

The client is the real one above the door `channels`; behind it calls go over the simulated network.
One shard or three, on one server or three, whose shards move between them, which are replaced
without knowing it, forget what they told, and end connections when they have carried out a write.
"""

import contextvars
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from anabranch.metadata.store import Fencing
from anabranch.runtime import Runtime
from anabranch.testing.coordination_servers import ModelledBackend, PacedNemesis, play_on_model
from anabranch.testing.coordination_story import PARTICIPANTS
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import NAMESPACE, ModelServer
from anabranch.testing.simulation.process import Process
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


class ModelBackend(ModelledBackend[ModelServer]):
    """A cluster whose servers are processes."""

    fencing = Fencing.LEASE

    def __init__(self, world: World, *, sizes: Sequence[int] = (1, 3)) -> None:
        rng = world.rng("oxia")
        timeout_s = rng.choice((2.0, 4.0))
        nature = Nature(
            shards=rng.choice(sizes),
            election_s=rng.choice((0.1, 1.0)),
            rate=rng.uniform(0.99, 1.01),
            lost_answers=rng.choice((0.0, 0.005, 0.02)),
        )
        names = [f"oxia{number}" for number in range(1, 1 + rng.choice(sizes))]
        super().__init__(world, timeout_s, names, PORT)
        self.cluster = Cluster(self._surroundings(rng), nature)

    def made(self, context: contextvars.Context) -> ModelServer:
        """See `ModelledBackend.made`."""
        return ModelServer(self.cluster, context)

    def left(self, server: ModelServer) -> None:
        """See `ModelledBackend.left`."""
        self.cluster.left(server)

    def surrounded(self, runtime: Runtime) -> Runtime:
        """See `NetworkedBackend.surrounded`."""
        return replace(runtime, channels=ModelChannels(runtime.network))

    def url(self, runtime: Runtime) -> str:
        """See `NetworkedBackend.url`."""
        server = self.names[runtime.entropy.below(len(self.names))]
        return f"oxia://{server}:{PORT}/{NAMESPACE}"


class ClusterNemesis(PacedNemesis):
    """Also moves shards, and lets them forget what they told."""

    def __init__(self, backend: ModelBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
        self._cluster = backend.cluster
        super().__init__(world, targets, WEIGHTS, backend.timeout_s)

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
    set_seeds=10,
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
    backend = ModelBackend(world)
    await play_on_model(world, backend, partial(ClusterNemesis, backend, world))
