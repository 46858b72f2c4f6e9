"""Whatever happens to an operation, in whatever order, its journal only goes forward."""

import hypothesis.strategies as st
from hypothesis import given

from anabranch.errors import ConflictError
from anabranch.migrations.engine.document import Written, read_journal, write_journal
from anabranch.migrations.engine.machine import Effect, advance
from anabranch.migrations.engine.state import (
    Asked,
    Event,
    Kept,
    MembersChanged,
    Started,
    State,
    StepDone,
    StepFailed,
    TookOver,
)
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE

NAMES = st.sampled_from(["ash", "birch"])
ARROWS = {(arrow.old, arrow.new) for arrow in TABLE.transitions()}
KINDS = st.sampled_from(["start", "take over", "done", "fail", "keep", "members", "ask"])


@st.composite
def draws(draw: st.DrawFn) -> tuple[str, str, Verb, int]:
    """What happens, who does it, and how far behind its epoch is."""
    behind = draw(st.sampled_from([0, 0, 0, 0, 1]))
    return draw(KINDS), draw(NAMES), draw(st.sampled_from(Verb)), behind


def event_of(drawn: tuple[str, str, Verb, int], state: State | None) -> Event:
    kind, who, verb, behind = drawn
    epoch = 0 if state is None else state.announced.epoch - behind
    serial = 0 if state is None else state.announced.serial
    events: dict[str, Event] = {
        "start": Started(who, "try", {}, ("ash",)),
        "take over": TookOver(who),
        "done": StepDone(epoch, serial),
        "fail": StepFailed(epoch, serial, "it broke"),
        "keep": Kept(epoch, serial, {"at": who}),
        "members": MembersChanged(epoch, (who,)),
        "ask": Asked(who, verb),
    }
    return events[kind]


def check_forward(before: State, after: State, event: Event) -> None:
    old, new = before.announced, after.announced
    assert new.epoch >= old.epoch
    assert new.serial - old.serial in (0, 1)
    moved = new.serial != old.serial
    if moved and not isinstance(event, Started):
        assert (old.phase, new.phase) in ARROWS
    if not moved:
        assert new.phase == old.phase
    assert (new.epoch > old.epoch) == isinstance(event, TookOver | Started)
    if moved and not isinstance(event, Started):
        assert len(after.trail) == len(before.trail) + 1
    assert not (after.paused and TABLE[new.phase].holds_writes)


@given(st.lists(draws(), max_size=60))
def test_a_journal_goes_forward_by_the_table_with_a_line_for_each_step(
    happenings: list[tuple[str, str, Verb, int]],
) -> None:
    state: State | None = None
    for drawn in happenings:
        event = event_of(drawn, state)
        try:
            after, effects = advance(TABLE, state, event, at_ms=0)
        except ConflictError:
            continue
        if state is not None:
            check_forward(state, after, event)
        assert not (after.paused and Effect.RUN in effects)
        assert (Effect.LET_GO in effects) <= TABLE[after.phase].ends
        assert read_journal(write_journal(Written(after, "w")), TABLE).state == after
        state = after
