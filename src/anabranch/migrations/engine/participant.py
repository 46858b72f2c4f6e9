"""One process as a participant: known to the driver, told the phase, reporting when it is there.

It is known by an ephemeral node, which is also its report. Whoever registers does so before it
reads what is announced, and the driver announces before it looks who is registered; so nobody who
works is overlooked, whenever it came.
"""

import asyncio
from dataclasses import replace
from typing import Any

from anabranch.errors import AnabranchError, Fenced, FormatError, OutcomeUnknown
from anabranch.metadata.announced import (
    OPERATIONS,
    Announced,
    Report,
    journal_path,
    participants_path,
    read_announced,
    write_report,
)
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.limits import (
    ERROR_CHARS_MAX,
    STEP_RETRY_S_MAX,
    STEP_RETRY_S_MIN,
    STORE_RETRY_S,
)
from anabranch.migrations.engine.retries import may_pass
from anabranch.migrations.engine.steps import Part
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("migrations")


class Participant:
    """Takes part in one kind of operation, for as long as the process lives."""

    def __init__(
        self, store: MetadataStore, clock: Clock, tasks: Tasks, kind: str, me: Report, part: Part
    ) -> None:
        """`me` says who this is; phase, lag and error are filled in as they come."""
        self.announced: Announced | None = None
        """What this process was told last."""
        self._store = store
        self._tasks = tasks
        self._part = part
        self._me = me
        self._journal = journal_path(kind)
        self._path = f"{participants_path(kind)}/{me.id}"
        self._locks = Locks(store, clock, tasks, prefix=OPERATIONS)
        self._registered: Lock | None = None

    async def join(self) -> None:
        """Register, and be where the present phase wants everybody before this returns.

        Raises:
            FormatError: if this build does not understand what is announced.
        """
        self._locks.start()
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(f"take part as {self._me.id}", self._take_part(arrived))
        await arrived

    async def leave(self) -> None:
        """Be known no more.

        Raises:
            OutcomeUnknown: if the store did not answer; the registration goes with the session.
        """
        lock, self._registered = self._registered, None
        if lock is not None:
            await lock.release()

    async def _take_part(self, arrived: "asyncio.Future[None]") -> None:
        while True:
            try:
                lock = await self._locks.acquire_when_free(self._path, write_report(self._me))
            except AnabranchError as error:
                _log.warning("not_registered", participant=self._me.id, reason=str(error))
                await asyncio.sleep(STORE_RETRY_S)
                continue
            self._registered = lock
            try:
                await self._follow(lock, arrived)
            except FormatError as error:
                if arrived.done():
                    raise
                arrived.set_exception(error)
                return

    async def _follow(self, lock: Lock, arrived: "asyncio.Future[None]") -> None:
        """Enter what is announced, again and again, until the registration is lost."""
        entering: asyncio.Task[None] | None = None
        told: Announced | None = None
        first = True
        try:
            while not lock.expired.done():
                with self._locks.change_of(self._journal) as changed:
                    now = await self._read()
                    if first or _differs(told, now):
                        await _stop(entering)
                        entering = self._tasks.spawn("enter", self._enter(lock, now, arrived))
                        told, first = now, False
                    signs: list[asyncio.Future[Any]] = [changed, lock.expired]
                    await asyncio.wait(
                        signs, timeout=STORE_RETRY_S, return_when=asyncio.FIRST_COMPLETED
                    )
        finally:
            await _stop(entering)

    async def _read(self) -> Announced | None:
        while True:
            try:
                await self._store.sync()
                node = await self._store.get(self._journal)
                return None if node is None else read_announced(node.value)
            except FormatError:
                raise
            except AnabranchError:
                await asyncio.sleep(STORE_RETRY_S)

    async def _enter(
        self, lock: Lock, announced: Announced | None, arrived: "asyncio.Future[None]"
    ) -> None:
        self.announced = announced
        error = ""
        while True:
            error = await self._reach(announced)
            if announced is not None:
                await self._say(lock, self._report(announced, error))
            if not arrived.done():
                arrived.set_result(None)
            if not error:
                return
            # A phase that cannot fail waits for this process, and so do its own writes.
            _log.error("phase_not_reached", phase=announced and announced.phase, reason=error)
            await asyncio.sleep(STEP_RETRY_S_MAX)

    def _report(self, announced: Announced, error: str) -> Report:
        return replace(
            self._me,
            attempt=announced.attempt,
            serial=announced.serial,
            epoch=announced.epoch,
            phase=announced.phase,
            error=error,
            lag=self._part.lag,
        )

    async def _reach(self, announced: Announced | None) -> str:
        """Enter a phase; empty, or why that cannot be."""
        while True:
            try:
                if announced is None:
                    await self._part.registered()
                else:
                    await self._part.enter(announced)
            except AnabranchError as error:
                if not may_pass(error):
                    return str(error)[:ERROR_CHARS_MAX] or type(error).__name__
                await asyncio.sleep(STEP_RETRY_S_MIN)
            else:
                return ""

    async def _say(self, lock: Lock, report: Report) -> None:
        """Report until it is certain that it was; without a registration there is nobody to tell.

        A registration whose lease has run out may still be there, and then it has to tell: others
        wait for it for as long as it is.
        """
        while not lock.over.done():
            try:
                await lock.update_value(write_report(report))
            except (OutcomeUnknown, Fenced):
                await asyncio.sleep(STEP_RETRY_S_MIN)
            except AnabranchError:
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return


def _differs(told: Announced | None, now: Announced | None) -> bool:
    """Whether something else is announced than before; who drives makes no difference."""
    if told is None or now is None:
        return told is not now
    return (told.attempt, told.serial) != (now.attempt, now.serial)


async def _stop(task: "asyncio.Task[None] | None") -> None:
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])
