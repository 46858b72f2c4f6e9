"""Planted bugs of the migration engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anabranch.metadata.announced import Announced, Report
from anabranch.metadata.locks import Lock
from anabranch.metadata.store import Expected
from anabranch.migrations.engine.barrier import Barrier
from anabranch.migrations.engine.document import Written, write_journal
from anabranch.migrations.engine.driver import Driver
from anabranch.migrations.engine.journal import GuardSource, Journal
from anabranch.migrations.engine.machine import Advance
from anabranch.migrations.engine.state import Event, Started, State, StepDone, StepFailed, TookOver
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.table import Table
from anabranch.testing.planted import original, planted


@planted("phase_written_without_epoch", target="anabranch.migrations.engine.journal:Journal._write")
async def phase_written_without_epoch(
    self: Journal, written: Written, _version: Expected, _guard: GuardSource | None
) -> None:
    """The journal is overwritten whatever it has become meanwhile, as Pulsar does it."""
    await self.store.put(self.path, write_journal(written))


@planted("old_epoch_is_heard", target="anabranch.migrations.engine.machine:_check_epoch")
def old_epoch_is_heard(_state: State, _event: Any) -> None:
    """What a driver that was replaced says counts."""


@planted("second_start_replaces_the_first", target="anabranch.migrations.engine.machine:_start")
def second_start_replaces_the_first(
    table: Table, _state: State | None, event: Started, at_ms: int
) -> Advance:
    """A start does not look whether an attempt runs."""
    started: Advance = original("second_start_replaces_the_first")(table, None, event, at_ms)
    return started


@planted("operations_are_copied", target="anabranch.metadata.announced:stays_behind")
def operations_are_copied(_path: str) -> bool:
    """A copy has the documents of the operation that makes it."""
    return False


@planted("failed_check_goes_on", target="anabranch.migrations.engine.machine:_drive")
def failed_check_goes_on(
    table: Table, state: State, phase: Any, event: Event, at_ms: int
) -> Advance:
    """What a comparison finds is not a reason to stop."""
    if isinstance(event, StepFailed) and "differs" in event.why:
        event = StepDone(event.epoch, event.serial)
    driven: Advance = original("failed_check_goes_on")(table, state, phase, event, at_ms)
    return driven


@planted(
    "aborted_participant_stays_frozen", target="anabranch.migrations.engine.participant:_differs"
)
def aborted_participant_stays_frozen(told: Announced | None, now: Announced | None) -> bool:
    """A participant is deaf for the end of an attempt that came to nothing."""
    if now is not None and now.phase in ("aborting", "aborted", "failing", "failed"):
        return False
    differs: bool = original("aborted_participant_stays_frozen")(told, now)
    return differs


@planted("old_reports_open_the_barrier", target="anabranch.migrations.engine.barrier:barrier")
def old_reports_open_the_barrier(announced: Announced, reports: Sequence[Report]) -> Barrier:
    """A report counts whatever announcement it is about, as long as nobody complains."""
    failed = tuple((report.id, report.error) for report in reports if report.error)
    del announced
    return Barrier((), failed)


@planted(
    "new_driver_goes_on_with_a_freeze", target="anabranch.migrations.engine.machine:_take_over"
)
def new_driver_goes_on_with_a_freeze(
    table: Table, state: State, phase: Any, event: TookOver, at_ms: int
) -> Advance:
    """Writes wait on, from driver to driver."""
    patient = replace(phase, new_driver_fails_it=False)
    taken: Advance = original("new_driver_goes_on_with_a_freeze")(
        table, state, patient, event, at_ms
    )
    return taken


@planted(
    "crashed_driver_is_not_replaced", target="anabranch.migrations.engine.driver:Driver._is_running"
)
async def crashed_driver_is_not_replaced(self: Driver) -> bool:
    """A process drives only what nobody drove before, as a coordinator without a lease does."""
    state = await self._journal.read()
    return state is not None and not state.driver


@planted("new_driver_only_waits", target="anabranch.migrations.engine.driver:Driver._drive")
async def new_driver_only_waits(self: Driver, lock: Lock, state: State) -> None:
    """Whoever takes over has the lock, and leaves the work to the one who is lost."""
    if any(line.what == "take over" and line.who != self._me for line in state.trail):
        await asyncio.wait([lock.expired])
        return
    await original("new_driver_only_waits")(self, lock, state)


@planted("pause_is_not_noticed", target="anabranch.migrations.engine.machine:_drive")
def pause_is_not_noticed(
    table: Table, state: State, phase: Any, event: Event, at_ms: int
) -> Advance:
    """A step that ends after a pause leads on all the same."""
    if isinstance(event, StepDone):
        state = replace(state, paused=False)
    driven: Advance = original("pause_is_not_noticed")(table, state, phase, event, at_ms)
    return driven


@planted("any_target_is_allowed", target="anabranch.server.metadata_migration:_only")
def any_target_is_allowed(_allowed: list[str]) -> Callable[[Mapping[str, str]], None]:
    """Whoever may start a migration may have the server connect anywhere."""
    return lambda _: None


@planted("outward_phase_is_our_own", target="anabranch.admin.metadata_migration:_in_pulsars_words")
def outward_phase_is_our_own(status: Status) -> dict[str, str | None]:
    """Pulsar's tools are told a phase that they do not know."""
    state = status.state
    if state is None:
        return {"phase": "NOT_STARTED", "targetUrl": None}
    return {"phase": state.phase, "targetUrl": state.announced.parameters.get("target")}


@planted("late_joiners_are_overlooked", target="anabranch.migrations.engine.driver:Driver._met")
def late_joiners_are_overlooked(self: Driver, state: State, reports: list[Report]) -> Barrier:
    """A barrier waits for those alone who were there at the start."""
    known = [report for report in reports if report.id in state.expected]
    found: Barrier = original("late_joiners_are_overlooked")(self, state, known)
    return found


@planted("the_dead_are_waited_for", target="anabranch.migrations.engine.driver:Driver._met")
def the_dead_are_waited_for(self: Driver, state: State, reports: list[Report]) -> Barrier:
    """A barrier waits for everybody who was there at the start, whatever became of them."""
    found: Barrier = original("the_dead_are_waited_for")(self, state, reports)
    living = [report.id for report in reports]
    gone = tuple(name for name in state.expected if name not in living)
    return replace(found, waits_for=(*found.waits_for, *gone))


@planted("operations_of_one_direction", target="anabranch.metadata.operations:why_apart")
def operations_of_one_direction(asked: str, running: str) -> str:
    """Whoever was first is never disturbed by what comes later in the alphabet."""
    found: str = original("operations_of_one_direction")(asked, running)
    return found if asked <= running else ""


@planted(
    "switched_is_taken_for_over",
    target="anabranch.metadata.operations:running_on",
)
async def switched_is_taken_for_over(store: Any) -> list[Any]:
    """An operation that rests before its last step is not seen."""
    found = await original("switched_is_taken_for_over")(store)
    return [each for each in found if each.phase != "switched"]


@planted(
    "starts_look_at_no_other_operation",
    target="anabranch.migrations.engine.operation:Operation._others",
)
async def starts_look_at_no_other_operation(self: Any) -> list[Any]:
    """Every kind of operation knows itself alone."""
    return []


@planted("starts_look_once", target="anabranch.migrations.engine.operation:Operation._give_way")
async def starts_look_once(self: Any, state: State) -> None:
    """What began after the plan was made is not seen."""


@planted("holds_are_of_the_wall", target="anabranch.migrations.engine.machine:_held")
def holds_are_of_the_wall(phase: Any, state: State, at_ms: int, took_ms: int | None = None) -> Any:
    """How long writes waited is read from the time of day alone."""
    del took_ms
    return original("holds_are_of_the_wall")(phase, state, at_ms)


@planted("taken_over_holds_do_not_count", target="anabranch.migrations.engine.machine:_held")
def taken_over_holds_do_not_count(
    phase: Any, state: State, at_ms: int, took_ms: int | None = None
) -> Any:
    """What no driver has measured is forgotten."""
    return original("taken_over_holds_do_not_count")(phase, state, at_ms, took_ms or 0)
