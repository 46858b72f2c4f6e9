"""What follows from an event: `advance(table, state, event)`. Pure.

Whoever writes a journal writes what this returned, on the condition that the journal is still the
one that was read; so of two events that meet, the second is judged by what the first has made.
"""

from dataclasses import replace
from enum import Enum
from typing import assert_never

from anabranch.errors import ConflictError, Fenced
from anabranch.metadata.announced import Announced
from anabranch.migrations.engine.limits import ERROR_CHARS_MAX, TRAIL_LINES_MAX
from anabranch.migrations.engine.state import (
    Asked,
    Event,
    Kept,
    Line,
    MembersChanged,
    Noted,
    Started,
    State,
    StepDone,
    StepFailed,
    TookOver,
)
from anabranch.migrations.engine.table import Phase, Table, Verb


class Effect(Enum):
    """What the driver does once the state is durable."""

    STOP = "stop the step"
    RUN = "run the step"
    LET_GO = "let go of the lock"


class Refused(ConflictError):
    """The operation is not in a state in which this can be asked of it; nothing was changed."""


Advance = tuple[State, tuple[Effect, ...]]
DriversOwn = StepDone | StepFailed | Kept | Noted | MembersChanged
"""What only the process that drives can bring about."""


def advance(table: Table, state: State | None, event: Event, at_ms: int) -> Advance:
    """The next state and what to do in it. An equal state means that nothing has to be written.

    Raises:
        Refused: if the event does not fit.
        Fenced: if it comes from a driver that was replaced, or is about a phase that is over.
    """
    if isinstance(event, Started):
        return _start(table, state, event, at_ms)
    if state is None:
        raise Refused("no operation was started")
    phase = table[state.phase]
    match event:
        case TookOver():
            return _take_over(table, state, phase, event, at_ms)
        case Asked():
            return _ask(table, state, phase, event, at_ms)
        case StepDone() | StepFailed() | Kept() | Noted() | MembersChanged():
            _check_epoch(state, event)
            return _drive(table, state, phase, event, at_ms)
        case _:
            assert_never(event)


def _start(table: Table, state: State | None, event: Started, at_ms: int) -> Advance:
    number, epoch, serial = 1, 1, 1
    if state is not None:
        check_over(table, state)
        before = state.announced
        number, epoch, serial = before.number + 1, before.epoch + 1, before.serial + 1
    announced = Announced(event.attempt, number, epoch, table.first, event.parameters, serial)
    started = State(announced, expected=event.expected, figures=event.figures, entered_ms=at_ms)
    return _noted(started, at_ms, event.who, "start"), (Effect.RUN,)


def check_over(table: Table, state: State) -> None:
    """Make sure that another attempt may start.

    Raises:
        Refused: if the one there is has not ended, or has ended so that something is to be done.
    """
    phase = table[state.phase]
    if phase.first_do:
        raise Refused(f"attempt {state.announced.attempt} is {state.phase}: {phase.first_do} first")
    if not phase.ends:
        raise Refused(
            f"attempt {state.announced.attempt} is {state.phase}: "
            "it must end before another one starts"
        )


def _take_over(table: Table, state: State, phase: Phase, event: TookOver, at_ms: int) -> Advance:
    if phase.ends:
        raise Refused(f"attempt {state.announced.attempt} is {state.phase}: nothing to drive")
    announced = replace(state.announced, epoch=state.announced.epoch + 1)
    state = replace(state, announced=announced, driver=event.who)
    if phase.new_driver_fails_it:
        why = f"its driver was replaced by {event.who} while writes waited"
        state = _held(phase, state, at_ms)
        return _go(table, state, phase.failure, at_ms, event.who, "take over", why, error=why)
    effects = () if state.paused else (Effect.RUN,)
    return _noted(_held(phase, state, at_ms), at_ms, event.who, "take over"), effects


def _check_epoch(state: State, event: DriversOwn) -> None:
    announced = state.announced
    if event.epoch != announced.epoch:
        raise Fenced(
            f"{state.driver} drives attempt {announced.attempt} with epoch {announced.epoch}: "
            f"what epoch {event.epoch} did counts no more"
        )
    if not isinstance(event, MembersChanged) and event.serial != announced.serial:
        raise Fenced(f"attempt {announced.attempt} is {announced.phase} by now")


def _drive(
    table: Table,
    state: State,
    phase: Phase,
    event: DriversOwn,
    at_ms: int,
) -> Advance:
    who = state.driver
    match event:
        case Kept():
            return replace(state, checkpoint=event.checkpoint), ()
        case Noted():
            why = event.why[:ERROR_CHARS_MAX]
            if event.one_way:
                if state.one_way:
                    return state, ()
                state = replace(state, one_way=why)
            return _noted(state, at_ms, who, event.what, why), ()
        case MembersChanged():
            if event.expected == state.expected:
                return state, ()
            why = _difference(state.expected, event.expected)
            state = replace(state, expected=event.expected)
            return _noted(state, at_ms, who, "participants", why), ()
        case StepDone():
            if state.paused:
                raise Refused(f"attempt {state.announced.attempt} is paused")
            if not phase.done:
                raise Refused(f"{phase.name} ends by a verb alone")
            state = _held(phase, state, at_ms, event.took_ms)
            return _go(table, state, phase.done, at_ms, who, "done")
        case StepFailed():
            if not phase.failure:
                raise Refused(f"{phase.name} cannot fail, only be tried again")
            why = event.why[:ERROR_CHARS_MAX]
            state = _held(phase, state, at_ms, event.took_ms)
            return _go(table, state, phase.failure, at_ms, who, "failure", why, error=why)


def _ask(table: Table, state: State, phase: Phase, event: Asked, at_ms: int) -> Advance:
    verb, who = event.verb, event.who
    if verb.value == state.asked and not phase.ends:
        return state, ()
    if verb is Verb.PAUSE and state.paused:
        return state, ()
    if verb is Verb.RESUME and not phase.ends:
        if not state.paused:
            return state, ()
        state = replace(state, paused=False)
        return _noted(state, at_ms, who, "resume", event.why), (Effect.RUN,)
    if verb is Verb.PAUSE and phase.pausable:
        state = replace(state, paused=True)
        return _noted(state, at_ms, who, "pause", event.why), (Effect.STOP,)
    new = {
        Verb.ABORT: phase.abort,
        Verb.ROLLBACK: phase.rollback,
        Verb.FINALIZE: phase.finalize,
    }.get(verb, "")
    if not new:
        raise Refused(f"attempt {state.announced.attempt} is {phase.name}: {_instead(phase)}")
    if verb is Verb.ROLLBACK and state.one_way:
        raise Refused(f"attempt {state.announced.attempt} has no way back: {state.one_way}")
    state = replace(_held(phase, state, at_ms), asked=verb.value, error="")
    return _go(table, state, new, at_ms, who, verb.value, event.why)


def _instead(phase: Phase) -> str:
    if phase.ends:
        return "it is over"
    verbs = [verb for verb in ("abort", "rollback", "finalize") if getattr(phase, verb)]
    verbs += ["pause"] if phase.pausable else []
    return f"only {' or '.join(verbs)} can be asked now" if verbs else "wait for its end"


def _go(
    table: Table,
    state: State,
    new: str,
    at_ms: int,
    who: str,
    what: str,
    why: str = "",
    *,
    error: str = "",
) -> Advance:
    announced = replace(state.announced, phase=new, serial=state.announced.serial + 1)
    phase = table[new]
    rests = phase.ends or not phase.done
    state = replace(
        state,
        announced=announced,
        paused=False,
        asked="" if rests or error else state.asked,
        error=error or state.error,
        entered_ms=at_ms,
        held_from_ms=at_ms,
    )
    then = Effect.LET_GO if phase.ends else Effect.RUN
    return _noted(state, at_ms, who, what, why), (Effect.STOP, then)


def _held(phase: Phase, state: State, at_ms: int, took_ms: int | None = None) -> State:
    """Count how long writes have waited in a phase that ends, or whose driver does.

    Who drove from its begin to its end has measured it. Else two wall clocks have to do; one that
    was set back counts for nothing.
    """
    if not phase.holds_writes:
        return state
    by_wall_ms = max(0, at_ms - state.held_from_ms)
    more_ms = by_wall_ms if took_ms is None else took_ms
    return replace(state, held_ms=state.held_ms + more_ms, held_from_ms=at_ms)


def _noted(state: State, at_ms: int, who: str, what: str, why: str = "") -> State:
    line = Line(at_ms, who, what, state.phase, state.announced.epoch, why)
    trail = (*state.trail, line)
    dropped = max(0, len(trail) - TRAIL_LINES_MAX)
    return replace(state, trail=trail[dropped:], trail_dropped=state.trail_dropped + dropped)


def _difference(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    gone = [f"{name} is gone" for name in before if name not in after]
    joined = [f"{name} has joined" for name in after if name not in before]
    return ", ".join(gone + joined)
