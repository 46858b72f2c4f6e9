"""The migration engine on simulated stores: drivers and participants crash, stop, lose sessions."""

import asyncio
from dataclasses import replace
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import Report
from anabranch.migrations.engine.driver import Driver
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.participant import Participant
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.engine_story import (
    BROKERS,
    KIND,
    TRANSITIONS,
    ModelPart,
    ModelSteps,
    Stores,
    Story,
    WatchedService,
    Writer,
    as_store,
    check_end,
)
from anabranch.testing.link_nemesis import LinkNemesis
from anabranch.testing.simulation.metadata_service import DriftingClock, MetadataService
from anabranch.testing.simulation.remote_store import RemoteStore
from anabranch.testing.simulation.scenario import Taken, scenario, transition_mark
from anabranch.testing.simulation.world import World

OPERATOR: Final = "olive"
ATTEMPTS: Final = 4
FAULTS: Final = 16
DRIFT: Final = 0.02
SELDOM: Final = [
    f"{arrow.old}: {arrow.why}"
    for arrow in TABLE.transitions()
    if arrow.why in ("abort", "failure") and arrow.old not in ("freezing", "rejoining")
] + ["rejoining: abort"]
"""A phase that is short is seldom the one in which somebody interferes."""


class Cluster:
    """The two services and who is connected to the source."""

    def __init__(self, world: World) -> None:
        rng = world.rng("migration engine")
        self.timeout_s = rng.choice((1.0, 3.0))
        delay_s = rng.choice((0.001, 0.005, 0.02))
        flaky = rng.choice((0.0, 0.005, 0.02))
        self.story = Story(world)
        self.service: MetadataService = WatchedService(
            world, timeout_s=self.timeout_s, delay_s=delay_s, flaky=flaky
        )
        self.service.story = self.story
        self.target = MetadataService(world, timeout_s=self.timeout_s, delay_s=delay_s, flaky=flaky)
        self.stores: dict[str, RemoteStore] = {}
        self._rates = {name: rng.uniform(1 - DRIFT, 1 + DRIFT) for name in (*BROKERS, OPERATOR)}

    async def connect(self, runtime: Runtime, name: str) -> tuple[Runtime, Stores]:
        """Both stores, for one life of one process."""
        runtime = replace(runtime, clock=DriftingClock(runtime.clock, self._rates[name]))
        source = self.stores[name] = RemoteStore(self.service, runtime.clock)
        target = RemoteStore(self.target, runtime.clock)
        await source.open()
        await target.open()
        return runtime, Stores(as_store(source), as_store(target))

    async def broker(self, runtime: Runtime, name: str) -> None:
        """One life of a broker: takes part, drives if it is its turn, and writes."""
        runtime, stores = await self.connect(runtime, name)
        tasks = Tasks(self.story.fail)
        part = ModelPart(self.story, stores)
        me = Report(name, "broker", name, "1")
        participant = Participant(stores.source, runtime.clock, tasks, KIND, me, part)
        await participant.join()
        if participant.announced is None:
            part.begin()
        steps = ModelSteps(self.story, stores, runtime.entropy)
        journal = Journal(stores.source, runtime, KIND, TABLE)
        Driver(steps, journal, runtime.clock, tasks, name).start()
        await Writer(self.story, part, name, runtime.entropy).run()
        await tasks.close()


class Operator:
    """Starts attempt after attempt, and interferes."""

    def __init__(self, story: Story, operation: Operation, journal: Journal) -> None:
        self._story = story
        self._operation = operation
        self._journal = journal
        self._rng = story.world.rng("operator")

    async def run(self) -> None:
        """Bring about some attempts; the last one comes to a good end."""
        for number in range(1, ATTEMPTS + 1):
            last = number == ATTEMPTS
            self._story.troubles = not last
            await self._start(number)
            await self._interfere(last)
        self._story.over = True

    async def _start(self, number: int) -> None:
        while True:
            state = await self._state()
            if state is not None and state.announced.number >= number:
                return
            try:
                await self._operation.start({"target": str(number)}, OPERATOR)
            except AnabranchError:
                await asyncio.sleep(0.2)

    async def _interfere(self, last: bool) -> None:
        """Ask for this and that until the attempt is over."""
        meddles = not last and self._rng.random() < 0.8
        while True:
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))
            state = await self._state()
            assert state is not None
            if TABLE[state.phase].ends:
                self._story.world.reach(state.phase)
                return
            if state.paused:
                await self._ask(Verb.RESUME)
            elif state.phase == "switched":
                rolls_back = not last or self._rng.random() < 0.5
                await self._ask(Verb.ROLLBACK if rolls_back else Verb.FINALIZE)
            elif meddles and self._rng.random() < 0.15:
                await self._ask(self._rng.choice((Verb.ABORT, Verb.PAUSE, Verb.PAUSE)))

    async def _ask(self, verb: Verb) -> None:
        try:
            await self._operation.ask(verb, OPERATOR)
        except Refused:
            self._story.world.reach("verb refused")
        except AnabranchError:
            self._story.world.reach("verb not answered")

    async def _state(self) -> State | None:
        while True:
            try:
                return await self._journal.read()
            except AnabranchError:
                await asyncio.sleep(0.2)


@scenario(
    "migration_engine",
    time_limit_s=400.0,
    tables={"phases": TRANSITIONS},
    set_seeds=25,
    reaches=(
        "aborted",
        "by take over",
        "copy spoiled",
        "failed",
        "fault crash",
        "fault pause",
        "finalized",
        "rolled back",
        "session lost",
        "step failed",
        "step tried again",
        "verb refused",
        "write fenced",
    ),
    reaches_seldom=tuple(transition_mark("phases", name) for name in SELDOM),
)
async def migration_engine(world: World) -> Taken:
    """Three brokers replace a model of their store, again and again, through faults."""
    cluster = Cluster(world)
    story = cluster.story
    brokers = [world.process(name) for name in BROKERS]
    for process in brokers:
        process.start(lambda runtime, name=process.name: cluster.broker(runtime, name))  # type: ignore[misc]

    async def operate(runtime: Runtime) -> None:
        runtime, stores = await cluster.connect(runtime, OPERATOR)
        journal = Journal(stores.source, runtime, KIND, TABLE)
        steps = ModelSteps(story, stores, runtime.entropy)
        await Operator(story, Operation(steps, journal, runtime.entropy), journal).run()

    world.process(OPERATOR).start(operate)
    await LinkNemesis(cluster, world, brokers).run(FAULTS)
    for process in (world.process(OPERATOR), *brokers):
        await process.wait_exit()
    check_end(story, cluster.service, cluster.target)
    return story.taken
