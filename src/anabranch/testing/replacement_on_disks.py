"""A replacement of one served store by another in the simulation, where disks and power can fail.

Each store and each broker has a machine of its own. The driver is held in a phase, so that whatever
is done to machines falls into it. What brokers were told is kept outside of them and compared with
the store that is in use in the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from anabranch.errors import AnabranchError, BadVersion, OutcomeUnknown
from anabranch.metadata.announced import journal_path, read_announced
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, Expected, MetadataStore
from anabranch.metadata.switchable.postures import posture_of
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.server.metadata_service import MetadataService
from anabranch.server.settings import Settings
from anabranch.testing.replaced_stores import Member
from anabranch.testing.simulation.conditions import Conditions
from anabranch.testing.simulation.process import Process
from anabranch.testing.simulation.world import World
from anabranch.testing.staged_replacement import BEFORE_SWITCH, ON_THE_WAY_BACK, Hold

SOURCE: Final = "source"
TARGET: Final = "target"
STORES: Final = (SOURCE, TARGET)
BROKERS: Final = ("ash", "birch")
PORT: Final = 6660
DATA: Final = "/data"
VALUE_BYTES: Final = 400
SESSION_S: Final = 3.0
LONG_S: Final = 300.0
"""Virtual, and longer than anything that comes to an end here takes."""
_REST_S: Final = 0.1
_LOOK_S: Final = 0.05
REACHED_BY: Final[dict[str, Verb | None]] = {
    **dict.fromkeys((*BEFORE_SWITCH, "leading", "switched")),
    **dict.fromkeys(ON_THE_WAY_BACK, Verb.ROLLBACK),
    "finalizing": Verb.FINALIZE,
}
"""Every phase in which a driver does something, and what has to be asked to come to it."""


def url_of(store: str) -> str:
    """Where a store is served."""
    return f"anabranch://{store}:{PORT}"


async def serve(runtime: Runtime, store: str) -> None:
    """The process of a store: what `anabranch metadata serve` runs."""
    service = MetadataService(runtime, Settings(host=store, data=DATA, metadata_port=PORT))
    await service.start()
    failure = await service.serve_until(asyncio.Event())
    assert failure is not None, "a server without a stop signal ends only by failing"
    raise failure


class Promises:
    """What brokers were told, in all of their lives."""

    def __init__(self) -> None:
        self.attempted: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.drawn: set[str] = set()
        """Sequential nodes."""

    @property
    def count(self) -> int:
        """How many writes were acknowledged so far."""
        return sum(self.acknowledged.values()) + len(self.drawn)

    async def check(self, store: MetadataStore) -> None:
        """Compare with a store that is in use: what was acknowledged is there, and once."""
        promised, drawn = dict(self.acknowledged), set(self.drawn)
        for path in list(self.attempted):
            node = await store.get(path)
            found = 0 if node is None else int(node.value.split()[0])
            told, attempted = promised.get(path, 0), self.attempted[path]
            assert told <= found <= attempted, f"{path}: told {told}, found {found} of {attempted}"
            if node is not None:
                assert node.stat.version.native == found - 1, f"{path}: {node.stat.version}"
        there = {f"/q/{name}" for name in await store.children("/q")}
        assert drawn <= there, f"gone: {sorted(drawn - there)[:5]}"


def world_of(seed: int) -> World:
    """A world with an ordinary network: it is disks and power that are looked at here."""
    return World(seed, conditions=Conditions())


class Cluster:
    """Two stores, and brokers that begin with the first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.promises = Promises()
        self.servers = {store: world.process(store) for store in STORES}
        self.brokers = {name: world.process(name) for name in BROKERS}
        self.members: dict[str, Member] = {}
        """By name, those of the present lives."""
        self._hold = Hold()
        self._people = world.process("people")
        self._lives = 0

    async def begin(self) -> None:
        """Start everything, and wait until every broker has written."""
        for store in STORES:
            self.servers[store].start(
                lambda runtime, store=store: serve(runtime, store),  # type: ignore[misc]
                tolerates=(AnabranchError,),
            )
        for name in BROKERS:
            self.brokers[name].start(lambda runtime, name=name: self._live(runtime, name))  # type: ignore[misc]
        await self.until_written()

    # --- brokers ------------------------------------------------------------------------------

    async def _live(self, runtime: Runtime, name: str) -> None:
        self._lives += 1
        folder = f"/w/{name}/{self._lives}"
        member = await self._join(runtime, name)
        await asyncio.gather(
            *(self._count(member.store, f"{folder}/{number}") for number in range(2)),
            self._draw(member.store),
        )

    async def _join(self, runtime: Runtime, name: str) -> Member:
        while True:
            try:
                member = await Member.open(
                    runtime, name, url_of(SOURCE), _opener(runtime), self._failed
                )
            except AnabranchError:
                await asyncio.sleep(0.2)
            else:
                self._hold.take(member.replaceable.steps)
                self.members[name] = member
                return member

    def _failed(self, name: str, error: BaseException) -> None:
        self.world.fail(AssertionError(f"{name}: {error!r}"), error)

    async def _count(self, store: MetadataStore, path: str) -> None:
        """Count in a node that nobody else writes; every write expects the version before."""
        promises, value = self.promises, 0
        expected: Expected = ABSENT
        padding = b" " + bytes(VALUE_BYTES)
        while True:
            promises.attempted[path] = value + 1
            try:
                stat = await store.put(path, b"%d" % (value + 1) + padding, expected)
            except BadVersion as error:
                raise AssertionError(f"{path} was written by somebody else: {error}") from error
            except OutcomeUnknown:
                found = await _again(lambda: store.get(path))
                seen = 0 if found is None else int(found.value.split()[0])
                assert seen in (value, value + 1), f"{path}: {seen} after {value}"
                value = seen
                expected = ABSENT if found is None else found.stat.version
                if value:
                    promises.acknowledged[path] = value
            except AnabranchError:
                await asyncio.sleep(_REST_S)  # it was not begun
            else:
                value, expected = value + 1, stat.version
                promises.acknowledged[path] = value
            await asyncio.sleep(_REST_S)

    async def _draw(self, store: MetadataStore) -> None:
        while True:
            try:
                stat = await store.put("/q/n-", b"", sequential=True)
            except AnabranchError:
                await asyncio.sleep(_REST_S)
            else:
                assert stat.path not in self.promises.drawn, f"{stat.path} was given out twice"
                self.promises.drawn.add(stat.path)
            await asyncio.sleep(_REST_S)

    async def until_written(self, wait_s: float = LONG_S, only: Sequence[str] = BROKERS) -> None:
        """Wait until every broker was told that something it begins now is written."""
        wanted = {name: self.told(name) + 3 for name in only}
        async with asyncio.timeout(wait_s):
            while any(self.told(name) < told for name, told in wanted.items()):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    async def driver(self) -> str:
        """The name of the broker that drives."""
        state = (await self.status()).state
        assert state is not None
        return next(name for name in self.members if state.driver.startswith(f"{name}-"))

    def told(self, name: str) -> int:
        """How many of its writes a broker was told of, but for sequential ones."""
        told = self.promises.acknowledged.items()
        return sum(value for path, value in told if path.startswith(f"/w/{name}/"))

    # --- people -------------------------------------------------------------------------------

    async def _asked(self, work: Callable[[Operation], Awaitable[Any]]) -> Any:
        """Have somebody ask, again and again until the source answers."""

        async def ask(runtime: Runtime) -> Any:
            opener = _opener(runtime)
            source = await opener(url_of(SOURCE))
            try:
                steps = FreezeCopy(runtime, url_of(SOURCE), source, opener)
                journal = Journal(source, runtime, FreezeCopy.kind, TABLE)
                return await work(Operation(steps, journal, runtime.entropy))
            finally:
                await source.close()

        return await _again(lambda: self._people.run(ask))

    async def start(self) -> None:
        """Have the source be replaced."""
        await self._asked(lambda operation: operation.start({"target": url_of(TARGET)}, "somebody"))

    async def ask(self, verb: Verb) -> None:
        """Ask for something more."""
        await self._asked(lambda operation: operation.ask(verb, "somebody"))

    async def status(self) -> Status:
        """How it stands."""
        found: Status = await self._asked(lambda operation: operation.status())
        return found

    async def until(self, *phases: str, wait_s: float = LONG_S) -> State:
        """Wait for one of some phases; an attempt that comes to another end is not waited for.

        Who has left the source for good knows how it ended; the source may not have heard of it.
        """
        async with asyncio.timeout(wait_s):
            while True:
                ended = [each.replaceable.journal for each in self.members.values()]
                if ended and all(journal.ended for journal in ended):
                    state = await ended[0].read()
                else:
                    state = (await self.status()).state
                assert state is not None
                if state.phase in phases:
                    return state
                assert not TABLE[state.phase].ends, f"{state.phase}: {state.error}"
                await asyncio.sleep(_LOOK_S)

    async def reach(self, phase: str) -> None:
        """Start, and ask on, until the driver waits in a phase."""
        verb = REACHED_BY[phase]
        if verb is None:
            self._hold.begin(phase)
            await self.start()
        else:
            await self.start()
            await self.until("switched")
            self._hold.begin(phase)
            await self.ask(verb)
        await self._hold.reached(LONG_S)

    def go_on(self) -> None:
        """Hold nobody any more."""
        self._hold.end()

    # --- faults, and what must hold ----------------------------------------------------------

    def cut_power(self, stores: Sequence[str] = STORES, *, brokers: bool) -> None:
        """Cut the power of stores, and maybe of every broker, in one moment."""
        struck: list[Process] = [self.servers[store] for store in stores]
        if brokers:
            struck += self.brokers.values()
            self.members.clear()
        for process in struck:
            if process.alive:
                process.power_cut()

    def power_up(self) -> None:
        """Start whatever is down."""
        for process in (*self.servers.values(), *self.brokers.values()):
            if not process.alive:
                process.restart()

    async def in_use(self) -> str:
        """The store that is in use, as the journal says."""

        async def look(runtime: Runtime) -> str:
            source = await _opener(runtime)(url_of(SOURCE))
            node = await source.get(journal_path(FreezeCopy.kind))
            await source.close()
            return posture_of(None if node is None else read_announced(node.value)).on

        found: str = await _again(lambda: self._people.run(look))
        return found

    async def check(self, store: str) -> None:
        """Wait until brokers write to a store, then compare it with what they were told."""
        await self.until_all_on(store)
        await self._until_the_dead_are_forgotten()
        await self.until_written()

        async def compare(runtime: Runtime) -> None:
            opened = await _opener(runtime)(url_of(store))
            await self.promises.check(opened)
            await opened.close()

        await self._people.run(compare)

    async def _until_the_dead_are_forgotten(self) -> None:
        """Wait until sessions of earlier lives are over: a driver among them is waited for."""
        async with asyncio.timeout(LONG_S):
            while len((await self.status()).reports) > len(BROKERS):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    async def until_all_on(self, store: str) -> None:
        """Wait until every broker is on a store, and lets nobody wait."""
        async with asyncio.timeout(LONG_S):
            while not self._all_on(store):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    def _all_on(self, store: str) -> bool:
        stores = [member.store for member in self.members.values()]
        on = [each for each in stores if each.route.name == store and not each.gate.closed]
        return len(on) == len(BROKERS)


def _opener(runtime: Runtime) -> Callable[[str], Awaitable[MetadataStore]]:
    async def opened(url: str) -> MetadataStore:
        return await open_store(url, runtime, session_timeout_s=SESSION_S)

    return opened


async def _again(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until somebody answers."""
    while True:
        try:
            return await ask()
        except AnabranchError as error:
            if not (error.retriable or isinstance(error, OutcomeUnknown)):
                raise
            await asyncio.sleep(_LOOK_S)
