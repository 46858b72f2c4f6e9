"""A client that reaches one server only, and that one is cut off from the others or dies.

Whoever holds something by its session must have let go of it when the others give it away.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.testing.contracts.metadata_sessions import gone
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model import cluster as oxia
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.service import ModelServer as OxiaServer
from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.process import SimulatedClock
from anabranch.testing.simulation.world import World
from anabranch.testing.zookeeper_model import quorum as zookeeper
from anabranch.testing.zookeeper_model.server import ModelServer as ZooKeeperServer

NAMES = ("one", "two", "three")
PORT = 7000
SESSION_S = 3.0
Open = Callable[[str, str], Awaitable[MetadataStore]]
"""Open a store for a process by a server."""


def around(world: World) -> Surroundings:
    clock = SimulatedClock(world.loop, world.machine(NAMES[0]), world.start_s)
    return Surroundings(world.loop, clock, world.rng("model"), world.context, world.reach)


def start(world: World, make: Callable[[], ZooKeeperServer | OxiaServer]) -> dict[str, object]:
    servers: dict[str, object] = {}

    async def serve(name: str, runtime: Runtime) -> None:
        server = servers[name] = make()
        await server.start(runtime.network, name, PORT)
        await asyncio.get_running_loop().create_future()

    for name in NAMES:
        world.process(name).start(partial(serve, name))
    return servers


async def judge(
    world: World, open_by: Open, lonely: str, other: str, cut: Callable[[], None]
) -> None:
    holder = await open_by("holder", lonely)
    witness = await open_by("witness", other)
    await holder.put("/held", b"", ephemeral=True)
    session = holder.session
    await asyncio.sleep(world.rng("moment").uniform(1.0, 2.0) * SESSION_S)
    assert holder.session_valid_until > world.loop.time() + SESSION_S / 3, "all is well"
    assert holder.session == session
    cut()
    await gone(witness, "/held")
    assert holder.session == session
    assert holder.session_valid_until < world.loop.time(), "it was given away"


def opener(world: World, url: Callable[[str], str], fit: Callable[[Runtime], Runtime]) -> Open:
    async def open_by(process: str, server: str) -> MetadataStore:
        async def work(runtime: Runtime) -> MetadataStore:
            return await open_store(url(server), fit(runtime), session_timeout_s=SESSION_S)

        store: MetadataStore = await world.process(process).run(work)
        return store

    return open_by


@pytest.mark.parametrize("crash", [False, True], ids=["cut off", "crashed"])
@pytest.mark.goal("core.M10", part="zookeeper", broken_by="zk_any_answer_renews")
def test_zookeeper_server_without_a_leader(crash: bool) -> None:
    async def story(world: World) -> None:
        nature = zookeeper.Nature(members=3, tick_s=SESSION_S / 2, delay_s=0.001, patience_s=10.0)
        quorum = zookeeper.Quorum(around(world), nature)
        servers = start(world, lambda: ZooKeeperServer(quorum, contextvars.copy_context()))
        await asyncio.sleep(0.1)
        lonely, other = (name for name in NAMES if servers[name] is not quorum.leader)
        open_by = opener(world, lambda server: f"zk:{server}:{PORT}/x", lambda runtime: runtime)
        server = servers[lonely]
        assert isinstance(server, ZooKeeperServer)

        def cut() -> None:
            if crash:
                world.process(lonely).crash()
            else:
                server.cut_off()
            # Whoever is stopped believes what it believed before when it goes on.
            world.process("holder").pause(10 * SESSION_S)

        await judge(world, open_by, lonely, other, cut)
        judged.append(lonely)

    judged: list[str] = []
    for seed in range(10):
        World(seed, conditions=Conditions()).run(story)
    assert len(judged) == 10, "no holder believed in what was given away"


@pytest.mark.goal("core.M10", part="oxia", broken_by="oxia_any_server_renews")
def test_oxia_server_that_was_replaced() -> None:
    async def story(world: World) -> None:
        cluster = oxia.Cluster(around(world), oxia.Nature(shards=1))
        servers = start(world, lambda: OxiaServer(cluster, contextvars.copy_context()))
        await asyncio.sleep(0.1)
        lonely = next(name for name in NAMES if cluster.leads(servers[name], 0))  # type: ignore[arg-type]
        other = next(name for name in NAMES if name != lonely)
        open_by = opener(
            world,
            lambda server: f"oxia://{server}:{PORT}",
            lambda runtime: replace(runtime, channels=ModelChannels(runtime.network)),
        )

        def cut() -> None:
            world.network.partition(["holder"], [name for name in NAMES if name != lonely])
            cluster.isolate(servers[lonely])  # type: ignore[arg-type]

        await judge(world, open_by, lonely, other, cut)
        judged.append(lonely)

    judged: list[str] = []
    for seed in range(10):
        World(seed, conditions=Conditions()).run(story)
    assert len(judged) == 10, "no holder believed in what was given away"
