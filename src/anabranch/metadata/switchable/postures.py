"""What each phase of replacing the metadata store asks of a process. Pure.

`source` is the store that holds the journal of the operation, `target` the one that is to replace
it. A process is told the phase and takes its posture from here, whatever it did before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata.announced import Announced
from anabranch.metadata.operations import ENDS

SOURCE: Final = "source"
TARGET: Final = "target"


@dataclass(frozen=True, slots=True)
class Posture:
    """How a process stands."""

    on: str = SOURCE
    """The store it reads from, and writes to."""
    holds: bool = False
    """Whether writes wait."""
    connects: bool = False
    """Whether it has a connection to the other store."""
    fenced: bool = False
    """Whether its writes can be refused by the store it is on."""
    rejoins: bool = False
    """Whether its ephemeral nodes are on the other store, too."""


PREPARING: Final = "preparing"
"""The phase after which the target says of which attempt it is."""
LEFT_FOR_GOOD: Final = "finalized"
"""The phase after which no other comes."""
_LIVE: Final = Posture()
_BESIDE: Final = Posture(connects=True, fenced=True)
_FROZEN: Final = Posture(connects=True, fenced=True, holds=True)
_REJOINED: Final = replace(_FROZEN, rejoins=True)
_THERE: Final = Posture(on=TARGET, fenced=True)

POSTURES: Final[Mapping[str, Posture]] = {
    PREPARING: _BESIDE,
    "copying": _BESIDE,
    "tailing": _BESIDE,
    "verifying": _BESIDE,
    "halting": _BESIDE,
    "freezing": _FROZEN,
    "rejoining": _REJOINED,
    "fencing": _REJOINED,
    "switching": replace(_REJOINED, on=TARGET),
    "leading": replace(_REJOINED, on=TARGET),
    "switched": _THERE,
    "finalizing": Posture(on=TARGET),
    LEFT_FOR_GOOD: Posture(on=TARGET),
    "reverifying": _THERE,
    "refreezing": replace(_FROZEN, on=TARGET),
    "returning": replace(_REJOINED, on=TARGET),
    "refencing": replace(_REJOINED, on=TARGET),
    "reverting": _REJOINED,
    "rolled back": _LIVE,
    "aborting": _LIVE,
    "aborted": _LIVE,
    "failing": _LIVE,
    "failed": _LIVE,
}
_THERE_AND_BACK: Final = "rolled back"
TURNS_BACK: Final = frozenset(
    {"switched", "reverifying", "refreezing", "aborting", "aborted", "failing", "failed"}
)
"""Phases that a process can come to from the one in which it turned, if nobody wrote to the store
that it turned to, and others were on the one that it left."""


def posture_of(announced: Announced | None) -> Posture:
    """What an announcement asks for; without one, to go on as ever.

    Raises:
        FormatError: if nobody here knows the phase.
    """
    if announced is None:
        return _LIVE
    posture = POSTURES.get(announced.phase)
    if posture is None:
        raise FormatError(f"this build knows no phase {announced.phase!r} of a store's replacement")
    return posture


def is_over(announced: Announced) -> bool:
    """Whether an attempt has ended, in whichever way."""
    return announced.phase in ENDS


def counts_still(before: Announced | None, now: Announced | None, on: str) -> bool:
    """Whether a write that was begun under one announcement counts, read under another after it.

    It does if no copy can have been completed in between: the store that it went to is in use, and
    writes do not have to wait. What cannot be told does not count.
    """
    if now is None:
        return before is None
    held, stands = posture_of(before), posture_of(now)
    if stands.holds or not stands.on == held.on == on:
        return False
    tries_before = 0 if before is None else before.number
    if now.number == tries_before:
        assert before is not None
        return now.phase != _THERE_AND_BACK or before.phase == _THERE_AND_BACK
    # An attempt that was not over may have gone there and back before the next one began.
    was_over = before is None or before.phase in ENDS
    return was_over and now.number == tries_before + 1 and now.phase != _THERE_AND_BACK
