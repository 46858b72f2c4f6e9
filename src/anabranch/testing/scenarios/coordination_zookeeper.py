"""The story of `coordination` on a modelled ZooKeeper, over the simulated network.

The client is the real one, byte for byte. One server or three, which hear of decisions late, lose
their leader, are cut off from it, stop, crash, and end connections within an answer.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Final

from anabranch.errors import Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.coordination_story import PARTICIPANTS, Story, play
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import Incarnation, Process, SimulatedClock
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
_SERVERS_SHARE: Final = 2
"""How much more often a server is hurt than a participant."""


class ModelBackend:
    """An ensemble whose servers are processes."""

    fencing = Fencing.SERVER

    def __init__(self, world: World) -> None:
        self._world = world
        rng = world.rng("zookeeper")
        self.timeout_s = rng.choice((1.0, 3.0))
        members = rng.choice((1, 3))
        nature = Nature(
            members=members,
            tick_s=self.timeout_s / rng.choice((2, 6)),
            delay_s=0.0 if members == 1 else rng.choice((0.001, 0.01, 0.05)),
            election_s=rng.choice((0.1, 1.0)),
            patience_s=rng.choice((1.0, 5.0)),
            rate=rng.uniform(0.99, 1.01),
            lost_answers=rng.choice((0.0, 0.005, 0.02)),
        )
        self.names = [f"zk{number}" for number in range(1, members + 1)]
        self.servers: dict[str, ModelServer] = {}
        clock = SimulatedClock(world.loop, world.machine(self.names[0]), world.start_s)
        around = Surroundings(world.loop, clock, rng, world.context, world.reach)
        self.quorum = Quorum(around, nature)

    async def serve(self, runtime: Runtime, name: str) -> None:
        """The process of a server."""
        server = self.servers[name] = ModelServer(self.quorum, contextvars.copy_context())
        life = OWNER.get()
        assert isinstance(life, Incarnation)
        life.ended.add_done_callback(
            lambda _: self.quorum.left(server), context=self._world.context
        )
        await server.start(runtime.network, name, PORT)
        await asyncio.get_running_loop().create_future()

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        del name
        places = ",".join(f"{server}:{PORT}" for server in self.names)
        while True:
            try:
                return await open_store(
                    f"zk:{places}/anabranch", runtime, session_timeout_s=self.timeout_s
                )
            except Unreachable:
                self._world.reach("nobody there")

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""

        async def read(runtime: Runtime) -> list[bytes]:
            store = await self.open(runtime, "judge")
            await store.sync()
            found = [node.value async for node in store.scan(path) if node.stat.path != path]
            await store.close()
            return found

        found: list[bytes] = await self._world.process("judge").run(read)
        return found


class EnsembleNemesis(Nemesis):
    """Also hurts what the servers have among each other."""

    def __init__(self, backend: ModelBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
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
        "zookeeper: write of a session that has ended",
    ),
)
async def coordination_zookeeper(world: World) -> None:
    """Locks, election, counters and cache on ZooKeeper."""
    backend, story = ModelBackend(world), Story(world)
    servers = [world.process(name) for name in backend.names]
    for process in servers:
        process.start(lambda runtime, name=process.name: backend.serve(runtime, name))  # type: ignore[misc]
    participants = [world.process(name) for name in PARTICIPANTS]
    nemesis = EnsembleNemesis(backend, world, participants + servers * _SERVERS_SHARE)
    await play(world, backend, nemesis, story)
