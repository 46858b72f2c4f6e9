"""Leader election: of several candidates for a path at most one leads, and all learn who.

Leadership is a lock whose value names the leader, so what holds for a lock holds for it: it has a
token, a guard, and an end that a stopped process sees by itself. What follows from what is in
`election_machine.py`.
"""

import asyncio
from collections.abc import Callable

from anabranch import limits
from anabranch.errors import Fenced, LockBusy, OutcomeUnknown, SessionExpired, Unreachable
from anabranch.metadata.election_machine import Happened, Standing, Then, turn
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import Guard, Revision
from anabranch.runtime.tasks import Tasks

Listener = Callable[[Standing], None]


class Election:
    """One candidate."""

    def __init__(self, locks: Locks, path: str, value: bytes, tasks: Tasks) -> None:
        self.path = path
        self.value = value
        """Names this candidate; no two living processes use the same."""
        self.standing = Standing.NO_LEADER
        """As last heard of; whether to act as the leader is `leading`."""
        self._locks = locks
        self._tasks = tasks
        self._leader: bytes | None = None
        self._lock: Lock | None = None
        self._listeners: list[Listener] = []
        self._running: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether this process may act as the leader now. Ask on each use."""
        return self._lock is not None and self._lock.held

    @property
    def leader(self) -> bytes | None:
        """The value of the leader that was last heard of; None if there is none."""
        return self._leader

    @property
    def token(self) -> Revision:
        """Larger than that of every earlier leader.

        Raises:
            Fenced: if this candidate does not lead.
        """
        return self._leading_lock().token

    def guard(self) -> Guard:
        """What a write names so that it counts only while this candidate leads.

        Raises:
            Fenced: if it does not lead.
        """
        return self._leading_lock().guard()

    def _leading_lock(self) -> Lock:
        if self._lock is None or not self._lock.held:
            raise Fenced(f"{self.value!r} does not lead at {self.path}")
        return self._lock

    def listen(self, listener: Listener) -> None:
        """Call a function with every new standing, and with the present one at once."""
        self._listeners.append(listener)
        listener(self.standing)

    def stand(self) -> None:
        """Become a candidate."""
        assert self._running is None, f"stands already at {self.path}"
        self._running = self._tasks.spawn(f"election at {self.path}", self._run())

    async def resign(self) -> None:
        """Lead no more and stop being a candidate.

        Raises:
            OutcomeUnknown: if the store did not answer; others may have to wait for the session.
        """
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        lock, self._lock = self._lock, None
        self._become(Happened.RESIGNED, None)
        if lock is not None:
            await lock.release()

    async def _run(self) -> None:
        then = Then.TRY
        while then is not Then.STOP:
            with self._locks.change_of(self.path) as changed:
                then = await self._try()
                if then is Then.WAIT:
                    then = await self._wait(changed)
                elif then is Then.TRY_LATER:
                    await asyncio.wait([changed], timeout=limits.LOCK_RETRY_S)

    async def _try(self) -> Then:
        try:
            self._lock = await self._locks.acquire(self.path, self.value)
        except LockBusy as busy:
            return self._become(Happened.BEATEN, busy.holder)
        except (OutcomeUnknown, Unreachable, SessionExpired):
            return self._become(Happened.UNSURE, None)
        return self._become(Happened.WON, self.value)

    async def _wait(self, changed: "asyncio.Future[None]") -> Then:
        if self._lock is None:
            await self._locks.wait_for(self.path, changed)
            return self._become(Happened.VACANT, self._leader)
        await asyncio.wait([self._lock.expired])
        self._lock = None
        return self._become(Happened.LOST, None)

    def _become(self, happened: Happened, leader: bytes | None) -> Then:
        before, known = self.standing, self._leader
        self.standing, then = turn(before, happened)
        self._leader = leader
        if (before, known) != (self.standing, leader):
            for listener in list(self._listeners):
                listener(self.standing)
        return then
