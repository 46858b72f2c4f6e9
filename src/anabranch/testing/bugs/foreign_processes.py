"""Planted bugs of leading processes that are not ours to another metadata store."""

from dataclasses import replace
from typing import Any

from anabranch.metadata.announced import OPERATIONS
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.machine import Advance
from anabranch.migrations.engine.state import Event, State
from anabranch.migrations.engine.steps import Turn
from anabranch.migrations.engine.table import Table
from anabranch.migrations.freeze_copy.foreign_processes import ForeignProcesses
from anabranch.migrations.freeze_copy.late_writes import LateWatch, LateWrites
from anabranch.migrations.freeze_copy.outsiders import Foreign, Outsiders
from anabranch.testing.planted import original, planted


@planted("pulsars_flag_is_copied", target="anabranch.migrations.freeze_copy.tail:stays_behind")
def pulsars_flag_is_copied(path: str) -> bool:
    """The flag goes along, so that whoever reads it in the target waits for an end."""
    return is_within(OPERATIONS, path)


@planted(
    "foreign_are_not_waited_for",
    target="anabranch.migrations.freeze_copy.foreign_processes:ForeignProcesses.waited_for",
)
async def foreign_are_not_waited_for(self: ForeignProcesses) -> list[str]:
    """The flag is raised, and nobody looks who has come along."""
    return []


@planted(
    "foreign_may_go_elsewhere",
    target="anabranch.migrations.freeze_copy.foreign_processes:ForeignProcesses._wait_for_nodes",
)
async def foreign_may_go_elsewhere(
    self: ForeignProcesses, turn: Turn, found: list[Foreign], target: MetadataStore
) -> None:
    """Who has stopped writing is taken to have come to the target."""


@planted(
    "foreign_stay_halted",
    target="anabranch.migrations.freeze_copy.foreign_processes:ForeignProcesses.release",
)
async def foreign_stay_halted(self: ForeignProcesses, turn: Turn) -> None:
    """The flag of an attempt that came to nothing stays as it was."""


@planted("rollback_leaves_others_behind", target="anabranch.migrations.engine.machine:_ask")
def rollback_leaves_others_behind(
    table: Table, state: State, phase: Any, event: Event, at_ms: int
) -> Advance:
    """Ours go back although others take part that cannot."""
    plain: Any = original("rollback_leaves_others_behind")
    asked: Advance = plain(table, replace(state, one_way=""), phase, event, at_ms)
    return asked


@planted(
    "foreign_risk_is_taken_unasked",
    target="anabranch.migrations.freeze_copy.outsiders:Outsiders.__init__",
)
def foreign_risk_is_taken_unasked(
    self: Outsiders, reports: Any, target_url: str = "", *, accepts_risk: bool = False
) -> None:
    """Brokers that write past their own freeze take part although nobody agreed."""
    plain: Any = original("foreign_risk_is_taken_unasked")
    plain(self, reports, target_url, accepts_risk=True)


@planted(
    "late_writes_are_ignored",
    target="anabranch.migrations.freeze_copy.late_writes:LateWatch.settle",
)
async def late_writes_are_ignored(
    self: LateWatch, turn: Turn, left: Any, used: Any, wait_s: float
) -> None:
    """What is written to the source after the switch is nobody's business."""


@planted(
    "late_writes_win",
    target="anabranch.migrations.freeze_copy.late_writes:LateWrites.__init__",
)
def late_writes_win(
    self: LateWrites, left: Any, used: Any, left_at: Any, used_at: Any, check: Any
) -> None:
    """What is written late takes the place of what was written to the store in use."""
    plain: Any = original("late_writes_win")
    plain(self, left, used, left_at, replace(used_at, epoch=used_at.epoch + 1), check)


@planted(
    "foreign_turn_after_ours_write",
    target="anabranch.migrations.freeze_copy.foreign_processes:ForeignProcesses.lead",
)
async def foreign_turn_after_ours_write(self: ForeignProcesses, turn: Turn) -> None:
    """Others are told to turn only once ours write to the target."""
    plain: Any = original("foreign_turn_after_ours_write")
    if turn.announced.phase != "leading":
        await plain(self, turn)


@planted(
    "led_are_not_shown",
    target="anabranch.migrations.freeze_copy.foreign_processes:ForeignProcesses.reports",
)
async def led_are_not_shown(*_: object) -> list[object]:
    """A status names those alone who report themselves."""
    return []
