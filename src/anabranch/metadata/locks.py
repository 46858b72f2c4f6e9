"""Locks: one holder at a time, with a token that rises from holder to holder.

A lock is an ephemeral node. Its holder may act while `held` is true, and writes what must not be
overtaken with `guard()`, so that the store itself refuses it once the lock is somebody else's. A
lock that was lost stays lost: whoever wants it again acquires it again, and gets a larger token.
The decisions are in `lock_machine.py`; here they are carried out.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    BadVersion,
    Fenced,
    LockBusy,
    NotFound,
    OutcomeUnknown,
    SessionExpired,
)
from anabranch.metadata.lease import Lease
from anabranch.metadata.lock_machine import Do, LockMachine, LockState, Step
from anabranch.metadata.paths import is_within
from anabranch.metadata.store import (
    ABSENT,
    Event,
    EventKind,
    Guard,
    MetadataStore,
    Revision,
    SessionEvent,
)
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks


class Lock:
    """One life of one lock. Made by `Locks.acquire`."""

    def __init__(self, locks: "Locks", path: str, value: bytes) -> None:
        self.path = path
        self.session = 0
        """The session that the lock's node lives by."""
        self.expired: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason once the lock is lost; never set by a release."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set once this process has let go of it, or of trying to get it, whatever came of it."""
        self.in_doubt = False
        """Whether a node of ours may appear without anybody having been told of it."""
        self._locks = locks
        self._store = locks.store
        self._machine = LockMachine(path, value)

    @property
    def held(self) -> bool:
        """Whether this process may act as the owner now. Ask on each use, never keep the answer."""
        held = self._machine.state is LockState.HELD
        return held and self._locks.lease.runs(self.session)

    @property
    def token(self) -> Revision:
        """Larger than that of every earlier holder of this path."""
        return self._machine.token

    @property
    def value(self) -> bytes:
        """Who holds it, in the holder's own words."""
        return self._machine.value

    def guard(self) -> Guard:
        """What a write names so that it counts only while this lock is held.

        Of a store with `Fencing.LEASE`, which cannot look, ask `held` again after the answer.

        Raises:
            Fenced: if the lock is not held any more.
        """
        self.check()
        return self._machine.guard()

    def check(self) -> None:
        """Make sure that this process may act as the owner now.

        Raises:
            Fenced: if the lock is not held any more, saying why.
        """
        if not self.held:
            machine = self._machine
            why = machine.lost_because or machine.state.value
            if machine.state is LockState.HELD:
                why = "the store has not answered in time, so the session may have ended"
            raise Fenced(f"{self.path} is not held any more: {why}")

    async def update_value(self, value: bytes) -> None:
        """Write another value. Guards taken before are refused from then on: take new ones.

        Raises:
            Fenced: if the lock is not held any more.
            OutcomeUnknown: if the answer was lost; the lock is still held or will tell.
        """
        self.check()
        self._machine.update(value)
        try:
            stat = await self._store.put(self.path, value, self._machine.version, ephemeral=True)
        except BadVersion as error:
            await self.confirm()
            raise Fenced(f"{self.path} was changed by somebody else: {error}") from error
        except SessionExpired as error:
            raise Fenced(f"{self.path} is not held any more: {error}") from error
        except OutcomeUnknown:
            self._locks.look_soon(self)
            raise
        self._machine.updated(stat)

    async def release(self) -> None:
        """Give the lock up; nothing happens if it is not held any more.

        Raises:
            OutcomeUnknown: if the store did not answer. The lock is not held any more; its node
                goes once the store can be reached again, or with the session.
        """
        step = self._machine.release()
        if step is None:
            return
        in_doubt, self.in_doubt = self.in_doubt, True
        try:
            await self._remove(step)
            self.in_doubt = in_doubt
        finally:
            self._machine.let_go()
            self._locks.forget(self)

    async def _remove(self, step: Step) -> bool:
        assert step.version is not None
        try:
            await self._store.delete(self.path, step.version)
        except NotFound:
            return True
        except BadVersion:
            return False
        return True

    async def take(self) -> None:
        """Bring the lock to HELD. Called once, by `Locks`."""
        step: Step | None = self._machine.begin()
        for _ in range(limits.LOCK_ACQUIRE_STEPS_MAX):
            if step is None:
                break
            step = await self._carry_out(step)
        if self._machine.state is not LockState.HELD:
            raise LockBusy(self.path, self._machine.holder, self._machine.lost_because)

    async def _carry_out(self, step: Step) -> Step | None:
        machine = self._machine
        if step.do is Do.LOOK:
            return machine.found(await self._store.get(self.path))
        if step.do is Do.REMOVE:
            try:
                return machine.removed() if await self._remove(step) else machine.not_removed()
            except OutcomeUnknown:
                return machine.not_removed()
        self.session = self._store.session
        in_doubt, self.in_doubt = self.in_doubt, True
        try:
            stat = await self._store.put(self.path, machine.value, ABSENT, ephemeral=True)
        except BadVersion:
            self.in_doubt = in_doubt
            return machine.not_created()
        except OutcomeUnknown:
            return machine.not_created()
        except SessionExpired:
            self.in_doubt = in_doubt  # it was not carried out
            raise
        self.in_doubt = in_doubt
        if self._store.session != self.session:
            # It was created in the session that ended or in the one that began: who knows.
            return machine.not_created()
        if machine.created(stat) is not None:
            self._locks.look_soon(self)
        return None

    def hear(self, event: Event) -> bool:
        """Take note of a change; True if somebody must look at the node."""
        return self._machine.changed(event) is not None

    def hear_session(self, event: SessionEvent) -> bool:
        """Take note of what happened to the session; True if somebody must look at the node."""
        same = self._store.session == self.session
        return self._machine.session_changed(event, same_session=same) is not None

    async def confirm(self) -> None:
        """Look whether the node is still ours, and let the owner know if not."""
        try:
            node = await self._store.get(self.path)
        except AnabranchError:
            # The lease goes on limiting what the holder may do, and a reconnect looks again.
            return
        self._machine.confirmed(node)
        self._locks.settle(self)

    @property
    def lost_because(self) -> str | None:
        """Why the lock was lost; None if it was not."""
        machine = self._machine
        return machine.lost_because if machine.state is LockState.LOST else None


class Locks:
    """All locks that one process takes through one store handle."""

    def __init__(
        self, store: MetadataStore, clock: Clock, tasks: Tasks, *, prefix: str = "/"
    ) -> None:
        self.store = store
        self.lease = Lease(store, clock)
        self._tasks = tasks
        self._prefix = prefix
        self._locks: dict[str, Lock] = {}
        self._strays: dict[str, int] = {}
        """Paths where a node of ours may appear unasked, with the session in which it was asked."""
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def start(self) -> None:
        """Begin to listen to the store; before any lock is acquired."""
        changes, sessions = self.store.watch(self._prefix), self.store.session_events()

        async def hear_changes() -> None:
            async for event in changes:
                self._changed(event)

        async def hear_sessions() -> None:
            async for event in sessions:
                self._session_changed(event)

        self._tasks.spawn("lock changes", hear_changes())
        self._tasks.spawn("lock session", hear_sessions())

    async def acquire(self, path: str, value: bytes) -> Lock:
        """Take a lock. The value names the holder: no two living processes use the same.

        Raises:
            LockBusy: if somebody holds it, naming them.
            SessionExpired: if there is no session now.
            Unreachable: if there is no connection to the store.
            OutcomeUnknown: if the store did not answer; should the lock's node appear after all,
                it is removed.
        """
        assert is_within(self._prefix, path), f"{path} is not watched: {self._prefix} is"
        if path in self._locks:
            raise LockBusy(path, self._locks[path].value, "by this very process")
        lock = self._locks[path] = Lock(self, path, value)
        try:
            await lock.take()
        except BaseException:
            self.forget(lock)
            raise
        return lock

    async def acquire_when_free(self, path: str, value: bytes) -> Lock:
        """Take a lock, after all who hold it before; without a session, wait for the next one.

        Raises:
            Unreachable, OutcomeUnknown: as for `acquire`.
        """
        while True:
            with self.change_of(path) as changed:
                try:
                    return await self.acquire(path, value)
                except LockBusy:
                    await self.wait_for(path, changed)
                except SessionExpired:
                    await asyncio.wait([changed], timeout=limits.LOCK_RETRY_S)

    @contextmanager
    def change_of(self, path: str) -> Iterator[asyncio.Future[None]]:
        """A future that is set once a node may have changed after this was called."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(path, [])
        waiting.append(changed)
        try:
            yield changed
        finally:
            waiting.remove(changed)
            if not waiting and self._waiting.get(path) is waiting:
                del self._waiting[path]

    async def wait_for(self, path: str, changed: "asyncio.Future[None]") -> None:
        """Wait, right after a lock was found busy, until it may be free.

        While this very process has it, or tries to, that is until it has let go: what the store
        tells of the node may come before.
        """
        mine = self._locks.get(path)
        signs = [changed] if mine is None else [changed, mine.over]
        await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Give up every lock. The tasks end with the group they were given to."""
        for lock in list(self._locks.values()):
            try:
                await lock.release()
            except AnabranchError:
                continue  # the node goes with the session

    # --- what the store tells -------------------------------------------------------------------

    def _changed(self, event: Event) -> None:
        if event.kind is EventKind.GAP:
            self._look_at_everything(event)
            return
        lock = self._locks.get(event.path)
        if lock is not None:
            if lock.hear(event):
                self.look_soon(lock)
            self.settle(lock)
        elif event.kind is EventKind.CREATED and event.path in self._strays:
            self._sweep_soon(event.path)
        for changed in self._waiting.get(event.path, ()):
            _wake(changed)

    def _session_changed(self, event: SessionEvent) -> None:
        for lock in list(self._locks.values()):
            if lock.hear_session(event):
                self.look_soon(lock)
            self.settle(lock)
        if event is SessionEvent.CONNECTION_LOST:
            return
        for path in self._strays:
            self._sweep_soon(path)
        self._wake_all()

    def _look_at_everything(self, gap: Event) -> None:
        for lock in self._locks.values():
            if lock.hear(gap):
                self.look_soon(lock)
        for path in self._strays:
            self._sweep_soon(path)
        self._wake_all()

    def _wake_all(self) -> None:
        for waiting in self._waiting.values():
            for changed in waiting:
                _wake(changed)

    def look_soon(self, lock: Lock) -> None:
        """Read a lock's node, since it may not be ours any more."""
        if not self._tasks.closed:
            self._tasks.spawn(f"look at {lock.path}", lock.confirm())

    def settle(self, lock: Lock) -> None:
        """Tell a lock's owner if it was lost."""
        reason = lock.lost_because
        if reason is not None and not lock.expired.done():
            self.forget(lock)
            lock.expired.set_result(reason)

    def forget(self, lock: Lock) -> None:
        """Let go of a lock that is over, and remember the traces it may leave."""
        if self._locks.get(lock.path) is lock:
            del self._locks[lock.path]
        _wake(lock.over)
        if lock.in_doubt:
            self._strays[lock.path] = lock.session
            self._sweep_soon(lock.path)

    def _sweep_soon(self, path: str) -> None:
        if not self._tasks.closed:
            self._tasks.spawn(f"sweep {path}", self._sweep(path))

    async def _sweep(self, path: str) -> None:
        """Remove a node that an unanswered request of ours left behind."""
        session = self.store.session
        try:
            node = await self.store.get(path)
            if node is not None and node.stat.created_by_self and path not in self._locks:
                await self.store.delete(path, node.stat.version)
        except AnabranchError:
            return  # a reconnect sweeps again, and with the session the node goes by itself
        # A request that waited for a connection may be sent in the next session, but no later.
        if self._strays.get(path, session) != session:
            del self._strays[path]


def _wake(changed: "asyncio.Future[None]") -> None:
    if not changed.done():
        changed.set_result(None)
