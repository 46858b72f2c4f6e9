"""The story of `coordination` on a modelled ZooKeeper, over the simulated network.

The client is the real one, byte for byte. One server or three, which hear of decisions late, lose
their leader, are cut off from it, stop, crash, and end connections within an answer.
"""

import contextvars
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from anabranch.metadata.store import Fencing
from anabranch.runtime import Runtime
from anabranch.testing.coordination_servers import ModelledBackend, PacedNemesis, play_on_model
from anabranch.testing.coordination_story import PARTICIPANTS
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer

PORT: Final = 2181
WEIGHTS: Final = {
    "crash": 3.0,
    "cut_off": 2.0,
    "election": 1.0,
    "island": 2.0,
    "one_way_partition": 1.0,
    "partition": 2.0,
    "pause": 3.0,
    "refuse": 0.5,
    "reset": 3.0,
    "slow_network": 1.0,
}


class ModelBackend(ModelledBackend[ModelServer]):
    """An ensemble whose servers are processes."""

    fencing = Fencing.SERVER

    def __init__(
        self,
        world: World,
        *,
        timeouts_s: Sequence[float] = (1.0, 3.0),
        lost_answers_max: float = 0.02,
        sizes: Sequence[int] = (1, 3),
    ) -> None:
        rng = world.rng("zookeeper")
        timeout_s = rng.choice(timeouts_s)
        members = rng.choice(sizes)
        nature = Nature(
            members=members,
            tick_s=timeout_s / rng.choice((2, 6)),
            delay_s=0.0 if members == 1 else rng.choice((0.001, 0.01, 0.05)),
            election_s=rng.choice((0.1, 1.0)),
            patience_s=rng.choice((1.0, 5.0)),
            rate=rng.uniform(0.99, 1.01),
            lost_answers=min(rng.choice((0.0, 0.005, 0.02)), lost_answers_max),
        )
        names = [f"zk{number}" for number in range(1, members + 1)]
        super().__init__(world, timeout_s, names, PORT)
        self.quorum = Quorum(self._surroundings(rng), nature)

    def made(self, context: contextvars.Context) -> ModelServer:
        """See `ModelledBackend.made`."""
        return ModelServer(self.quorum, context)

    def left(self, server: ModelServer) -> None:
        """See `ModelledBackend.left`."""
        self.quorum.left(server)

    def url(self, runtime: Runtime) -> str:
        """See `NetworkedBackend.url`."""
        del runtime
        places = ",".join(f"{server}:{PORT}" for server in self.names)
        return f"zk:{places}/anabranch"


class EnsembleNemesis(PacedNemesis):
    """Also hurts what the servers have among each other."""

    def __init__(self, backend: ModelBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
        super().__init__(world, targets, WEIGHTS, backend.timeout_s)

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            **super()._kinds(),
            "cut_off": self._cut_off,
            "election": self._election,
            "island": self._island,
        }

    def _follower(self) -> str | None:
        leader = self._backend.quorum.leader
        others = [name for name, server in self._backend.servers.items() if server is not leader]
        return self._rng.choice(others) if others else None

    def _cut_off(self, target: Process, duration_s: float) -> None:
        name = self._follower()
        if name is not None:
            server = self._backend.servers[name]
            server.cut_off()
            self._later(duration_s, server.rejoin)

    def _island(self, target: Process, duration_s: float) -> None:
        """Some participants reach one server only, which does not reach its leader."""
        name = self._follower()
        if name is None:
            return
        inside = self._rng.sample(PARTICIPANTS, self._rng.randrange(1, len(PARTICIPANTS)))
        outside = [other for other in self._backend.names if other != name]
        partition = self._world.network.partition(inside, outside)
        self._later(duration_s, partition.heal)
        server = self._backend.servers[name]
        server.cut_off()
        self._later(duration_s, server.rejoin)

    def _election(self, target: Process, duration_s: float) -> None:
        self._backend.quorum.lose_leader()


@scenario(
    "coordination_zookeeper",
    set_seeds=12,
    time_limit_s=1800.0,
    reaches=(
        "busy",
        "fault crash",
        "fault cut_off",
        "fault election",
        "fault island",
        "fault partition",
        "fault pause",
        "fault reset",
        "fenced",
        "following",
        "leading",
        "lost: its session ended",
        "no leader",
        "value updated",
        "zookeeper: a client knows more than its server",
        "zookeeper: connection ends within an answer",
        "zookeeper: session expired",
        "zookeeper: session moved",
    ),
    reaches_seldom=("zookeeper: write of a session that has ended",),
)
async def coordination_zookeeper(world: World) -> None:
    """Locks, election, counters and cache on ZooKeeper."""
    backend = ModelBackend(world)
    await play_on_model(world, backend, partial(EnsembleNemesis, backend, world))
