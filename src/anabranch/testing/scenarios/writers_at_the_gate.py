"""Writers that are stopped anywhere while the store under them is replaced, once.

Short on purpose, so that seeds by the ten thousand can be played: three processes write without a
pause, and each of them is stopped again and again, for a moment or for longer than its session,
also between the look at the gate and the end of a write. What was acknowledged is in the store that
is in use at the end, and nothing is there that nobody tried to write.
"""

import asyncio
from typing import Final, cast

from anabranch.errors import AnabranchError, OutcomeUnknown
from anabranch.metadata.announced import Report, journal_path, read_announced
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.postures import SOURCE, posture_of
from anabranch.migrations.engine.state import Started
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.replaced_story import Opener
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.process import Incarnation, Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.whole_store import WholeService, WholeStore
from anabranch.testing.simulation.world import World

SOURCE_URL: Final = "memory:source"
TARGET_URL: Final = "memory:target"
NAMES: Final = ("ash", "birch", "cedar")
WRITERS_EACH: Final = 1
TIMEOUT_S: Final = 1.0
REST_S_MAX: Final = 0.1
PAUSES_S: Final = (0.005, 0.05, 0.5, 1.5 * TIMEOUT_S)
"""From less than a write takes to longer than a session lasts."""
STOPS_S: Final = 1.0
"""How long processes are stopped again and again; the replacement must come to its end after it."""
SETTLE_S_MAX: Final = 120.0


class Gates:
    """Both stores, the processes on them, and what was promised."""

    def __init__(self, world: World) -> None:
        self.world = world
        rng = world.rng("gates")
        delay_s = rng.choice((0.001, 0.005, 0.02))
        self.services = {
            url: WholeService(world, timeout_s=TIMEOUT_S, delay_s=delay_s, flaky=0.0)
            for url in (SOURCE_URL, TARGET_URL)
        }
        self.over = False
        self.attempted: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.phase = ""

    def opener(self, runtime: Runtime) -> Opener:
        """Opens stores for one process."""
        life = OWNER.get()
        assert isinstance(life, Incarnation)

        async def opened(url: str) -> MetadataStore:
            store = WholeStore(self.services[url], runtime.clock, life)
            await store.open()
            return cast("MetadataStore", store)

        return opened

    def failed(self, name: str, error: BaseException) -> None:
        """A background task broke: that is never part of the story."""
        self.world.fail(AssertionError(f"{name}: {error!r}"), error)

    async def live(self, runtime: Runtime, name: str) -> None:
        """One process: it takes part in the replacement, and writes all the time."""
        tasks = Tasks(self.failed)
        me = Report(name, "broker", name, "simulated")
        part = await ReplaceableMetadata.open(runtime, SOURCE_URL, self.opener(runtime), me, tasks)
        if name == NAMES[0]:
            tasks.spawn("operator", self.replace(part))
        store = cast("MetadataStore", part.store)
        await asyncio.gather(
            *(self.write(runtime, store, f"/w/{name}-{n}") for n in range(WRITERS_EACH))
        )

    async def replace(self, part: ReplaceableMetadata) -> None:
        """Ask for the replacement, until somebody has heard it."""
        while not self.phase:
            try:
                plan = await part.steps.plan({"target": TARGET_URL})
                await part.journal.change(Started("operator", "a", plan.parameters, ()))
            except AnabranchError:
                await asyncio.sleep(0.1)

    async def write(self, runtime: Runtime, store: MetadataStore, prefix: str) -> None:
        """Count in a node that nobody else writes.

        A write in doubt may still come, after others that were answered: it gets to keep its node.
        """
        number, doubts = 0, 0
        while not self.over:
            path = f"{prefix}-{doubts}"
            number += 1
            self.attempted[path] = number
            try:
                await store.put(path, b"%d" % number)
            except OutcomeUnknown:
                self.world.reach("write in doubt")
                doubts += 1
            except AnabranchError:
                self.world.reach("write refused")
            else:
                self.world.reach("write answered")
                self.acknowledged[path] = number
            await asyncio.sleep(runtime.entropy.uniform(0.0, REST_S_MAX))

    def look(self) -> str:
        """The phase that the journal says, and where it puts the processes."""
        node = self.services[SOURCE_URL].read(0, journal_path(FreezeCopy.kind))
        announced = None if node is None else read_announced(node.value)
        self.phase = "" if announced is None else announced.phase
        return SOURCE_URL if posture_of(announced).on == SOURCE else TARGET_URL

    def check(self) -> None:
        """Compare the store in use with the promises."""
        used = self.services[self.look()]
        for path, attempted in self.attempted.items():
            node = used.read(0, path)
            value = 0 if node is None else int(node.value)
            acknowledged = self.acknowledged.get(path, 0)
            assert acknowledged <= value <= attempted, (
                f"{path} holds {value}: {acknowledged} was acknowledged, {attempted} attempted"
            )


async def _stop_now_and_then(gates: Gates, processes: list[Process]) -> None:
    rng = gates.world.rng("stops")
    pauses = PAUSES_S[: rng.randrange(1, len(PAUSES_S) + 1)]
    spacing_s = rng.choice((0.02, 0.1, 0.5))
    while not gates.over and gates.world.now_s() < STOPS_S:
        await asyncio.sleep(rng.uniform(0.0, 2 * spacing_s))
        process, pause_s = rng.choice(processes), rng.choice(pauses)
        if process.alive:
            gates.world.reach("stopped for long" if pause_s > TIMEOUT_S else "stopped")
            process.pause(pause_s)


@scenario(
    "writers_at_the_gate",
    set_seeds=20,
    time_limit_s=600.0,
    reaches=("write answered", "stopped", "stopped for long", "phase switched"),
    reaches_seldom=("write in doubt", "phase failed"),
)
async def writers_at_the_gate(world: World) -> None:
    """Writers are stopped anywhere, and lose nothing that was acknowledged."""
    gates = Gates(world)
    processes = [world.process(name) for name in NAMES]
    for name, process in zip(NAMES, processes, strict=True):
        process.start(lambda runtime, name=name: gates.live(runtime, name))  # type: ignore[misc]
    stopping = asyncio.ensure_future(_stop_now_and_then(gates, processes))
    async with asyncio.timeout(SETTLE_S_MAX):
        while True:
            await asyncio.sleep(0.1)
            gates.look()
            if gates.phase == "switched" or (gates.phase and TABLE[gates.phase].ends):
                break
    await asyncio.sleep(0.3)
    gates.over = True
    await stopping
    for process in processes:
        await process.wait_exit()
    world.reach(f"phase {gates.phase}")
    gates.check()
