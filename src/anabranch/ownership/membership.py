"""The brokers of a cluster: this one makes itself known, and knows who else lives and who leads."""

import asyncio
from typing import Final

from anabranch import limits
from anabranch.errors import AnabranchError, LockBusy, OutcomeUnknown, SessionExpired, Unreachable
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.election import Election
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import MetadataStore
from anabranch.ownership.addresses import (
    BROKERS,
    LEADER,
    BrokerAddress,
    read_leader,
    read_registration,
)
from anabranch.ownership.limits import LEAVE_S_MAX
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_PREFIX: Final = "/loadbalance"
_log = get_logger("ownership")


class Membership:
    """One broker among others."""

    def __init__(
        self, store: MetadataStore, runtime: Runtime, tasks: Tasks, me: BrokerAddress
    ) -> None:
        self.me = me
        self._tasks = tasks
        self._locks = Locks(store, runtime.clock, tasks, prefix=_PREFIX)
        self._known: MetadataCache[BrokerAddress] = MetadataCache(
            store,
            runtime,
            decode=read_registration,
            encode=BrokerAddress.as_registration,
            prefix=BROKERS,
        )
        self._election = Election(self._locks, LEADER, me.as_leader(), tasks)
        self._registration: Lock | None = None
        self._staying: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Register, and stay registered; wait for the first time."""
        self._known.start(self._tasks)
        self._locks.start()
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._staying = self._tasks.spawn("stay registered", self._stay_registered(joined))
        await joined
        self._election.stand()

    async def _stay_registered(self, joined: "asyncio.Future[None]") -> None:
        path = f"{BROKERS}/{self.me.broker_id}"
        while True:
            with self._locks.change_of(path) as changed:
                try:
                    lock = await self._locks.acquire(path, self.me.as_registration())
                except LockBusy as busy:
                    _log.warning("broker_id_taken", broker=self.me.broker_id, reason=str(busy))
                    await self._locks.wait_for(path, changed)
                    continue
                except (OutcomeUnknown, Unreachable, SessionExpired):
                    await asyncio.wait([changed], timeout=limits.LOCK_RETRY_S)
                    continue
            self._registration = lock
            if not joined.done():
                joined.set_result(None)
            await asyncio.wait([lock.expired])
            self._registration = None

    async def brokers(self) -> dict[str, BrokerAddress]:
        """Every broker that lives, by its id, in order."""
        found = {}
        for broker_id in await self._known.children(BROKERS):
            address = await self._known.get(f"{BROKERS}/{broker_id}")
            if address is not None:
                found[broker_id] = address
        return found

    @property
    def leader(self) -> str | None:
        """The id of the broker that leads, as last heard of."""
        found = self._election.leader
        return None if found is None else read_leader(found)

    async def leave(self) -> None:
        """Be known no more; without an answer in time that comes with the end of the session."""
        staying, self._staying = self._staying, None
        if staying is None:
            return
        staying.cancel()
        await asyncio.wait([staying])
        lock, self._registration = self._registration, None
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._election.resign()
                if lock is not None:
                    await lock.release()
        except (AnabranchError, TimeoutError) as error:
            _log.warning("not_signed_off", broker=self.me.broker_id, reason=str(error))
