"""A served metadata store and three clients, while the server, the clients and the net are hurt.

What was acknowledged must be there, what was not is there wholly or not at all, every change is
told once and in order, numbers are given out once, and an ephemeral node is there exactly as long
as its client may believe that it is.
"""

import asyncio
from typing import Final

from anabranch.errors import AnabranchError, OutcomeUnknown, SessionExpired, Unreachable
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.store import ABSENT, EventKind, Expected, Revision, SessionEvent
from anabranch.runtime import Runtime
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.simulation.nemesis import DEFAULT_WEIGHTS, STORAGE_WEIGHTS, Nemesis
from anabranch.testing.simulation.scenario import scenario
from anabranch.testing.simulation.world import World

SERVER: Final = "meta"
URL: Final = f"anabranch://{SERVER}:6660"
CLIENTS: Final = ("a", "b", "c")
TIMEOUT_S: Final = 6.0
FAULTS: Final = 10
WRITERS_EACH: Final = 2
OPERATIONS_MIN: Final = 2_000
SETTLE_S_MAX: Final = 120.0


async def serve(runtime: Runtime) -> None:
    """The server's process: what `anabranch metadata serve` runs."""
    service = MetadataService(runtime, Settings(host=SERVER, data="/data"))
    await service.start()
    failure = await service.serve_until(asyncio.Event())
    assert failure is not None, "a server without a stop signal ends only by failing"
    raise failure


class Story:
    """What was promised so far, kept outside the processes that die."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.over = False
        self.operations = 0
        self.lives = dict.fromkeys(CLIENTS, 0)
        self.attempted: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.drawn: dict[str, int] = {}
        """The number of each sequential node."""
        self.told = dict.fromkeys(CLIENTS, Revision(0, 0))

    def done(self, mark: str) -> None:
        """Count an operation."""
        self.operations += 1
        self.world.reach(mark)


class Client:
    """One life of one client process."""

    def __init__(self, story: Story, runtime: Runtime, name: str, store: ServedStore) -> None:
        self.story = story
        self.runtime = runtime
        self.name = name
        self.life = story.lives[name]
        self.store = store
        self.loop = asyncio.get_running_loop()

    async def rest(self) -> None:
        """Between two operations."""
        await asyncio.sleep(self.runtime.entropy.uniform(0.0, 0.05))

    async def value_at(self, path: str) -> tuple[int, Expected]:
        """Read a number back, however long it takes."""
        while True:
            try:
                node = await self.store.get(path)
            except Unreachable:
                continue
            return (int(node.value), node.stat.version) if node else (0, ABSENT)

    async def write(self, number: int) -> None:
        """Count in a node that nobody else writes; every write expects the version before."""
        story, path = self.story, f"/w/{self.name}/{self.life}/{number}"
        value = 0
        version: Expected = ABSENT
        while not story.over:
            story.attempted[path] = value + 1
            try:
                stat = await self.store.put(path, b"%d" % (value + 1), version)
            except Unreachable:
                story.done("write not begun")
            except OutcomeUnknown:
                story.done("write in doubt")
                found, version = await self.value_at(path)
                assert found in (value, value + 1), f"{path}: {found} after {value}"
                value = story.acknowledged[path] = found
            else:
                story.done("write answered")
                value, version = value + 1, stat.version
                story.acknowledged[path] = value
            await self.rest()

    async def draw(self) -> None:
        """Make sequential nodes."""
        story, last = self.story, -1
        while not story.over:
            try:
                stat = await self.store.put("/q/n-", self.name.encode(), sequential=True)
            except (Unreachable, OutcomeUnknown):
                story.done("number not known")
            else:
                story.done("number drawn")
                number = int(stat.path[-10:])
                assert stat.path not in story.drawn, f"{stat.path} was given out twice"
                assert number > last, f"{stat.path} came after {last}"
                story.drawn[stat.path] = last = number
            await self.rest()

    async def hold(self) -> None:
        """Own ephemeral nodes, and see that they are there as long as they must be."""
        story, number = self.story, 0
        while not story.over:
            number += 1
            path = f"/e/{self.name}-{self.life}-{number}"
            try:
                await self.store.put(path, b"", ABSENT, ephemeral=True)
            except (Unreachable, OutcomeUnknown, SessionExpired):
                story.done("ephemeral not known")
                await self.rest()
                continue
            story.done("ephemeral made")
            # The write may have gone out under an earlier session, which the answer does not say.
            session = self.store.session if await self.mine(path) else None
            while not story.over:
                if not await self.still_there(path, session):
                    break
                await asyncio.sleep(0.3)

    async def mine(self, path: str) -> bool:
        """Whether a node belongs to the present session."""
        session = self.store.session
        try:
            node = await self.store.get(path)
        except Unreachable:
            return False
        same = session == self.store.session
        return same and node is not None and node.stat.created_by_self

    async def still_there(self, path: str, session: int | None) -> bool:
        """Look at an ephemeral node; it may be gone only if its session may be."""
        try:
            node = await self.store.get(path)
        except Unreachable:
            return True
        self.story.done("ephemeral looked at")
        if node is not None:
            return True
        alive = self.store.session == session
        assert not (alive and self.store.session_valid_until > self.loop.time()), (
            f"{path} is gone, its session may not be"
        )
        self.story.world.reach("ephemeral gone")
        return False

    async def watch(self) -> None:
        """Hear of every change, over all lives, exactly once."""
        story = self.story
        async for event in self.store.watch("/", since=story.told[self.name]):
            told = story.told[self.name]
            if event.kind is EventKind.GAP:
                story.world.reach("gap")
            else:
                assert event.revision.index == told.index + 1, f"{event} after {told}"
            story.told[self.name] = event.revision

    async def listen(self) -> None:
        """Note what is said of the session."""
        async for event in self.store.session_events():
            self.story.world.reach(f"session: {event.value}")
            if event is SessionEvent.SESSION_LOST:
                self.story.world.note(f"{self.name} lost its session")


async def live(story: Story, runtime: Runtime, name: str) -> None:
    """A client's process, until the story is over."""
    story.lives[name] += 1
    store = await ServedStore.open(runtime, URL, session_timeout_s=TIMEOUT_S)
    client = Client(story, runtime, name, store)
    # Begun first, so that they hear of everything.
    listening = asyncio.gather(client.watch(), client.listen())
    await asyncio.gather(
        *(client.write(i) for i in range(WRITERS_EACH)), client.draw(), client.hold()
    )
    newest = await newest_revision(store)
    async with asyncio.timeout(SETTLE_S_MAX):
        while True:
            if story.told[name] >= newest:
                break
            await asyncio.sleep(0.1)
    await store.close()
    await listening


async def newest_revision(store: ServedStore) -> Revision:
    """Ask until somebody answers."""
    while True:
        try:
            return await store.revision()
        except Unreachable:
            continue


async def audit(story: Story, runtime: Runtime) -> None:
    """Compare the store with the promises, once everybody is gone."""
    store = await ServedStore.open(runtime, URL, session_timeout_s=TIMEOUT_S)
    for path, attempted in story.attempted.items():
        node = await store.get(path)
        value = int(node.value) if node else 0
        acknowledged = story.acknowledged.get(path, 0)
        assert acknowledged <= value <= attempted, f"{path}: {acknowledged} {value} {attempted}"
    names = await store.children("/q") if await store.exists("/q") else []
    assert {f"/q/{name}" for name in names} >= story.drawn.keys(), "a number that was given is gone"
    async with asyncio.timeout(2 * TIMEOUT_S):
        while left := await store.children("/e"):
            story.world.note(f"ephemeral nodes left: {len(left)}")
            await asyncio.sleep(0.5)
    await store.close()


@scenario(
    "served_metadata",
    set_seeds=12,
    reaches=(
        "write answered",
        "write in doubt",
        "number drawn",
        "ephemeral gone",
        "session: connection lost",
        "session: reconnected",
        "session: session lost",
        "session: session reestablished",
        "fault crash",
        "fault power_cut",
        "fault pause",
        "fault partition",
        "fault reset",
        "fault failed_sync",
        "fault full_disk",
    ),
)
async def served_metadata(world: World) -> None:
    """Write, draw, hold and watch through faults; then all promises are looked at."""
    story = Story(world)
    server = world.process(SERVER)
    server.start(serve, tolerates=(AnabranchError,))
    clients = [world.process(f"client-{name}") for name in CLIENTS]
    for name, process in zip(CLIENTS, clients, strict=True):
        process.start(
            lambda runtime, name=name: live(story, runtime, name),  # type: ignore[misc]
            tolerates=(Unreachable,),
        )
    # The server three times as often as each client: it is what all depend on.
    nemesis = Nemesis(
        world, [server, server, server, *clients], weights={**DEFAULT_WEIGHTS, **STORAGE_WEIGHTS}
    )
    await nemesis.run(FAULTS)
    while True:
        if story.operations >= OPERATIONS_MIN:
            break
        await asyncio.sleep(1.0)
    story.over = True
    for process in clients:
        await process.wait_exit()
    world.reach("operations", story.operations)
    await world.process("auditor").run(lambda runtime: audit(story, runtime))
