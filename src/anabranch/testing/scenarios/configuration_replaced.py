"""A metadata store and a configuration store, each replaced by another at any time.

Three processes change documents of their own on either side of the border, and read what the others
have written. Each store has an operator of its own, who knows nothing of the other one. What was
acknowledged is never read as it was before, and is in the store of its side that is in use at the
end; and no store ever has a document of the other side.
"""

import asyncio
from typing import Final, cast

from anabranch.errors import AnabranchError, Unreachable
from anabranch.metadata.announced import Report, journal_path, read_announced
from anabranch.metadata.operations import ENDS
from anabranch.metadata.parted import PartedStore
from anabranch.metadata.store import ABSENT, MetadataStore, Operation, Version
from anabranch.metadata.switchable.postures import SOURCE, posture_of
from anabranch.migrations.freeze_copy.planning import Configuration
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.replaced_story import ELDER, Opener, Operator
from anabranch.testing.scenarios.metadata_switched import HandleNemesis
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.process import Incarnation
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.whole_store import WholeService, WholeStore
from anabranch.testing.simulation.world import World

BROKERS: Final = ("ash", "birch", "cedar")
ROOTS: Final = {
    "configuration": "/admin/policies/tenant",
    "metadata": "/managed-ledgers/tenant",
}
WHERE: Final = {
    "configuration": Configuration.ALONE,
    "metadata": Configuration.APART,
}
JOURNAL: Final = journal_path(FreezeCopy.kind)
ATTEMPTS: Final = 3
FAULTS: Final = 12
CHANGES: Final = 120
"""Of each document."""
GAP_S_MAX: Final = 0.5
CALM_SESSIONS: Final = 8.0


class Side:
    """The two stores of one side."""

    def __init__(self, forest: "Forest", name: str) -> None:
        self.name = name
        self.source_url, self.target_url = f"memory:{name}", f"memory:new {name}"
        self._forest = forest

    def opener(self, runtime: Runtime) -> Opener:
        """See `Pair`."""
        return self._forest.opener(runtime)

    @property
    def running(self) -> bool:
        """Whether an attempt is under way."""
        node = self._forest.services[self.source_url].read(0, JOURNAL)
        return node is not None and read_announced(node.value).phase not in ENDS

    def in_use(self) -> WholeService:
        """The service that the journal says is in use."""
        node = self._forest.services[self.source_url].read(0, JOURNAL)
        announced = None if node is None else read_announced(node.value)
        url = self.source_url if posture_of(announced).on == SOURCE else self.target_url
        return self._forest.services[url]


class Forest:
    """All services, and what was acknowledged."""

    def __init__(self, world: World) -> None:
        rng = world.rng("parted")
        self.world = world
        self.timeout_s = rng.choice((1.0, 3.0))
        self.sides = {name: Side(self, name) for name in ROOTS}
        self.services = {
            url: WholeService(
                world,
                timeout_s=self.timeout_s,
                delay_s=rng.choice((0.001, 0.005, 0.02)),
                flaky=rng.choice((0.0, 0.002, 0.01)),
            )
            for side in self.sides.values()
            for url in (side.source_url, side.target_url)
        }
        self.stores: dict[str, list[WholeStore]] = {}
        """By process, the handles that it ever had."""
        self.acknowledged: dict[str, int] = {}
        """What a document held at least, by its path."""
        self.changes: dict[str, int] = dict.fromkeys(BROKERS, 0)
        for service in self.services.values():
            service.on_write = self._written

    def _written(self, session: int, operation: Operation) -> None:
        del session
        if operation.path == JOURNAL and all(side.running for side in self.sides.values()):
            self.world.reach("both at once")

    def opener(self, runtime: Runtime) -> Opener:
        """Opens stores for one life of one process."""
        life = OWNER.get()
        assert isinstance(life, Incarnation)
        name = life.machine.name

        async def opened(url: str) -> MetadataStore:
            store = WholeStore(self.services[url], runtime.clock, life)
            self.stores.setdefault(name, []).append(store)
            try:
                async with asyncio.timeout(self.timeout_s):
                    await store.open()
            except TimeoutError:
                await store.close()
                raise Unreachable(f"nobody answers at {url}") from None
            return cast("MetadataStore", store)

        return opened

    async def open(self, runtime: Runtime, name: str) -> MetadataStore:
        """What a server opens: both stores as one tree."""
        local, configuration = [
            await self._open(runtime, name, side) for side in ("metadata", "configuration")
        ]
        return PartedStore(local, configuration)

    async def _open(self, runtime: Runtime, name: str, side: str) -> MetadataStore:
        tasks = Tasks(self._fail)
        me = Report(name, "broker", name, "simulated")
        while True:
            try:
                found = await ReplaceableMetadata.open(
                    runtime,
                    self.sides[side].source_url,
                    self.opener(runtime),
                    me,
                    tasks,
                    configuration=WHERE[side],
                )
            except Unreachable:
                self.world.reach("nobody there")
                await asyncio.sleep(0.1)
            else:
                return cast("MetadataStore", found.store)

    def _fail(self, name: str, error: BaseException) -> None:
        raise AssertionError(f"{name}: {error!r}") from error

    async def work(self, runtime: Runtime, name: str) -> None:
        """One life of a broker."""
        store = await self.open(runtime, name)
        while self.changes[name] < CHANGES:
            for root in ROOTS.values():
                await self._change(store, f"{root}/{name}")
                await self._look(store, f"{root}/{BROKERS[runtime.entropy.below(len(BROKERS))]}")
            self.changes[name] += 1
            await asyncio.sleep(runtime.entropy.uniform(0.0, GAP_S_MAX))

    async def _change(self, store: MetadataStore, path: str) -> None:
        while True:
            try:
                before, node = await self._read(store, path)
                expected = ABSENT if node is None else node
                await store.put(path, b"%d" % (before + 1), expected)
            except AnabranchError as error:
                self.world.reach(f"met {type(error).__name__}")
                await asyncio.sleep(0.1)
            else:
                self.acknowledged[path] = before + 1
                return

    async def _look(self, store: MetadataStore, path: str) -> None:
        try:
            await self._read(store, path)
        except AnabranchError:
            self.world.reach("not looked")

    async def _read(self, store: MetadataStore, path: str) -> tuple[int, Version | None]:
        """What a document holds; never less than was acknowledged before."""
        least = self.acknowledged.get(path, 0)
        await store.sync()
        node = await store.get(path)
        found = 0 if node is None else int(node.value)
        assert found >= least, f"{path} was {least}, and is {found}"
        return found, None if node is None else node.stat.version

    def check(self) -> None:
        """What was acknowledged is in use, and on its side."""
        assert len(self.acknowledged) == len(BROKERS) * len(ROOTS)
        for path, least in self.acknowledged.items():
            for name, side in self.sides.items():
                if path.startswith(ROOTS[name]):
                    node = side.in_use().read(0, path)
                    assert node is not None, f"{path} is lost"
                    assert int(node.value) >= least, f"{path} is {node.value!r}, not {least}"
                else:
                    for url in (side.source_url, side.target_url):
                        assert self.services[url].read(0, path) is None, f"{path} is in {url}"


@scenario(
    "configuration_replaced",
    set_seeds=2,
    time_limit_s=1200.0,
    reaches=("both at once", "phase switched"),
    reaches_seldom=(
        "fault crash",
        "fault cut_link",
        "fault pause",
        "fault store_restart",
        "phase aborted",
        "phase failed",
        "phase finalized",
        "phase rolled back",
    ),
)
async def configuration_replaced(world: World) -> None:
    """Documents on both sides of the border while the stores of both are replaced."""
    forest = Forest(world)

    async def use(runtime: Runtime) -> None:
        await forest.open(runtime, ELDER)
        await asyncio.get_running_loop().create_future()

    brokers = [world.process(name) for name in BROKERS]
    for broker in brokers:
        broker.start(lambda runtime, name=broker.name: forest.work(runtime, name))  # type: ignore[misc]
    elder = world.process(ELDER)
    elder.start(use)
    operators = []
    for name, side in forest.sides.items():
        calm_s = CALM_SESSIONS * forest.timeout_s
        operator = Operator(world, side, ATTEMPTS, calm_s, f"operator of {name}")
        operators.append(world.process(f"operator of {name}"))
        operators[-1].start(operator.run)
    await HandleNemesis(forest, world, [*brokers, elder]).run(FAULTS)
    for process in (*brokers, *operators):
        await process.wait_exit()
    forest.check()
