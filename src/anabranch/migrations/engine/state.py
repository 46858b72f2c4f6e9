"""What is durable of an operation, and what can happen to it. Pure.

Only what a new driver needs is here; how far a phase is and what a driver waits for is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.metadata.announced import Announced
from anabranch.migrations.engine.table import Verb


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the audit trail."""

    at_ms: int
    who: str
    what: str
    phase: str
    """In which it left the operation."""
    epoch: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """The whole journal of one attempt."""

    announced: Announced
    driver: str = ""
    """Who drives, or drove last."""
    paused: bool = False
    asked: str = ""
    """The verb that is being carried out."""
    expected: tuple[str, ...] = ()
    """Ids of the participants that barriers wait for."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What the plan has counted, for people and for shares of the whole."""
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    """Why the attempt failed."""
    one_way: str = ""
    """Why a rollback is refused in this attempt; empty if it is not."""
    entered_ms: int = 0
    """When the phase began, by the clock of whoever wrote it: for people, never compared."""
    held_ms: int = 0
    """How long writes have waited in this attempt, in the phases that are over."""
    held_from_ms: int = 0
    """From when it is not counted yet, by a wall clock: for a phase that no driver has measured."""
    trail: tuple[Line, ...] = ()
    trail_dropped: int = 0

    @property
    def phase(self) -> str:
        """The phase that was announced last."""
        return self.announced.phase


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody asked for the operation, and nothing spoke against it."""

    who: str
    attempt: str
    parameters: Mapping[str, str]
    expected: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TookOver:
    """A process has the driver's lock."""

    who: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """The driver's part of a phase is done."""

    epoch: int
    serial: int
    took_ms: int | None = None
    """How long the phase lasted, by the driver's own clock, which does not jump."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A phase cannot be done, or not in time."""

    epoch: int
    serial: int
    why: str
    took_ms: int | None = None
    """As of `StepDone`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A step has come so far that it need not begin anew."""

    epoch: int
    serial: int
    checkpoint: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Noted:
    """The driver has something to say that stays in the trail."""

    epoch: int
    serial: int
    what: str
    why: str
    one_way: bool = False
    """Whether there is no way back from now on, for that reason."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Participants came, or their sessions ended."""

    epoch: int
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator asked for something."""

    who: str
    verb: Verb
    why: str = ""


Event = Started | TookOver | StepDone | StepFailed | Kept | Noted | MembersChanged | Asked
