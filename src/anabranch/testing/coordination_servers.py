"""What the stories of coordination on stores behind a network have in common.

How a participant gets to its store, how the judge reads what became of the writes, how servers of a
model live in processes, and how often faults come. What a server does is said by its model; which
faults there are besides, by its scenario.
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from anabranch.errors import Unreachable
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Network, Runtime
from anabranch.runtime.network import Listener
from anabranch.testing.coordination_story import PARTICIPANTS, Story, play
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.process import Incarnation, Process, SimulatedClock
from anabranch.testing.simulation.world import World

SERVERS_SHARE = 2
"""How much more often a server is hurt than a participant."""


class NetworkedBackend:
    """A store that is reached by a URL, or not at all for a while."""

    fencing: Fencing

    def __init__(self, world: World, timeout_s: float) -> None:
        self._world = world
        self.timeout_s = timeout_s

    def url(self, runtime: Runtime) -> str:
        """Where a participant looks for the store this time."""
        raise NotImplementedError

    def surrounded(self, runtime: Runtime) -> Runtime:
        """A participant's surroundings, if it needs others than every process has."""
        return runtime

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        del name
        runtime = self.surrounded(runtime)
        while True:
            try:
                return await open_store(
                    self.url(runtime), runtime, session_timeout_s=self.timeout_s
                )
            except Unreachable:
                self._world.reach("nobody there")

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""

        async def read(runtime: Runtime) -> list[bytes]:
            while True:
                store = await self.open(runtime, "judge")
                try:
                    await store.sync()
                    return [node.value async for node in store.scan(path) if node.stat.path != path]
                except Unreachable:
                    continue  # the last fault is not over yet
                finally:
                    await store.close()

        found: list[bytes] = await self._world.process("judge").run(read)
        return found


class ModelServer(Protocol):
    """A server of a model, as far as its process knows it."""

    async def start(self, network: Network, host: str, port: int) -> Listener:
        """Listen, and take part."""
        ...


S = TypeVar("S", bound=ModelServer)


class ModelledBackend(NetworkedBackend, Generic[S]):
    """A store whose servers are processes, and whose state belongs to none of them."""

    def __init__(self, world: World, timeout_s: float, names: Sequence[str], port: int) -> None:
        super().__init__(world, timeout_s)
        self.names = list(names)
        self.servers: dict[str, S] = {}
        self._port = port

    def _surroundings(self, rng: random.Random) -> Surroundings:
        """Where the model lives; its clock is that of the first server's machine."""
        world = self._world
        clock = SimulatedClock(world.loop, world.machine(self.names[0]), world.start_s)
        return Surroundings(world.loop, clock, rng, world.context, world.reach)

    def made(self, context: contextvars.Context) -> S:
        """A new server, which acts in a context."""
        raise NotImplementedError

    def left(self, server: S) -> None:
        """The process of a server has ended."""
        raise NotImplementedError

    async def serve(self, runtime: Runtime, name: str) -> None:
        """The process of a server."""
        server = self.servers[name] = self.made(contextvars.copy_context())
        life = OWNER.get()
        assert isinstance(life, Incarnation)
        life.ended.add_done_callback(lambda _: self.left(server), context=self._world.context)
        await server.start(runtime.network, name, self._port)
        await asyncio.get_running_loop().create_future()


class PacedNemesis(Nemesis):
    """Its faults come, and last, in the measure of sessions: some end one and some do not."""

    def __init__(
        self, world: World, targets: list[Process], weights: Mapping[str, float], timeout_s: float
    ) -> None:
        super().__init__(
            world,
            targets,
            weights=weights,
            gap_s=(0.0, 2 * timeout_s),
            duration_s=(0.05, 4 * timeout_s),
        )


async def play_on_model(
    world: World,
    backend: ModelledBackend[S],
    nemesis: Callable[[list[Process]], Nemesis],
) -> None:
    """Start a model's servers and play the story on them."""
    servers = [world.process(name) for name in backend.names]
    for process in servers:
        process.start(lambda runtime, name=process.name: backend.serve(runtime, name))  # type: ignore[misc]
    participants = [world.process(name) for name in PARTICIPANTS]
    torment = nemesis(participants + servers * SERVERS_SHARE)
    await play(world, backend, torment, Story(world))
