"""Phases of a live operation as data: what follows what, who may stop it, how long it may take.

Pure. What a phase does is not here but in the operation's `Steps`, and what follows from an event
in `machine.py`, which looks it up here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple


class Verb(Enum):
    """What an operator may ask of an operation that runs."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    ROLLBACK = "rollback"
    FINALIZE = "finalize"


class Outward(Enum):
    """The five phases that Pulsar's own interface knows."""

    NOT_STARTED = "NOT_STARTED"
    PREPARATION = "PREPARATION"
    COPYING = "COPYING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One row of the table. Names of other phases say where an event leads; "" forbids it."""

    name: str
    words: str
    """What happens in it, for status and docs."""
    outward: Outward
    barrier: bool = False
    """Whether the step begins only when every participant has reported this phase."""
    holds_writes: bool = False
    """Whether participants let writes wait."""
    done: str = ""
    """Where the end of the step leads. Without it the phase rests until a verb, or is the end."""
    failure: str = ""
    """Where an error or the deadline leads. Without it the step is tried again for ever."""
    abort: str = ""
    rollback: str = ""
    finalize: str = ""
    pausable: bool = False
    deadline_s: float | None = None
    """From when a driver began with the phase."""
    new_driver_fails_it: bool = False
    """Whether a driver that takes over gives the phase up: so a hold of writes stays short."""
    ends: bool = False
    """Whether the operation is over, and another may start."""
    first_do: str = ""
    """What people have to do after this end before another may start; empty if nothing."""


class Transition(NamedTuple):
    """One arrow of the diagram."""

    old: str
    why: str
    new: str


class Table:
    """The phases of one kind of operation, checked when it is made."""

    def __init__(self, first: str, *phases: Phase) -> None:
        self.first: Final = first
        self.phases: Final[Mapping[str, Phase]] = {phase.name: phase for phase in phases}
        assert len(self.phases) == len(phases), "two phases have one name"
        assert first in self.phases, f"no phase {first}"
        for arrow in self.transitions():
            assert arrow.new in self.phases, f"{arrow.old} leads to {arrow.new}, which is not there"
        for phase in phases:
            _check(phase)
        reached = {first, *(arrow.new for arrow in self.transitions())}
        for phase in phases:
            assert phase.name in reached, f"nothing leads to {phase.name}"

    def __getitem__(self, name: str) -> Phase:
        return self.phases[name]

    def __contains__(self, name: object) -> bool:
        return name in self.phases

    def holding_for(self, hold_s: float) -> "Table":
        """The same phases, with another deadline for each in which writes wait."""
        phases = [
            replace(phase, deadline_s=hold_s) if phase.holds_writes else phase
            for phase in self.phases.values()
        ]
        return Table(self.first, *phases)

    def transitions(self) -> Iterator[Transition]:
        """Every arrow, in the order of the phases."""
        for phase in self.phases.values():
            for why in ("done", "failure", "abort", "rollback", "finalize"):
                if new := getattr(phase, why):
                    yield Transition(phase.name, why, new)


def _check(phase: Phase) -> None:
    """What no row may say, since nobody could act on it."""
    name = phase.name
    leads = phase.done or phase.failure or phase.abort or phase.rollback or phase.finalize
    assert bool(leads) != phase.ends, f"{name} must lead somewhere or end"
    if phase.holds_writes and not phase.ends:
        assert phase.failure, f"{name} holds writes and has no way out"
        assert phase.deadline_s is not None, f"{name} holds writes without a deadline"
        assert not phase.pausable, f"{name} holds writes and can be paused"
    if phase.deadline_s is not None or phase.new_driver_fails_it:
        assert phase.failure, f"{name} has a deadline that leads nowhere"
    assert phase.ends or not phase.first_do, f"{name} is no end"
    assert not (phase.ends and (phase.barrier or phase.holds_writes)), f"{name} never ends"


def diagram(table: Table) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_label(table.first)}: start"]
    merged: dict[tuple[str, str], list[str]] = {}
    for arrow in table.transitions():
        merged.setdefault((arrow.old, arrow.new), []).append(arrow.why)
    for (old, new), whys in merged.items():
        lines.append(f"    {_label(old)} --> {_label(new)}: {', '.join(whys)}")
    lines += [f"    {_label(p.name)} --> [*]" for p in table.phases.values() if p.ends]
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    return name.replace(" ", "_")
