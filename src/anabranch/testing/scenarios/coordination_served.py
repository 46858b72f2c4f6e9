"""The story of `coordination` on a served metadata store, over the simulated network and disk."""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.embedded import EmbeddedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import Fencing
from anabranch.runtime import Runtime
from anabranch.testing.coordination_servers import SERVERS_SHARE, NetworkedBackend, PacedNemesis
from anabranch.testing.coordination_story import PARTICIPANTS, Story, play
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

STORE: Final = "store"
PORT: Final = 6660


class ServedBackend(NetworkedBackend):
    """A server with an embedded store, in a process of its own."""

    fencing = Fencing.SERVER

    def __init__(self, world: World, story: Story) -> None:
        super().__init__(world, world.rng("coordination").choice((1.0, 3.0)))
        self._story = story

    async def serve(self, runtime: Runtime) -> None:
        """The store's process."""
        store = await EmbeddedStore.open(runtime, "/metadata")
        server = MetadataServer(runtime, store, on_failure=self._story.fail)
        await server.start(STORE, PORT)
        await asyncio.get_running_loop().create_future()

    def url(self, runtime: Runtime) -> str:
        """See `NetworkedBackend.url`."""
        del runtime
        return f"anabranch://{STORE}:{PORT}"


@scenario(
    "coordination_served",
    set_seeds=15,
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
    targets = [world.process(name) for name in PARTICIPANTS] + [server] * SERVERS_SHARE
    nemesis = PacedNemesis(world, targets, DEFAULT_WEIGHTS, backend.timeout_s)
    await play(world, backend, nemesis, story)
