"""The driver of a kind of operation: every broker has one, and the one with the lock drives.

What it does is in the journal before it is done: a driver takes over by writing a larger epoch,
and from then on what its predecessor writes is refused. Which phase follows is not decided here
but by `advance`; here steps are run, barriers waited for, and what came of it is told.
"""

import asyncio
from dataclasses import replace
from typing import Any, Final

from anabranch.errors import AnabranchError, ConflictError, Fenced, FormatError
from anabranch.metadata.announced import OPERATIONS, Report, driver_path
from anabranch.metadata.locks import Lock, Locks
from anabranch.migrations.engine.barrier import Barrier, barrier
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.limits import (
    BARRIER_LOOK_S,
    STEP_RETRY_S_MAX,
    STEP_RETRY_S_MIN,
    STORE_RETRY_S,
)
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.progress import ProgressBoard
from anabranch.migrations.engine.retries import may_pass
from anabranch.migrations.engine.state import (
    MembersChanged,
    State,
    StepDone,
    StepFailed,
    TookOver,
)
from anabranch.migrations.engine.steps import Steps
from anabranch.migrations.engine.turn import DriverTurn
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("migrations")
_NEVER_S: Final = 10 * 365 * 24 * 3600.0
Came = StepDone | StepFailed | None
"""Of the work on a phase; None if it was another's meanwhile."""


class ParticipantFailed(ConflictError):
    """A participant cannot reach a phase; names it, and why."""


class Driver:
    """One process that may drive."""

    def __init__(self, steps: Steps, journal: Journal, clock: Clock, tasks: Tasks, me: str) -> None:
        self.board = ProgressBoard(journal.store, journal.kind)
        self.epoch = 0
        """With which this process drove last."""
        self._steps = steps
        self._journal = journal
        self._clock = clock
        self._since_s = 0.0
        """When the present phase began, or this process to drive in it."""
        self._tasks = tasks
        self._me = me
        self._locks = Locks(journal.store, clock, tasks, prefix=OPERATIONS)

    def start(self) -> None:
        """Drive from now on whenever there is something to drive and nobody else does."""
        self._locks.start()
        self._journal.start(self._tasks)
        self._tasks.spawn(f"driver of {self._steps.kind}", self._run())

    async def _run(self) -> None:
        while True:
            changed = self._journal.changed()
            try:
                if await self._is_running():
                    await self._drive_if_free()
                    continue
            except FormatError as error:
                _log.error("journal_not_understood", reason=str(error))
            except AnabranchError as error:
                _log.warning("not_driving", reason=str(error))
            await asyncio.wait([changed], timeout=STORE_RETRY_S)

    async def _is_running(self) -> bool:
        state = await self._journal.read()
        return state is not None and not self._journal.table[state.phase].ends

    async def _drive_if_free(self) -> None:
        lock = await self._locks.acquire_when_free(driver_path(self._steps.kind), self._me.encode())
        writing = self._tasks.spawn("show progress", self.board.write_on())
        try:
            self._since_s = self._clock.monotonic_s()
            state, _ = await self._journal.change(TookOver(self._me), lock.guard)
            self.epoch = state.announced.epoch
            _log.info("drives", operation=self._steps.kind, epoch=self.epoch, phase=state.phase)
            await self._drive(lock, state)
        except Refused:
            pass  # it ended meanwhile
        finally:
            await _stop(writing)
            await self.board.write()
            await lock.release()

    async def _drive(self, lock: Lock, state: State) -> None:
        """Run phase after phase, until the end or until the lock is lost."""
        while not self._journal.table[state.phase].ends:
            work: asyncio.Task[Came] | None = None
            if not state.paused:
                work = self._tasks.spawn(f"phase {state.phase}", self._work(lock, state))
            try:
                state = await self._until_changed(lock, state, work)
            finally:
                await _stop(work)

    async def _until_changed(
        self, lock: Lock, state: State, work: "asyncio.Task[Came] | None"
    ) -> State:
        """Wait for the end of a phase, whoever brings it about, and return the state after it."""
        while True:
            try:
                now = await self._change_of(lock, state, work)
            except AnabranchError as error:
                lock.check()
                if not may_pass(error):
                    raise
                await asyncio.sleep(STEP_RETRY_S_MIN)  # the store did not answer; the work goes on
            else:
                if now is not None:
                    return now

    async def _change_of(
        self, lock: Lock, state: State, work: "asyncio.Task[Came] | None"
    ) -> State | None:
        """Look at the journal and wait for what comes next; None if nothing has changed."""
        changed = self._journal.changed()
        now = await self._journal.read()
        if now is None or now.announced.epoch != state.announced.epoch:
            raise Fenced(f"{self._me} does not drive any more")
        if (now.announced.serial, now.paused) != (state.announced.serial, state.paused):
            if now.announced.serial != state.announced.serial:
                self._since_s = self._clock.monotonic_s()
            return now
        signs: list[asyncio.Future[Any]] = [changed, lock.expired]
        if work is not None:
            signs.append(work)
        await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        lock.check()
        if work is None or not work.done():
            return None
        came = work.result()
        if came is None:
            raise Fenced(f"{self._me} does not drive any more")
        # From when a phase is announced until the next one is: what one lacks the other has.
        over_s = self._clock.monotonic_s()
        came = replace(came, took_ms=round((over_s - self._since_s) * 1000))
        try:
            now, _ = await self._journal.change(came, lock.guard)
        except Refused:
            # A pause was first, or the phase rests: nothing more is expected of the work.
            await asyncio.wait([changed], timeout=BARRIER_LOOK_S)
            return None
        self._since_s = over_s
        return now

    async def _work(self, lock: Lock, state: State) -> Came:
        """Do a phase, as often as it takes within its time."""
        try:
            return await self._do(lock, state)
        except Fenced:
            return None

    async def _do(self, lock: Lock, state: State) -> StepDone | StepFailed:
        phase = self._journal.table[state.phase]
        announced = state.announced
        self.board.begin(announced)
        turn = DriverTurn(state, lock, self._journal, self.board)
        wait_s = STEP_RETRY_S_MIN
        last = ""
        try:
            async with asyncio.timeout(phase.deadline_s or _NEVER_S):
                while True:
                    try:
                        if phase.barrier:
                            await self._pass_barrier(lock, state)
                        turn.check()
                        await self._steps.run(phase.name, turn)
                    except AnabranchError as error:
                        lock.check()
                        last = str(error) or type(error).__name__
                        if phase.failure and not may_pass(error):
                            return StepFailed(announced.epoch, announced.serial, last)
                        _log.warning("step_tried_again", phase=phase.name, reason=last)
                        self.board.trouble(announced, last)
                    except Exception as error:  # noqa: BLE001 - the next driver would meet it too
                        lock.check()
                        last = f"a mistake in this program: {type(error).__name__}: {error}"
                        _log.error("mistake_in_step", phase=phase.name, cause=error)
                        if phase.failure:
                            return StepFailed(announced.epoch, announced.serial, last)
                        self.board.trouble(announced, last)
                    else:
                        return StepDone(announced.epoch, announced.serial)
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, STEP_RETRY_S_MAX)
        except TimeoutError:
            why = f"{phase.name} took longer than {phase.deadline_s} s"
            waits_for = self.board.shown.waits_for if self.board.shown is not None else ()
            if waits_for:
                why += f": {', '.join(waits_for)} did not report"
            elif last:
                why += f": {last}"
            return StepFailed(announced.epoch, announced.serial, why)

    async def _pass_barrier(self, lock: Lock, state: State) -> None:
        """Wait until everybody who lives has reported the phase.

        Raises:
            ParticipantFailed: if somebody cannot reach it.
        """
        announced = state.announced
        turn = DriverTurn(state, lock, self._journal, self.board)
        while True:
            changed = self._journal.changed()
            reports = await turn.reports()
            members = MembersChanged(announced.epoch, tuple(report.id for report in reports))
            await self._journal.change(members, lock.guard)
            found = self._met(state, reports)
            if found.failed:
                who = "; ".join(f"{name}: {why}" for name, why in found.failed)
                raise ParticipantFailed(f"not everybody can be {announced.phase}: {who}")
            if found.open:
                self.board.begin(announced)
                return
            self.board.wait_for(announced, found.waits_for)
            await asyncio.wait([changed], timeout=BARRIER_LOOK_S)

    def _met(self, state: State, reports: list[Report]) -> Barrier:
        """Judge by who lives now: who has come since the start counts, and who is gone does not."""
        return barrier(state.announced, reports)


async def _stop(task: "asyncio.Task[object] | None") -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])
