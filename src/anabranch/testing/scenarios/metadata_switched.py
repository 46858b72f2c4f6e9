"""The story of `coordination` while its store is replaced, on simulated services.

As `metadata_replaced`, but nothing is turned into bytes: so it is quick, and ruder, since a request
of a broken connection may arrive long after its client gave up. Copies get lost on their way now
and then; such a one is never switched to.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from anabranch.errors import Unreachable
from anabranch.metadata.announced import Report, journal_path, read_announced
from anabranch.metadata.store import Fencing, MetadataStore, Put, Record
from anabranch.metadata.switchable.postures import SOURCE, posture_of
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH, Flag, write_flag
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.server.replaceable_metadata import ReplaceableMetadata
from anabranch.testing.coordination_servers import PacedNemesis
from anabranch.testing.coordination_story import PARTICIPANTS, Story
from anabranch.testing.cutover import Cutover
from anabranch.testing.garden import Garden, Gardener
from anabranch.testing.replaced_story import ELDER, Opener, Operator, play_replaced
from anabranch.testing.simulation.loop import OWNER
from anabranch.testing.simulation.process import Incarnation, Process
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.whole_store import WholeService, WholeStore
from anabranch.testing.simulation.world import World

WEIGHTS: Final = {
    "crash": 2.0,
    "pause": 3.0,
    "cut_link": 3.0,
    "reset_link": 3.0,
    "store_restart": 2.0,
}
ATTEMPTS: Final = 4
SPOILED_SHARE: Final = 0.25
"""Seeds in which a record gets lost on its way now and then."""
CALM_SESSIONS: Final = 8.0
"""So many timeouts after a fault began it is over, and so is every session that it ended."""
SOURCE_URL: Final = "memory:source"
TARGET_URL: Final = "memory:target"


class SwitchedBackend:
    """Two services, of which the first is in use in the beginning."""

    fencing = Fencing.LEASE
    source_url, target_url = SOURCE_URL, TARGET_URL

    def __init__(self, world: World, story: Story) -> None:
        rng = world.rng("switched")
        self._world = world
        self._story = story
        self.garden = Garden(world)
        self.timeout_s = rng.choice((1.0, 3.0))
        self.services = {
            url: WholeService(
                world,
                timeout_s=self.timeout_s,
                delay_s=rng.choice((0.001, 0.005, 0.02)),
                flaky=rng.choice((0.0, 0.002, 0.01)),
            )
            for url in (SOURCE_URL, TARGET_URL)
        }
        self.stores: dict[str, list[WholeStore]] = {}
        """By process, the handles that it ever had."""
        if rng.random() < SPOILED_SHARE:
            self.services[TARGET_URL].spoil = self._spoils
        # As an attempt of Pulsar's own leaves it that came to nothing.
        failed = write_flag(Flag(Outward.FAILED, "oxia://elsewhere:6648/default"))
        self.services[SOURCE_URL].write(0, Put(FLAG_PATH, failed))
        self.cutover = Cutover(self.services[SOURCE_URL], self.services[TARGET_URL], _is_alive)
        self._rng = rng

    def _spoils(self, record: Record) -> bool:
        lost = record.path.startswith("/effects/") and self._rng.random() < 0.02
        if lost:
            self._world.reach("copy spoiled")
        return lost

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
        """See `Backend.open`."""
        tasks = Tasks(self._story.fail)
        me = Report(name, "broker", name, "simulated")
        opener = self.opener(runtime)
        while True:
            try:
                found = await ReplaceableMetadata.open(runtime, SOURCE_URL, opener, me, tasks)
            except Unreachable:
                self._world.reach("nobody there")
                await asyncio.sleep(0.1)
            else:
                store = cast("MetadataStore", found.store)
                tasks.spawn("garden", Gardener(self.garden, store, runtime.entropy).run())
                return store

    async def effects(self, path: str) -> list[bytes]:
        """See `Backend.effects`."""
        used = self.in_use()
        return [node.value for node in used.nodes(0, path) if node.stat.path != path]

    def in_use(self) -> WholeService:
        """The service that the journal says is in use."""
        node = self.services[SOURCE_URL].read(0, journal_path(FreezeCopy.kind))
        announced = None if node is None else read_announced(node.value)
        url = SOURCE_URL if posture_of(announced).on == SOURCE else TARGET_URL
        return self.services[url]

    def held(self, path: str) -> bytes | None:
        """What a node of the store in use holds."""
        node = self.in_use().read(0, path)
        return None if node is None else node.value


def _is_alive(life: object) -> bool:
    return isinstance(life, Incarnation) and life.alive


class HandleNemesis(PacedNemesis):
    """Also hurts single connections, of which a process has several, and the services."""

    def __init__(self, backend: SwitchedBackend, world: World, targets: list[Process]) -> None:
        self._backend = backend
        super().__init__(world, targets, WEIGHTS, backend.timeout_s)

    def _kinds(self) -> dict[str, Callable[[Process, float], None]]:
        return {
            **super()._kinds(),
            "cut_link": self._cut_link,
            "reset_link": self._reset_link,
            "store_restart": self._restart_store,
        }

    def _store_of(self, target: Process) -> WholeStore | None:
        stores = [
            store for store in self._backend.stores.get(target.name, ()) if store.is_connected
        ]
        return self._rng.choice(stores) if stores else None

    def _cut_link(self, target: Process, duration_s: float) -> None:
        if store := self._store_of(target):
            store.cut = True

            def mend() -> None:
                store.cut = False

            self._later(duration_s, mend)

    def _reset_link(self, target: Process, duration_s: float) -> None:
        if store := self._store_of(target):
            store.reset()

    def _restart_store(self, target: Process, duration_s: float) -> None:
        self._rng.choice(list(self._backend.services.values())).crash(duration_s / 4)


@scenario(
    "metadata_switched",
    set_seeds=8,
    time_limit_s=1200.0,
    reaches=("leading", "phase switched", "planted", "stray request", "two stores compared"),
    reaches_seldom=(
        "copy spoiled",
        "fault crash",
        "fault cut_link",
        "fault pause",
        "fault store_restart",
        "phase aborted",
        "phase failed",
        "phase finalized",
        "phase rolled back",
        "session left to itself",
        "token refused",
        "value updated",
    ),
)
async def metadata_switched(world: World) -> None:
    """Locks, election, counters and cache on services that replace each other."""
    story = Story(world)
    backend = SwitchedBackend(world, story)
    operator = Operator(world, backend, ATTEMPTS, CALM_SESSIONS * backend.timeout_s)
    hurt = [world.process(name) for name in (*PARTICIPANTS, ELDER)]
    await play_replaced(world, backend, HandleNemesis(backend, world, hurt), story, operator)
    backend.garden.check(backend.held)
    world.reach("two stores compared", backend.cutover.seen)
