"""The story of `coordination` while the store that it is told on is replaced, again and again.

Four processes share locks, a leader, counters and a cached document, on a modelled ZooKeeper that
is replaced by a modelled Oxia or the other way round, and sometimes back. Somebody asks for it, for
aborts and for rollbacks at any time; the processes drive it themselves, and are hurt all along, as
are the servers of both stores. What was acknowledged is in the store that is in use at the end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.errors import AnabranchError, ConflictError, Unreachable
from anabranch.metadata.announced import Report, journal_path, read_announced
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import Fencing, MetadataStore
from anabranch.metadata.switchable.postures import SOURCE, posture_of
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.state import Asked, Started
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.coordination_servers import SERVERS_SHARE, PacedNemesis
from anabranch.testing.coordination_story import PARTICIPANTS, RESOURCES, Story, play
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.service import NAMESPACE
from anabranch.testing.scenarios import coordination_oxia, coordination_zookeeper
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

WEIGHTS: Final = {
    "crash": 2.0,
    "one_way_partition": 1.0,
    "partition": 2.0,
    "pause": 3.0,
    "reset": 3.0,
    "slow_network": 1.0,
}
ATTEMPTS_MAX: Final = 4
LOSS_MAX: Final = 0.001
"""Of segments. Whatever happens to one of ten sessions is told on every connection, so that with
more of them lost than this, connections stall for longer than any session lasts."""
OPERATOR: Final = "operator"


class ReplacedBackend:
    """Two stores, of which the first is in use in the beginning."""

    fencing = Fencing.LEASE

    def __init__(self, world: World, story: Story) -> None:
        self._world = world
        self._story = story
        zookeeper = coordination_zookeeper.ModelBackend(world, timeouts_s=(3.0,), sizes=(1,))
        oxia = coordination_oxia.ModelBackend(world, sizes=(1,))
        places = ",".join(f"{server}:{coordination_zookeeper.PORT}" for server in zookeeper.names)
        urls = {
            f"zk:{places}/anabranch": zookeeper,
            f"oxia://{oxia.names[0]}:{coordination_oxia.PORT}/{NAMESPACE}": oxia,
        }
        order = list(urls)
        world.rng("order").shuffle(order)
        self.source_url, self.target_url = order
        self.backends = (zookeeper, oxia)
        self.timeout_s = max(zookeeper.timeout_s, oxia.timeout_s)
        world.reach(f"from {self.source_url.partition(':')[0]}")

    def opener(self, runtime: Runtime) -> Callable[[str], "asyncio.Future[MetadataStore]"]:
        """Opens stores for one life of one process."""
        around = replace(runtime, channels=ModelChannels(runtime.network))

        async def opened(url: str) -> MetadataStore:
            return await open_store(url, around, session_timeout_s=self.timeout_s)

        return opened  # type: ignore[return-value]

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """See `Backend.open`."""
        tasks = Tasks(self._story.fail)
        me = Report(name, "broker", name, "simulated")
        opener = self.opener(runtime)
        while True:
            try:
                found = await ReplaceableMetadata.open(
                    runtime,
                    self.source_url,
                    opener,
                    me,
                    tasks,
                )
            except Unreachable:
                self._world.reach("nobody there")
                await asyncio.sleep(0.1)
            else:
                return found.store

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""

        async def read(runtime: Runtime) -> list[bytes]:
            opener = self.opener(runtime)
            source = await opener(self.source_url)
            await source.sync()
            node = await source.get(journal_path(FreezeCopy.kind))
            announced = None if node is None else read_announced(node.value)
            store = source
            if posture_of(announced).on != SOURCE:
                store = await opener(self.target_url)
                await store.sync()
            return [node.value async for node in store.scan(path) if node.stat.path != path]

        found: list[bytes] = await self._world.process("judge").run(read)
        return found


class Operator:
    """Asks for the store to be replaced, for aborts and for the way back."""

    def __init__(self, world: World, backend: ReplacedBackend) -> None:
        self._world = world
        self._backend = backend
        self._rng = world.rng(OPERATOR)

    async def run(self, runtime: Runtime) -> None:
        """One life of the operator."""
        opener = self._backend.opener(runtime)
        while True:
            try:
                source = await opener(self._backend.source_url)
                journal = Journal(source, runtime, FreezeCopy.kind, TABLE)
                steps = FreezeCopy(runtime, self._backend.source_url, source, opener)
                for number in range(ATTEMPTS_MAX):
                    await self._attempt(journal, steps, f"{runtime.entropy.token_hex(4)}-{number}")
                return
            except AnabranchError:
                await asyncio.sleep(1.0)

    async def _attempt(self, journal: Journal, steps: FreezeCopy, name: str) -> None:
        try:
            plan = await steps.plan({"target": self._backend.target_url})
            await journal.change(Started(OPERATOR, name, plan.parameters, ()))
        except ConflictError:
            await asyncio.sleep(1.0)  # one runs already, of an earlier life of the operator
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.uniform(0.0, 3.0))
            await self._ask(journal, Verb.ABORT)
        while True:
            state = await journal.read()
            assert state is not None
            self._world.reach(f"phase {state.phase}")
            if TABLE[state.phase].ends:
                return
            if state.phase == "switched":
                await asyncio.sleep(self._rng.uniform(0.0, 5.0))
                if self._rng.random() < 0.7:
                    await self._ask(journal, Verb.ROLLBACK)
            await asyncio.sleep(0.1)

    async def _ask(self, journal: Journal, verb: Verb) -> None:
        try:
            await journal.change(Asked(OPERATOR, verb))
            self._world.reach(f"asked to {verb.value}")
        except ConflictError:
            return  # not in this phase


async def check_effects(backend: ReplacedBackend, story: Story) -> None:
    """Whatever was acknowledged is there, once."""
    found: list[int] = []
    for folder in (*(f"/effects/{resource}" for resource in RESOURCES), "/decrees"):
        found += [int(value.split()[3]) for value in await backend.effects(folder)]
    assert len(found) == len(set(found)), "a write is there twice"
    lost = story.acknowledged - set(found)
    assert not lost, f"{len(lost)} acknowledged writes are lost: {sorted(lost)[:5]}"


@scenario(
    "metadata_replaced",
    set_seeds=3,  # a seed takes long
    time_limit_s=3600.0,
    reaches=("leading", "phase switched", "phase rolled back"),
    reaches_seldom=("from zk", "from oxia", "phase failed", "phase aborted", "value updated"),
)
async def metadata_replaced(world: World) -> None:
    """Locks, election, counters and cache while the store is replaced."""
    world.conditions = replace(world.conditions, loss=min(world.conditions.loss, LOSS_MAX))
    story = Story(world)
    backend = ReplacedBackend(world, story)
    servers: list[Process] = []
    for served in backend.backends:
        for name in served.names:
            process = world.process(name)
            process.start(lambda runtime, name=name, served=served: served.serve(runtime, name))  # type: ignore[misc]
            servers.append(process)
    participants = [world.process(name) for name in PARTICIPANTS]
    world.process(OPERATOR).start(Operator(world, backend).run)
    targets = participants * SERVERS_SHARE + servers
    nemesis = PacedNemesis(world, targets, WEIGHTS, backend.timeout_s)
    await play(world, backend, nemesis, story)
    await check_effects(backend, story)
