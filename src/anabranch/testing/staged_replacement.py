"""A replacement of the metadata store that can be stopped in any phase, for tests.

Stores are in memory unless others are named. A driver that comes to the phase in which it is to be
held waits there, after everybody has reported the phase and before anything is done in it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from anabranch.errors import Unreachable
from anabranch.metadata.store import MetadataStore, Record
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.steps import Turn
from anabranch.migrations.engine.table import Table, Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.replaced_stores import Member, Shelf

LONG_S: Final = 60.0
"""Longer than any of it takes on a machine that does much else."""
SOURCE_URL: Final = "memory:source"
TARGET_URL: Final = "memory:target"
BEFORE_SWITCH: Final = (
    "preparing",
    "copying",
    "tailing",
    "verifying",
    "halting",
    "freezing",
    "rejoining",
    "fencing",
    "switching",
)
ON_THE_WAY_BACK: Final = ("reverifying", "refreezing", "returning", "refencing", "reverting")
_TURNS: Final = 50
"""Of the event loop, in which whatever need not wait for others is done."""
Opener = Callable[[str], Awaitable[MetadataStore]]


def failed(name: str, error: BaseException) -> None:
    """A background task failed: that is never part of a test."""
    raise AssertionError(f"{name}: {error!r}") from error


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that many things may bring about."""
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def let_others_run() -> None:
    """Let everything be done that waits for nobody."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def hasty(table: Table, phase: str, deadline_s: float) -> Table:
    """The same table, with another deadline for one phase."""
    rows = table.phases.values()
    return Table(
        table.first,
        *(replace(row, deadline_s=deadline_s) if row.name == phase else row for row in rows),
    )


@dataclass(slots=True)
class Trouble:
    """What is wrong with a store, for all who have it open."""

    down: bool = False
    """Nobody answers there."""
    error: Exception | None = None
    """What every write meets."""
    stops_after: int | None = None
    """A copy stops after so many nodes, until `goes_on` is set."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    """How often anybody opened it, or asked it for something that can fail."""

    def meet(self, *, writes: bool = False) -> None:
        """Fail if something is wrong."""
        self.asked += 1
        if self.down:
            raise Unreachable("nobody answers there")
        if writes and self.error is not None:
            raise self.error


class TroubledStore(PassThrough):
    """A store that has trouble."""

    def __init__(self, behind: MetadataStore, trouble: Trouble) -> None:
        super().__init__(behind)
        self._trouble = trouble

    async def get(self, path: str) -> Any:
        """See `MetadataStore.get`."""
        self._trouble.meet()
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        self._trouble.meet()
        return await super().children(path)

    async def record(self, path: str) -> Record | None:
        """See `MetadataStore.record`."""
        self._trouble.meet()
        return await super().record(path)

    async def put(self, path: str, *rest: Any, **more: Any) -> Any:
        """See `MetadataStore.put`."""
        self._trouble.meet(writes=True)
        return await super().put(path, *rest, **more)

    async def delete(self, path: str, *rest: Any, **more: Any) -> None:
        """See `MetadataStore.delete`."""
        self._trouble.meet(writes=True)
        await super().delete(path, *rest, **more)

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """See `MetadataStore.restore`."""
        trouble = self._trouble
        trouble.meet(writes=True)
        restored = 0
        if trouble.stops_after is not None:
            first, trouble.stops_after = trouble.stops_after, None
            restored = await super().restore(_some(records, first))
            trouble.stopped.set()
            await trouble.goes_on.wait()
            trouble.meet(writes=True)
        return restored + await super().restore(records)


async def _some(records: AsyncIterator[Record], count: int) -> AsyncIterator[Record]:
    for _ in range(count):
        try:
            record = await anext(records)
        except StopAsyncIteration:
            return
        yield record


class Hold:
    """Where drivers are held: in one phase, until they may go on."""

    def __init__(self) -> None:
        self._phase = ""
        self._reached = asyncio.Event()
        self._may_go_on = asyncio.Event()

    def take(self, steps: FreezeCopy) -> None:
        """Have a driver that does these steps be held."""
        run = steps.run

        async def held(phase: str, turn: Turn) -> None:
            if phase == self._phase:
                may_go_on = self._may_go_on
                self._reached.set()
                await may_go_on.wait()
            await run(phase, turn)

        setattr(steps, "run", held)  # noqa: B010 - a method of one object

    def begin(self, phase: str) -> None:
        """Have drivers wait when they come to a phase; those who wait now go on."""
        may_go_on = self._may_go_on
        self._phase = phase
        self._reached, self._may_go_on = asyncio.Event(), asyncio.Event()
        may_go_on.set()

    def end(self) -> None:
        """Hold nobody any more."""
        self.begin("")

    async def reached(self, wait_s: float = LONG_S) -> None:
        """Wait until a driver is held."""
        async with asyncio.timeout(wait_s):
            await self._reached.wait()


class Stage:
    """Processes on one store, and where the one that drives is held."""

    def __init__(self, runtime: Runtime, table: Table) -> None:
        self.runtime = runtime
        self.shelf = Shelf(runtime)
        self.members: dict[str, Member] = {}
        self.troubles: dict[str, Trouble] = {}
        """Of stores, by their URLs."""
        self._table = table
        self._hold = Hold()

    async def open_store(self, url: str) -> MetadataStore:
        """Another handle on a store."""
        trouble = self.troubles.setdefault(url, Trouble())
        trouble.meet()
        return TroubledStore(await self.shelf.open(url), trouble)

    async def have_a_tenant(self) -> None:
        """Without any, topics would be blamed on a configuration store of its own."""
        await self.anybody.store.put("/admin/policies/t", b"{}")

    async def join(
        self, name: str, url: str = SOURCE_URL, open_store: Opener | None = None
    ) -> Member:
        """Start a process; it is where the present phase wants it when this returns."""
        opener = self.open_store if open_store is None else open_store
        member = await Member.open(self.runtime, name, url, opener, failed, table=self._table)
        self._hold.take(member.replaceable.steps)
        self.members[name] = member
        return member

    @property
    def anybody(self) -> Member:
        """One of those who live."""
        return next(iter(self.members.values()))

    @property
    def operation(self) -> Operation:
        """What people ask of a process."""
        replaceable = self.anybody.replaceable
        return Operation(replaceable.steps, replaceable.journal, self.runtime.entropy)

    async def start(self, target: str = TARGET_URL) -> State:
        """Have the store be replaced."""
        return await self.operation.start({"target": target}, "somebody")

    async def ask(self, verb: Verb) -> State:
        """Ask for something more."""
        return await self.operation.ask(verb, "somebody")

    async def until(self, *phases: str, wait_s: float = LONG_S) -> State:
        """Wait for a phase; an attempt that comes to another end is not waited for."""
        return await self.anybody.until(*phases, wait_s=wait_s)

    def hold(self, phase: str) -> None:
        """Have drivers wait when they come to a phase; those who wait now go on."""
        self._hold.begin(phase)

    async def reach(self, phase: str, target: str = TARGET_URL) -> None:
        """Start, and wait until the driver waits in a phase."""
        self.hold(phase)
        await self.start(target)
        await self.until_held()

    async def until_held(self, wait_s: float = LONG_S) -> None:
        """Wait until the driver waits."""
        await self._hold.reached(wait_s)

    def go_on(self) -> None:
        """Hold nobody any more."""
        self._hold.end()

    async def switch(self, target: str = TARGET_URL) -> State:
        """Have everybody be on the target."""
        await self.start(target)
        state = await self.until("switched")
        await self.all_on("target")
        return state

    async def all_on(self, name: str) -> None:
        """Wait until everybody is on one of the two stores, and writes go on."""
        members = self.members.values()
        await until(
            lambda: all(m.store.route.name == name and not m.store.gate.closed for m in members)
        )

    async def until_reported(self, phase: str) -> None:
        """Wait until everybody has reported a phase."""
        async with asyncio.timeout(LONG_S):
            while True:
                reports = (await self.operation.status()).reports
                if [report.phase for report in reports] == [phase] * len(self.members):
                    return
                await asyncio.sleep(0.005)

    async def driver(self) -> str:
        """The name of the process that drives."""
        state = await self.anybody.replaceable.journal.read()
        assert state is not None
        return next(name for name in self.members if state.driver.startswith(f"{name}-"))

    async def end(self, name: str) -> None:
        """End a process; nothing more is heard of it."""
        await self.members.pop(name).close()

    async def close(self) -> None:
        """End everything."""
        self.go_on()
        for name in list(self.members):
            await self.end(name)
        await self.shelf.close()


@asynccontextmanager
async def staged(
    *names: str, table: Table | None = None, runtime: Runtime | None = None
) -> AsyncIterator[Stage]:
    """Some processes that use `memory:source`."""
    stage = Stage(runtime or real_runtime(), table or TABLE.holding_for(LONG_S))
    try:
        for name in names:
            await stage.join(name)
        yield stage
    finally:
        await stage.close()


async def lasting(store: MetadataStore) -> dict[str, tuple[Any, ...]]:
    """What a copy of a store must have, too."""
    return {
        record.path: (record.value, record.native_version, record.next_sequence, record.indexes)
        async for record in store.export("/")
        if record.session is None and not record.path.startswith("/anabranch/migrations")
    }
