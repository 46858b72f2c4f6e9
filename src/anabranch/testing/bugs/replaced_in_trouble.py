"""Planted bugs of replacing a metadata store while processes, drivers and stores fail."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import Announced, write_report
from anabranch.metadata.store import MetadataStore, Node, Stat
from anabranch.metadata.switchable.postures import Posture
from anabranch.metadata.switchable.succession import succeed
from anabranch.migrations.engine.driver import Driver
from anabranch.migrations.engine.machine import Effect
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.participant import Participant
from anabranch.migrations.engine.state import Line, State, StepDone, StepFailed
from anabranch.migrations.engine.steps import Plan, Turn
from anabranch.migrations.engine.table import Table
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.migrations.freeze_copy.tail import Tail
from anabranch.testing.planted import original, planted


@planted(
    "joiners_do_not_look_first", target="anabranch.migrations.engine.participant:Participant.join"
)
async def joiners_do_not_look_first(self: Participant) -> None:
    """A process that starts works before it knows in which phase the others are."""
    plain: Any = original("joiners_do_not_look_first")
    self._tasks.spawn("join", plain(self))


@planted("own_nodes_become_lasting", target="anabranch.metadata.switchable.part:make_anew")
async def own_nodes_become_lasting(
    node: Node,
    here: MetadataStore,
    there: MetadataStore,
    is_still_ours: Callable[[str], Awaitable[bool]],
) -> Stat | None:
    """What a process makes anew outlives it."""
    del here, is_still_ours
    return await there.put(node.stat.path, node.value)


@planted(
    "registration_is_made_once",
    target="anabranch.migrations.engine.participant:Participant._take_part",
)
async def registration_is_made_once(self: Participant, arrived: "asyncio.Future[None]") -> None:
    """A process whose session ended is not known any more, as in Pulsar."""
    lock = await self._locks.acquire_when_free(self._path, write_report(self._me))
    self._registered = lock
    await self._follow(lock, arrived)


@planted("trouble_is_final", target="anabranch.migrations.engine.driver:may_pass")
def trouble_is_final(error: AnabranchError) -> bool:
    """The first request without an answer ends an attempt."""
    del error
    return False


@planted("deadlines_do_not_count", target="anabranch.migrations.engine.driver:Driver._do")
async def deadlines_do_not_count(self: Driver, lock: Any, state: State) -> StepDone | StepFailed:
    """A phase lasts for as long as it lasts, whoever waits."""
    table = self._journal.table
    rows = [replace(row, deadline_s=10_000.0) for row in table.phases.values()]
    self._journal.table = Table(table.first, *rows)
    plain: Any = original("deadlines_do_not_count")
    done: StepDone | StepFailed = await plain(self, lock, state)
    return done


@planted("deadlines_are_of_the_wall", target="anabranch.migrations.engine.driver:Driver._do")
async def deadlines_are_of_the_wall(self: Driver, lock: Any, state: State) -> StepDone | StepFailed:
    """How long a phase lasts is read from the time of day."""
    announced, phase = state.announced, self._journal.table[state.phase]
    took_ms = abs(self._journal._clock.wall_ms() - state.entered_ms)
    if phase.failure and took_ms > (phase.deadline_s or 0.0) * 1000:
        return StepFailed(announced.epoch, announced.serial, "it took too long")
    plain: Any = original("deadlines_are_of_the_wall")
    done: StepDone | StepFailed = await plain(self, lock, state)
    return done


@planted(
    "failed_attempt_marks_the_target",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy.close",
)
async def failed_attempt_marks_the_target(self: FreezeCopy) -> None:
    """A target is said to be in use although nothing came of the attempt."""
    turn = self._turn
    if self._target is not None and turn is not None and turn.announced.phase == "failing":
        await succeed(self._target.store, self._source.url, turn.announced.attempt)
    plain: Any = original("failed_attempt_marks_the_target")
    await plain(self)


@planted(
    "silent_target_is_turned_to",
    target="anabranch.migrations.freeze_copy.steps:generation_of_store",
)
async def silent_target_is_turned_to(store: MetadataStore) -> int:
    """Nobody asks whether the target is still there before everybody turns to it."""
    del store
    return 0


@planted("full_targets_are_taken", target="anabranch.migrations.freeze_copy.steps:occupied_by")
async def full_targets_are_taken(*_: object, **__: object) -> list[str]:
    """Whatever is in a target is overwritten and removed."""
    return []


@planted("abort_waits_for_the_phase", target="anabranch.migrations.engine.machine:_ask")
def abort_waits_for_the_phase(
    table: Table, state: State, phase: Any, event: Any, at_ms: int
) -> tuple[State, tuple[Effect, ...]]:
    """What somebody asks for is noted, and nothing comes of it."""
    line = Line(at_ms, event.who, event.verb.value, state.phase, state.announced.epoch)
    return replace(state, asked=event.verb.value, trail=(*state.trail, line)), ()


def _posture(name: str, announced: Announced | None) -> Posture:
    plain: Any = original(name)
    found: Posture = plain(announced)
    return found


@planted("copying_holds_writes", target="anabranch.metadata.switchable.part:posture_of")
def copying_holds_writes(announced: Announced | None) -> Posture:
    """Writes wait from the first node that is copied to the last, as in Pulsar."""
    found = _posture("copying_holds_writes", announced)
    copies = announced is not None and announced.phase in ("copying", "tailing", "verifying")
    return replace(found, holds=True) if copies else found


@planted("early_birds_write", target="anabranch.metadata.switchable.part:posture_of")
def early_birds_write(announced: Announced | None) -> Posture:
    """Who has turned to the target writes there while others still read the source."""
    found = _posture("early_birds_write", announced)
    turns = announced is not None and announced.phase == "switching"
    return replace(found, holds=False) if turns else found


@planted("tail_is_not_waited_for", target="anabranch.migrations.freeze_copy.tail:Tail.catch_up")
async def tail_is_not_waited_for(self: Tail, *, hurries: bool = True) -> int:
    """Writes have to wait however much is left to copy."""
    plain: Any = original("tail_is_not_waited_for")
    await plain(self, hurries=hurries)
    return 0


@planted(
    "plan_reserves_the_target",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy._found_at",
)
async def plan_reserves_the_target(self: FreezeCopy, url: str) -> list[str]:
    """Who only asks what would be done leaves a note in the target."""
    plain: Any = original("plan_reserves_the_target")
    found: list[str] = await plain(self, url)
    target = await self._open_store(url)
    await target.put("/anabranch/planned", b"")
    await target.close()
    return found


@planted(
    "plan_is_silent_about_losses",
    target="anabranch.migrations.freeze_copy.planning:Survey.notes",
)
def plan_is_silent_about_losses(_self: object) -> list[str]:
    """Nobody is told what a target cannot hold."""
    return []


@planted("progress_is_not_shown", target="anabranch.migrations.engine.status:Status._progress")
def progress_is_not_shown(_self: object) -> Mapping[str, object] | None:
    """Nobody sees how far it is."""
    return None


@planted(
    "leftovers_are_in_the_way",
    target="anabranch.migrations.freeze_copy.reservation:_came_to_nothing",
)
async def leftovers_are_in_the_way(*_: object) -> bool:
    """A target that was tried once cannot be used again."""
    return False


@planted(
    "older_builds_are_not_asked", target="anabranch.migrations.engine.operation:Operation.plan"
)
async def older_builds_are_not_asked(self: Operation, parameters: Mapping[str, str]) -> Plan:
    """A store is replaced under processes that do not know all of it."""
    return await self._steps.plan(parameters)


@planted("aborts_open_the_gate_late", target="anabranch.metadata.switchable.part:SwitchPart.enter")
async def aborts_open_the_gate_late(self: Any, announced: Announced) -> None:
    """Whoever hears of an abort takes its time."""
    if announced.phase == "aborting":
        await asyncio.sleep(2.0)
    await original("aborts_open_the_gate_late")(self, announced)


@planted(
    "all_is_compared_while_writes_wait",
    target="anabranch.migrations.freeze_copy.following:complete",
)
async def all_is_compared_while_writes_wait(tail: Tail, *, some_write: bool = False) -> None:
    """What was compared already is compared once more, whoever waits."""
    await tail.verify()
    await original("all_is_compared_while_writes_wait")(tail, some_write=some_write)


@planted(
    "way_back_is_compared_while_writes_wait",
    target="anabranch.migrations.freeze_copy.steps:FreezeCopy._wait_for_present",
)
async def way_back_is_compared_while_writes_wait(self: FreezeCopy, turn: Turn) -> None:
    """A rollback looks through everything once more, whoever waits."""
    tail = await self._tail_back(turn)
    await tail.verify()
    plain: Any = original("way_back_is_compared_while_writes_wait")
    await plain(self, turn)
