"""Planted bugs of processes that write to a store without taking part in its replacement."""

from anabranch.metadata.announced import Announced
from anabranch.testing.planted import planted


@planted(
    "commands_write_past_the_freeze",
    target="anabranch.metadata.switchable.passing_by:check_takes_writes",
)
def commands_write_past_the_freeze(announced: Announced | None) -> None:
    """Whoever takes no part writes whenever it likes."""


@planted(
    "commands_believe_their_writes",
    target="anabranch.metadata.switchable.passing_by:counts_still",
)
def commands_believe_their_writes(before: object, now: object, on: str) -> bool:
    """Whoever takes no part does not look again whether its store is in use."""
    del before, now, on
    return True
