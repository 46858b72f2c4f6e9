"""The story of `coordination` on a served metadata store, over the simulated network and disk."""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError, Unreachable
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.factory import open_store
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.coordination_story import PARTICIPANTS, Story, play
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, Nemesis
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

STORE: Final = "store"
PORT: Final = 6660
_STORE_SHARE: Final = 2
"""The store's process stands in the list of targets this often, so that it gets its share."""


class ServedBackend:
    """A server with an embedded store, in a process of its own."""

    fencing = Fencing.SERVER

    def __init__(self, world: World, story: Story) -> None:
        self._world = world
        self._story = story
        self.timeout_s = world.rng("coordination").choice((1.0, 3.0))

    async def serve(self, runtime: Runtime) -> None:
        """The store's process."""
        store = await EmbeddedStore.open(runtime, "/metadata")
        server = MetadataServer(runtime, store, on_failure=self._story.fail)
        await server.start(STORE, PORT)
        await asyncio.get_running_loop().create_future()

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        del name
        while True:
            try:
                return await open_store(
                    f"anabranch://{STORE}:{PORT}", runtime, session_timeout_s=self.timeout_s
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


@scenario(
    "coordination_served",
    time_limit_s=1800.0,
    reaches=(
        "busy",
        "fault crash",
        "fault partition",
        "fault pause",
        "fault power_cut",
        "fault reset",
        "following",
        "leading",
        "no leader",
        "value updated",
    ),
)
async def coordination_served(world: World) -> None:
    """Locks, election, counters and cache on a served store."""
    story = Story(world)
    backend = ServedBackend(world, story)
    server = world.process(STORE)
    server.start(backend.serve, tolerates=(AnabranchError,))
    targets = [world.process(name) for name in PARTICIPANTS] + [server] * _STORE_SHARE
    nemesis = Nemesis(
        world,
        targets,
        weights=DEFAULT_WEIGHTS,
        gap_s=(0.0, 2 * backend.timeout_s),
        duration_s=(0.05, 4 * backend.timeout_s),
    )
    await play(world, backend, nemesis, story)
