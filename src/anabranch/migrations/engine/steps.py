"""What an operation must bring along, and what it is given when one of its phases runs.

`Steps` is implemented once per operation, in its own folder. The engine decides which phase runs
where and when; the operation does it, and may rely on nothing but its `Turn`: the process can end
between any two lines, and another driver then runs the same phase from its last checkpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anabranch.metadata.announced import Announced, Report
from anabranch.metadata.store import Guard
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.table import Table

Checkpoint = Mapping[str, Any]
"""JSON; small, since it is kept in the journal."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why an operation cannot start."""

    who: str
    """A participant, a setting, a node: what somebody has to change."""
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation would do. Making one writes nothing anywhere."""

    parameters: Mapping[str, str]
    """As they will be announced: checked, complete, without secrets."""
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    """Nodes, bytes, expected seconds: whatever can be counted before."""
    notes: Sequence[str] = ()
    """What will be different afterwards, such as times that the target cannot hold."""
    blockers: Sequence[Blocker] = ()
    """If there is one, a start is refused with all of them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase is. Not durable: a new driver counts on from the checkpoint."""

    done: int = 0
    total: int | None = None
    bytes: int = 0
    lag: int | None = None
    """Changes that are known and not yet copied."""
    words: str = ""


class Turn(Protocol):
    """One run of one phase by one driver. All of it is over once `check` raises."""

    announced: Announced
    figures: Mapping[str, Any]
    """What the plan has counted."""
    checkpoint: Checkpoint
    """What the run before this one kept, of whichever phase and driver; {} at first."""

    def check(self) -> None:
        """Make sure that this process drives still. Call it before everything that has an effect.

        Raises:
            Fenced: if it may not act any more.
        """
        ...

    def guard(self) -> Guard:
        """What a write to the journal's store names so that it counts only while this one drives.

        Raises:
            Fenced: as for `check`.
        """
        ...

    def progress(self, progress: Progress) -> None:
        """Show how far it is; costs nothing, and is seen in the status."""
        ...

    async def keep(self, checkpoint: Checkpoint) -> None:
        """Make durable where to go on, on the condition that this process drives still.

        Raises:
            Fenced: if another one does.
        """
        ...

    async def note(self, what: str, why: str, *, one_way: bool = False) -> None:
        """Add a line to the audit trail; with `one_way`, a rollback is refused from now on.

        Raises:
            Fenced: if another one drives.
        """
        ...

    async def reports(self) -> list[Report]:
        """What every living participant says, in order of their ids."""
        ...


class Steps(Protocol):
    """An operation."""

    kind: str
    """Names it in paths, documents and commands."""
    table: Table

    async def plan(self, parameters: Mapping[str, str]) -> Plan:
        """Check what is asked for, and look what it would take. Changes nothing.

        Raises:
            InputError: if it makes no sense: wrong scheme, not allowed, the same store.
            Unreachable: if nobody answers there.
            ConflictError: if what is there now forbids it: a target that is not empty.
        """
        ...

    async def led(self, state: State) -> list[Report]:
        """What is known of those who take part and do not report themselves, for the status."""
        ...

    async def run(self, phase: str, turn: Turn) -> None:
        """Do the driver's part of a phase; to return is to be done with it.

        Called after the barrier, if the phase has one. Must be able to begin anew at any point:
        it is called again after errors that are retriable, after a pause, and by new drivers. When
        it is cancelled, nothing it has begun may take effect after it ended. In a phase that rests
        it goes on until it is cancelled. To undo is a phase like others (`aborting`, `failing`).

        Raises:
            AnabranchError: if retriable, or in a phase without a way out, it is run again later;
                else the phase has failed.
        """
        ...


class Part(Protocol):
    """What a participant does when a phase is announced."""

    async def enter(self, announced: Announced) -> None:
        """Reach a phase; to return is to report it. Any phase may come after any other.

        Called again after an error that is retriable. A newer announcement cancels it.

        Raises:
            AnabranchError: if retriable it is tried again, else it is reported.
        """
        ...

    async def registered(self) -> None:
        """Others know this process by its present session, and nothing was ever announced.

        Raises:
            AnabranchError: if retriable it is tried again.
        """
        ...

    @property
    def lag(self) -> int:
        """What is left to do, for the report."""
        ...
