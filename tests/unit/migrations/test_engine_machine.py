"""Single decisions of the engine; whole stories are in `tests/scenarios`."""

import pytest

from anabranch.errors import Fenced
from anabranch.metadata.announced import Announced
from anabranch.migrations.engine import machine
from anabranch.migrations.engine.state import Asked, Noted, State, StepDone, TookOver
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE


def state_in(phase: str, *, paused: bool = False) -> State:
    return State(Announced("one", 1, 4, phase, {}, 7), driver="ash", paused=paused)


GIVEN_UP = [name for name, row in TABLE.phases.items() if row.new_driver_fails_it]


@pytest.mark.parametrize("name", GIVEN_UP)
@pytest.mark.broken_by("new_driver_goes_on_with_a_freeze")
def test_a_new_driver_gives_up_what_holds_writes(name: str) -> None:
    after, _ = machine.advance(TABLE, state_in(name), TookOver("birch"), at_ms=0)
    assert after.phase == TABLE[name].failure
    assert not TABLE[after.phase].holds_writes
    assert after.error == "its driver was replaced by birch while writes waited"
    assert (after.announced.epoch, after.announced.serial) == (5, 8)


def test_a_new_driver_goes_on_where_nothing_leads_back_any_more() -> None:
    holding = {name for name, row in TABLE.phases.items() if row.holds_writes}
    assert holding - {*GIVEN_UP} == {"leading"}
    after, effects = machine.advance(TABLE, state_in("leading"), TookOver("birch"), at_ms=0)
    assert (after.phase, after.error, effects) == ("leading", "", (machine.Effect.RUN,))
    assert TABLE["leading"].failure == TABLE["leading"].done == "switched"


@pytest.mark.broken_by("rollback_leaves_others_behind")
def test_a_rollback_is_refused_once_there_is_no_way_back() -> None:
    note = Noted(4, 7, "leads", "bookie b1 takes part", one_way=True)
    one_way, _ = machine.advance(TABLE, state_in("switched"), note, at_ms=5)
    assert (one_way.trail[-1].what, one_way.trail[-1].why) == ("leads", "bookie b1 takes part")
    assert machine.advance(TABLE, one_way, note, at_ms=6)[0] == one_way
    with pytest.raises(machine.Refused, match="has no way back: bookie b1 takes part"):
        machine.advance(TABLE, one_way, Asked("alice", Verb.ROLLBACK), at_ms=7)
    assert machine.advance(TABLE, one_way, Asked("alice", Verb.FINALIZE), at_ms=7)[0].phase == (
        "finalizing"
    )
    plain, _ = machine.advance(TABLE, state_in("switched"), Noted(4, 7, "x", "y"), at_ms=5)
    assert machine.advance(TABLE, plain, Asked("alice", Verb.ROLLBACK), at_ms=7)[0].phase == (
        "reverifying"
    )
    with pytest.raises(Fenced):
        machine.advance(TABLE, state_in("switched"), Noted(3, 7, "x", "y"), at_ms=5)


@pytest.mark.broken_by("pause_is_not_noticed")
def test_a_step_that_ends_after_a_pause_does_not_lead_on() -> None:
    with pytest.raises(machine.Refused, match="is paused"):
        machine.advance(TABLE, state_in("verifying", paused=True), StepDone(4, 7), at_ms=0)
