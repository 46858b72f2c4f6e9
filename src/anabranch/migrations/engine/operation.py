"""What people ask of an operation: plan, start, verbs, status. Any process may be asked.

Nothing here drives. A request changes the journal, and whoever drives hears of it; so it makes no
difference whether the one who asked waits for the end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from anabranch.errors import InputError, Unreachable
from anabranch.metadata.announced import PARTICIPATION_LEVEL, Announced
from anabranch.metadata.operations import in_the_way, running_on
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.machine import Refused, check_over
from anabranch.migrations.engine.progress import read_progress
from anabranch.migrations.engine.reports import read_reports
from anabranch.migrations.engine.state import Asked, Started, State
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.steps import Blocker, Plan, Steps
from anabranch.migrations.engine.table import Verb
from anabranch.runtime import Entropy


class Blocked(Refused):
    """Something must be changed before the operation can start; names all of it."""

    def __init__(self, plan: Plan) -> None:
        found = "; ".join(f"{blocker.who}: {blocker.why}" for blocker in plan.blockers)
        super().__init__(f"not started: {found}")
        self.plan = plan


async def nobody() -> Sequence[Blocker]:
    """Who stands against an operation besides those whom its store knows."""
    return ()


class Operation:
    """One kind of operation, as people see it."""

    def __init__(
        self,
        steps: Steps,
        journal: Journal,
        entropy: Entropy,
        *,
        check: Callable[[Mapping[str, str]], None] = lambda _: None,
        blockers: Callable[[], Awaitable[Sequence[Blocker]]] = nobody,
        of: str = "",
    ) -> None:
        """`check` refuses parameters that nobody may use here, before anything is done with them.

        What it raises is an InputError. `blockers` are of the surroundings; `of` says which of
        several it is about that are operated on in this way.
        """
        self._steps = steps
        self._journal = journal
        self._entropy = entropy
        self._check = check
        self._blockers = blockers
        self._of = of

    async def plan(self, parameters: Mapping[str, str]) -> Plan:
        """What a start would do and what stands against it. Changes nothing.

        Raises:
            InputError: also if nobody answers at the target.
            Refused: if this process has left the store for good.
            ConflictError: see `Steps.plan`.
        """
        self._check(parameters)
        if self._journal.ended and (last := await self._journal.read()) is not None:
            check_over(self._journal.table, last)
        try:
            plan = await self._steps.plan(parameters)
        except Unreachable as error:
            raise InputError(f"nothing was started: {error}") from error
        reports = await read_reports(self._journal.store, self._journal.kind)
        behind = [
            Blocker(
                report.id,
                f"takes part with level {report.level} of {PARTICIPATION_LEVEL} "
                f"({report.role} on {report.host}, version {report.version}): upgrade it",
            )
            for report in reports
            if report.level < PARTICIPATION_LEVEL
        ]
        others = [] if self._journal.ended else await self._others()
        beside = await self._blockers()
        return replace(plan, blockers=(*others, *plan.blockers, *behind, *beside))

    async def _others(self) -> list[Blocker]:
        """Operations of other kinds that run, and beside which this one may not."""
        return [
            Blocker(f"the operation {each.kind}", f"attempt {each.attempt} is {each.phase}: {why}")
            for each, why in in_the_way(self._journal.kind, await running_on(self._journal.store))
        ]

    async def start(self, parameters: Mapping[str, str], who: str) -> State:
        """Begin an attempt; it goes on by itself.

        Raises:
            Refused: if one runs, or one of another kind has begun at the same time.
            Blocked: if the plan has blockers, such as an operation of another kind.
            InputError: also if nobody answers at the target.
            ConflictError: see `Steps.plan`.
        """
        if (state := await self._journal.read()) is not None:
            check_over(self._journal.table, state)
        plan = await self.plan(parameters)
        if plan.blockers:
            raise Blocked(plan)
        reports = await read_reports(self._journal.store, self._journal.kind)
        started = Started(
            who,
            self._entropy.token_hex(6),
            plan.parameters,
            tuple(report.id for report in reports),
            plan.figures,
        )
        state, _ = await self._journal.change(started)
        await self._give_way(state)
        return state

    async def _give_way(self, state: State) -> None:
        """End what was just begun if another kind of operation has begun in the same moment.

        Each writes first and looks then, so at least one of two sees the other; both may.

        Raises:
            Refused: if one has.
        """
        if others := await self._others():
            found = "; ".join(f"{other.who}: {other.why}" for other in others)
            await self._journal.change(Asked(state.trail[0].who, Verb.ABORT, found))
            raise Refused(f"given up at its start: {found}")

    async def ask(self, verb: Verb, who: str, why: str = "") -> State:
        """Ask for something; asked again while it is being done, nothing happens.

        Raises:
            Refused: if it cannot be asked now, saying what can.
        """
        state, _ = await self._journal.change(Asked(who, verb, why))
        return state

    async def is_running(self) -> bool:
        """Whether an attempt has begun and is not over."""
        state = await self._journal.read()
        return state is not None and not self._journal.table[state.phase].ends

    async def announced(self) -> Announced | None:
        """Which phase the newest attempt is in; None if there never was one."""
        state = await self._journal.read()
        return None if state is None else state.announced

    async def status(self) -> Status:
        """How the newest attempt is, also long after its end."""
        state = await self._journal.read()
        store, kind, table = self._journal.store, self._journal.kind, self._journal.table
        if self._journal.ended:
            return Status(kind, table, state, (), None, self._of)
        reports = await read_reports(store, kind)
        if state is not None:
            reports += await self._steps.led(state)
        return Status(kind, table, state, reports, await read_progress(store, kind), self._of)
