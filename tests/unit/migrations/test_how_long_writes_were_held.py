"""How long writes waited is right whatever clocks say, and however long the trail is."""

import asyncio
from dataclasses import replace
from typing import NamedTuple

import pytest

from anabranch.metadata.announced import Announced
from anabranch.migrations.engine.document import Written, read_journal, write_journal
from anabranch.migrations.engine.limits import TRAIL_LINES_MAX
from anabranch.migrations.engine.machine import advance
from anabranch.migrations.engine.state import (
    Asked,
    Event,
    MembersChanged,
    Noted,
    State,
    StepDone,
    StepFailed,
    TookOver,
)
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import staged

EPOCH = 4
HOUR_MS = 3_600_000
STEP_S = 0.3


def state_in(phase: str, held_from_ms: int = 0) -> State:
    head = Announced("one", 1, EPOCH, phase, {}, 7)
    return State(head, driver="ash", held_ms=50, held_from_ms=held_from_ms)


def after(state: State, event: Event, at_ms: int = 0) -> State:
    return advance(TABLE, state, event, at_ms)[0]


@pytest.mark.goal("454.A41", part="holds", broken_by="holds_are_of_the_wall")
def test_what_a_driver_has_measured_counts_whatever_the_time_of_day_is() -> None:
    state = state_in("halting", held_from_ms=9 * HOUR_MS)
    for took_ms, at_ms in ((700, HOUR_MS), (120, 0), (80, 5 * HOUR_MS), (30, 1), (9, 2 * HOUR_MS)):
        state = after(state, StepDone(EPOCH, state.announced.serial, took_ms), at_ms)
    assert state.phase == "leading"
    assert state.held_ms == 50 + 120 + 80 + 30 + 9, "what was before the hold is none of it"
    failed = after(state, StepFailed(EPOCH, state.announced.serial, "no", 400), 7 * HOUR_MS)
    assert (failed.phase, failed.held_ms) == ("switched", 50 + 120 + 80 + 30 + 9 + 400)


@pytest.mark.goal("454.A41", part="holds", broken_by="taken_over_holds_do_not_count")
@pytest.mark.parametrize(
    ("phase", "event"),
    [("freezing", TookOver("birch")), ("rejoining", Asked("alice", Verb.ABORT))],
)
def test_what_nobody_has_measured_is_by_wall_clocks_and_never_less_than_nothing(
    phase: str, event: Event
) -> None:
    assert after(state_in(phase, held_from_ms=1_000), event, 1_400).held_ms == 450
    assert after(state_in(phase, held_from_ms=1_000), event, 300).held_ms == 50


@pytest.mark.goal("454.A41", part="holds", broken_by="taken_over_holds_do_not_count")
def test_a_hold_that_a_second_driver_goes_on_with_counts_once() -> None:
    state = after(state_in("leading", held_from_ms=1_000), TookOver("birch"), 1_300)
    state = after(state, TookOver("cedar"), 1_700)
    state = after(state, StepDone(EPOCH + 2, state.announced.serial, 25), 9_000)
    assert (state.phase, state.held_ms) == ("switched", 50 + 300 + 400 + 25)


def test_a_long_trail_forgets_no_hold() -> None:
    state = state_in("freezing")
    for number in range(TRAIL_LINES_MAX + 5):
        state = after(state, MembersChanged(EPOCH, (f"p{number}",)))
    state = after(state, Noted(EPOCH, state.announced.serial, "says", "so"))
    state = after(state, StepFailed(EPOCH, state.announced.serial, "no", 1_234))
    assert all(line.phase != "halting" for line in state.trail)
    again = read_journal(write_journal(Written(state, "w")), TABLE).state
    assert again.held_ms == state.held_ms == 50 + 1_234


class Shifted:
    """A wall clock that goes wrong more and more; the other one does not."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._asked = 0

    def wall_ms(self) -> int:
        self._asked += 1
        return self._clock.wall_ms() + (-1) ** self._asked * self._asked * HOUR_MS

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


class Told(NamedTuple):
    by_the_journal_s: float
    by_the_gate_s: float


async def held_in_freezing(runtime: Runtime) -> Told:
    """Hold an attempt up while writes wait, and look how long they did."""
    wrong = replace(runtime, clock=Shifted(runtime))
    async with staged("ash", runtime=wrong) as stage:
        await stage.reach("freezing")
        began_s = runtime.clock.monotonic_s()
        await asyncio.sleep(STEP_S)
        stage.go_on()
        await stage.all_on("target")
        await stage.until("switched")
        waited_s = runtime.clock.monotonic_s() - began_s
        status = (await stage.operation.status()).as_json()
        return Told(status["held_ms"] / 1000, waited_s)


def test_the_status_tells_what_writers_have_waited() -> None:
    async def main(world: World) -> Told:
        found: Told = await world.process("all").run(held_in_freezing)
        return found

    told = World(1).run(main, time_limit_s=600.0)
    assert told.by_the_journal_s >= STEP_S
    assert told.by_the_journal_s == pytest.approx(told.by_the_gate_s, abs=STEP_S)
