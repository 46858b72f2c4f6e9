"""Drivers and participants on one store: barriers, deadlines, late joiners, pauses, take-over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from anabranch.errors import InputError, Unreachable
from anabranch.metadata.announced import PARTICIPATION_LEVEL, Announced, Report
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.migrations.engine.driver import Driver
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.operation import Blocked, Operation
from anabranch.migrations.engine.participant import Participant
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.steps import Blocker, Plan, Turn
from anabranch.migrations.engine.table import Outward, Phase, Table, Verb
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

KIND = "toy"


def table(gather_s: float) -> Table:
    """Somebody who never reports is found out soon, or everybody has all the time they need."""
    return Table(
        "gathering",
        Phase(
            name="gathering",
            words="",
            outward=Outward.PREPARATION,
            barrier=True,
            done="working",
            failure="failed",
            abort="failed",
            deadline_s=gather_s,
        ),
        Phase(
            name="working",
            words="",
            outward=Outward.COPYING,
            done="done",
            failure="failed",
            abort="failed",
            pausable=True,
        ),
        Phase(name="done", words="", outward=Outward.COMPLETED, ends=True),
        Phase(name="failed", words="", outward=Outward.FAILED, ends=True),
    )


def failed(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name}: {error!r}") from error


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.005)


class ToySteps:
    """Works until it is let go, and counts how often it began."""

    kind = KIND

    def __init__(self, gather_s: float) -> None:
        self.table = table(gather_s)
        self.may_end = asyncio.Event()
        self.began: list[Mapping[str, Any]] = []
        """The checkpoint of each run of `working`."""
        self.meets: list[Exception] = []
        self.blockers: list[Blocker] = []

    async def plan(self, parameters: Mapping[str, str]) -> Plan:
        return Plan(parameters, blockers=self.blockers)

    async def led(self, _state: State) -> list[Report]:
        return []

    async def run(self, phase: str, turn: Turn) -> None:
        if phase == "working":
            self.began.append(turn.checkpoint)
            if self.meets:
                raise self.meets.pop(0)
            await turn.keep({"runs": len(self.began)})
            await self.may_end.wait()


class ToyPart:
    """Enters every phase, or waits, or cannot."""

    lag = 0

    def __init__(self, error: str = "", *, waits: bool = False) -> None:
        self.entered: list[str] = []
        self._error = error
        self._waits = waits

    async def registered(self) -> None:
        """See `Part.registered`."""

    async def enter(self, announced: Announced) -> None:
        if self._waits:
            await asyncio.get_running_loop().create_future()
        if self._error:
            raise InputError(self._error)
        self.entered.append(announced.phase)


class Cluster:
    """Processes with handles of their own on one store."""

    def __init__(self, runtime: Runtime, base: MemoryStore, gather_s: float) -> None:
        self.runtime = runtime
        self.base = base
        self.steps = ToySteps(gather_s)
        self.journal = Journal(base, runtime, KIND, self.steps.table)
        self.operation = Operation(self.steps, self.journal, runtime.entropy)
        self._living: list[tuple[LocalHandle, Tasks]] = []

    async def process(self) -> tuple[LocalHandle, Tasks]:
        made = (await self.base.handle(), Tasks(failed))
        self._living.append(made)
        return made

    async def driver(self, name: str) -> tuple[LocalHandle, Tasks]:
        handle, tasks = await self.process()
        journal = Journal(handle, self.runtime, KIND, self.steps.table)
        Driver(self.steps, journal, self.runtime.clock, tasks, name).start()
        return handle, tasks

    async def participant(
        self, name: str, part: ToyPart, level: int = PARTICIPATION_LEVEL
    ) -> tuple[LocalHandle, Tasks]:
        handle, tasks = await self.process()
        me = Report(name, "broker", "h", "1", level)
        joining = Participant(handle, self.runtime.clock, tasks, KIND, me, part)
        tasks.spawn("join", joining.join())

        async def is_known() -> bool:
            return name in [report.id for report in (await self.operation.status()).reports]

        await eventually(is_known)
        return handle, tasks

    async def until(self, *phases: str) -> State:
        async def is_in_one() -> bool:
            state = await self.journal.read()
            return state is not None and state.phase in phases

        await eventually(is_in_one)
        state = await self.journal.read()
        assert state is not None
        return state

    async def end(self, process: tuple[LocalHandle, Tasks]) -> None:
        handle, tasks = process
        self._living.remove(process)
        await tasks.close()
        await handle.close()

    async def close(self) -> None:
        for process in list(self._living):
            await self.end(process)
        await self.base.close()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    runtime = real_runtime()
    cluster = Cluster(runtime, MemoryStore(runtime.clock), gather_s=60.0)
    yield cluster
    await cluster.close()


@pytest.fixture
async def hasty() -> AsyncIterator[Cluster]:
    """A cluster in which nobody is waited for long."""
    runtime = real_runtime()
    hasty = Cluster(runtime, MemoryStore(runtime.clock), gather_s=0.3)
    yield hasty
    await hasty.close()


async def test_phases_follow_each_other_when_everybody_is_there(cluster: Cluster) -> None:
    part = ToyPart()
    await cluster.participant("ash", part)
    await cluster.driver("birch")
    await cluster.operation.start({"target": "b"}, "alice")
    cluster.steps.may_end.set()
    state = await cluster.until("done")
    assert state.expected == ("ash",)
    assert state.checkpoint == {"runs": 1}
    assert [line.what for line in state.trail] == ["start", "take over", "done", "done"]

    async def is_told() -> bool:
        return part.entered[-1:] == ["done"]

    await eventually(is_told)


@pytest.mark.goal("rel.A7", part="engine", broken_by="old_reports_open_the_barrier")
@pytest.mark.goal("trap.U10", part="not ready", broken_by="old_reports_open_the_barrier")
async def test_who_does_not_get_ready_in_time_fails_the_attempt(hasty: Cluster) -> None:
    await hasty.participant("ash", ToyPart())
    await hasty.participant("cedar", ToyPart(waits=True))
    await hasty.driver("birch")
    await hasty.operation.start({}, "alice")
    hasty.steps.may_end.set()
    state = await hasty.until("failed", "done")
    assert (state.phase, hasty.steps.began) == ("failed", [])
    assert state.error.startswith("gathering took longer than 0.3 s: ")
    assert state.error.endswith("cedar did not report")


async def test_who_cannot_get_ready_fails_the_attempt_and_says_why(cluster: Cluster) -> None:
    await cluster.participant("ash", ToyPart("no route to b"))
    await cluster.driver("birch")
    await cluster.operation.start({}, "alice")
    state = await cluster.until("failed")
    assert state.error == "not everybody can be gathering: ash: no route to b"


@pytest.mark.goal("454.A5", part="barrier", broken_by="late_joiners_are_overlooked")
@pytest.mark.goal("rel.A9", part="engine", broken_by="late_joiners_are_overlooked")
@pytest.mark.goal("trap.U10", part="late joiner", broken_by="late_joiners_are_overlooked")
async def test_who_joins_in_the_middle_is_counted_in(hasty: Cluster) -> None:
    await hasty.participant("ash", ToyPart())
    await hasty.operation.start({}, "alice")
    await hasty.participant("late", ToyPart(waits=True))
    await hasty.driver("birch")
    hasty.steps.may_end.set()
    state = await hasty.until("failed", "done")
    assert state.phase == "failed"
    assert state.expected == ("ash", "late")
    assert "late did not report" in state.error


@pytest.mark.goal("rel.A6", part="engine", broken_by="the_dead_are_waited_for")
async def test_who_is_gone_is_waited_for_no_more(cluster: Cluster) -> None:
    await cluster.participant("ash", ToyPart())
    gone = await cluster.participant("cedar", ToyPart(waits=True))
    await cluster.operation.start({}, "alice")
    await cluster.end(gone)
    await cluster.driver("birch")
    cluster.steps.may_end.set()
    state = await cluster.until("done", "failed")
    assert (state.phase, state.error) == ("done", "")


async def test_errors_that_may_pass_are_tried_again_and_others_fail(cluster: Cluster) -> None:
    await cluster.driver("birch")
    cluster.steps.meets = [Unreachable("nobody there"), InputError("the copy differs at /a")]
    await cluster.operation.start({}, "alice")
    state = await cluster.until("failed")
    assert (state.error, len(cluster.steps.began)) == ("the copy differs at /a", 2)


async def test_a_pause_stops_the_step_and_the_next_driver_knows_where_it_was(
    cluster: Cluster,
) -> None:
    first = await cluster.driver("birch")
    await cluster.operation.start({}, "alice")

    async def has_kept() -> bool:
        return bool((await cluster.until("working")).checkpoint)

    await eventually(has_kept)
    await cluster.operation.ask(Verb.PAUSE, "alice")
    cluster.steps.may_end.set()
    await cluster.end(first)
    await cluster.driver("cedar")

    async def is_taken_over() -> bool:
        return (await cluster.until("working")).driver == "cedar"

    await eventually(is_taken_over)
    assert cluster.steps.began == [{}]
    await cluster.operation.ask(Verb.RESUME, "alice")
    await cluster.until("done")
    assert cluster.steps.began == [{}, {"runs": 1}]


async def test_a_blocked_start_names_everything_in_the_way(cluster: Cluster) -> None:
    cluster.steps.blockers = [Blocker("/a", "is too large")]
    await cluster.participant("old", ToyPart(), level=0)
    with pytest.raises(Blocked, match=r"/a: is too large; old: takes part with level 0 of 3"):
        await cluster.operation.start({}, "alice")
    assert await cluster.journal.read() is None


async def test_a_mistake_in_a_step_fails_the_attempt_and_nothing_else(cluster: Cluster) -> None:
    cluster.steps.meets = [AssertionError("a rate of nothing")]
    await cluster.driver("birch")
    await cluster.operation.start({"target": "b"}, "alice")
    state = await cluster.until("failed")
    assert state.error == "a mistake in this program: AssertionError: a rate of nothing"
    cluster.steps.may_end.set()
    await cluster.operation.start({"target": "b"}, "alice")
    await cluster.until("done")
