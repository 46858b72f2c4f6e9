"""The owner of bundles among several brokers: locks taken on demand, and lookups that find them.

A lookup of a bundle that nobody has is sent to the broker that `placement` names, which takes it.
Nothing is decided here that ledgers depend on: a broker that believes too long in its ownership is
fenced by its successor.
"""

import asyncio
from collections.abc import Callable

from anabranch.errors import AnabranchError, ConflictError, Fenced, LockBusy, NotFound, Unreachable
from anabranch.ids import TopicName
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.parted import part_holding
from anabranch.metadata.store import MetadataStore
from anabranch.ownership.addresses import BrokerAddress, BundleOwner, read_owner
from anabranch.ownership.bundles import BUNDLES, Bundle, NamespaceBundles
from anabranch.ownership.contract import Whereabouts
from anabranch.ownership.handovers import Handovers
from anabranch.ownership.layouts import Layouts
from anabranch.ownership.limits import LEAVE_S_MAX, OWNER_CACHE_ENTRIES_MAX
from anabranch.ownership.membership import Membership
from anabranch.ownership.placement import place
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

_log = get_logger("ownership")


class ClusterOwnership:
    """The bundles of one broker among others. An `Ownership`."""

    def __init__(
        self, store: MetadataStore, runtime: Runtime, tasks: Tasks, me: BrokerAddress
    ) -> None:
        self.me = me
        self.membership = Membership(store, runtime, tasks, me)
        self.layouts = Layouts(store, runtime)
        self._store = part_holding(store, BUNDLES)
        self.on_lost: Callable[[Bundle], None] = lambda bundle: None
        self._tasks = tasks
        self._locks = Locks(store, runtime.clock, tasks, prefix=BUNDLES)
        self._owners: MetadataCache[BundleOwner] = MetadataCache(
            store,
            runtime,
            decode=read_owner,
            encode=lambda owner: owner.address.as_owner(),
            prefix=BUNDLES,
            entries_max=OWNER_CACHE_ENTRIES_MAX,
        )
        self._held: dict[Bundle, Lock] = {}
        self._claiming: dict[Bundle, asyncio.Task[Lock | AnabranchError]] = {}
        self._unloading: dict[Bundle, BrokerAddress | None] = {}
        """Bundles that are being given up, and to whom."""
        self._handovers = Handovers(store, runtime.clock)
        self._leaving = False

    async def start(self) -> None:
        """See `Ownership.start`."""
        self._owners.start(self._tasks)
        self.layouts.start(self._tasks)
        self._locks.start()
        self._handovers.start(self._tasks)
        await self.membership.join()

    # --- who has what -------------------------------------------------------------------------

    async def locate(self, topic: TopicName, *, authoritative: bool = False) -> Whereabouts:
        """See `Ownership.locate`."""
        self._refuse_without_session()
        layout = await self.layouts.of(topic.namespace_name)
        bundle = layout.of(topic)
        if bundle in self._unloading:
            raise ConflictError(f"bundle {bundle} is being unloaded")
        if bundle in self._held:
            return Whereabouts(self.me)
        owner = await self._other_owner(bundle)
        if owner is not None:
            return Whereabouts(owner)
        target = await self._candidate(layout, bundle, authoritative=authoritative)
        if target.broker_id != self.me.broker_id:
            return Whereabouts(target, is_owner=False)
        return Whereabouts(await self._take(bundle))

    async def require(self, topic: TopicName) -> None:
        """See `Ownership.require`."""
        self._refuse_without_session()
        bundle = (await self.layouts.of(topic.namespace_name)).of(topic)
        if bundle in self._unloading or self._leaving:
            raise Fenced(f"bundle {bundle} of {topic} is being unloaded")
        lock = self._held.get(bundle)
        if lock is not None:
            lock.check()
            return
        owner = await self._other_owner(bundle)
        if owner is not None:
            # The client may have been sent by that very owner, and be faster than the watch.
            await self._store.sync()
            self._owners.invalidate(bundle.path)
            owner = await self._other_owner(bundle)
        owner = owner or self._handovers.to(bundle) or await self._take(bundle)
        if owner.broker_id != self.me.broker_id:
            raise Fenced(
                f"Namespace bundle for topic ({topic}) not served by this instance: "
                f"{owner.broker_id} has it. Please redo the lookup."
            )

    def owns(self, topic: TopicName) -> bool:
        """See `Ownership.owns`."""
        return any(lock.held and bundle.holds(topic) for bundle, lock in self._held.items())

    def owned(self) -> list[Bundle]:
        """See `Ownership.owned`."""
        return sorted(self._held)

    async def owner_of(self, bundle: Bundle) -> BrokerAddress | None:
        """See `Ownership.owner_of`."""
        return self.me if bundle in self._held else await self._other_owner(bundle)

    async def leader(self) -> BrokerAddress | None:
        """See `Ownership.leader`."""
        leader = self.membership.leader
        return None if leader is None else (await self.membership.brokers()).get(leader)

    def _refuse_without_session(self) -> None:
        """Have clients ask others at once, who may know: here they would wait for the store.

        Raises:
            Unreachable: if the store was not heard of for so long that nothing is owned here.
        """
        if not self._locks.lease.runs(self._store.session):
            raise Unreachable(f"{self.me.broker_id} has no session with its metadata store")

    async def _other_owner(self, bundle: Bundle) -> BrokerAddress | None:
        owner = await self._owners.get(bundle.path)
        if owner is None or owner.address.broker_id == self.me.broker_id:
            return None  # nobody, or an earlier life of this broker, which takes it back
        if owner.disabled:
            raise ConflictError(f"bundle {bundle} is being unloaded")
        return owner.address

    async def _candidate(
        self, layout: NamespaceBundles, bundle: Bundle, *, authoritative: bool
    ) -> BrokerAddress:
        brokers = await self.membership.brokers()
        given = self._handovers.to(bundle)
        if given is not None and given.broker_id in brokers:
            return given
        if authoritative and not self._leaving:
            return self.me
        if self._leaving:
            brokers.pop(self.me.broker_id, None)
        if not brokers:
            raise ConflictError("no broker is there to take a bundle")
        return brokers[place(layout.all, list(brokers))[bundle]]

    # --- taking a bundle ------------------------------------------------------------------------

    async def _take(self, bundle: Bundle) -> BrokerAddress:
        """Take a bundle, and return who has it now."""
        claiming = self._claiming.get(bundle)
        if claiming is None:
            claiming = self._tasks.spawn(f"claim {bundle}", self._claim(bundle))
            self._claiming[bundle] = claiming
        claimed = await asyncio.shield(claiming)
        if isinstance(claimed, Lock):
            return self.me
        if isinstance(claimed, LockBusy) and claimed.holder:
            return read_owner(claimed.holder).address
        raise claimed

    async def _claim(self, bundle: Bundle) -> Lock | AnabranchError:
        try:
            lock = self._held.get(bundle)
            if lock is not None:
                return lock
            if self._leaving:
                return ConflictError(f"{self.me.broker_id} takes no more bundles: it stops")
            lock = await self._locks.acquire(bundle.path, self.me.as_owner())
        except AnabranchError as error:
            return error
        finally:
            del self._claiming[bundle]
        self._held[bundle] = lock
        self._handovers.taken(bundle)
        _log.info("bundle_taken", bundle=str(bundle), lock=str(lock.token))
        lock.expired.add_done_callback(lambda _: self._lost(bundle, lock))
        return lock

    def _lost(self, bundle: Bundle, lock: Lock) -> None:
        if self._held.get(bundle) is lock:
            del self._held[bundle]
            _log.warning("bundle_lost", bundle=str(bundle), reason=lock.lost_because)
            self.on_lost(bundle)

    # --- giving a bundle up ---------------------------------------------------------------------

    async def leave(self) -> None:
        """See `Ownership.leave`."""
        self._leaving = True
        while self._claiming:
            await asyncio.wait(list(self._claiming.values()))
        await self.membership.leave()

    async def begin_unload(self, bundle: Bundle, to: str = "") -> BrokerAddress | None:
        """See `Ownership.begin_unload`."""
        if bundle not in self._held:
            raise NotFound(f"bundle {bundle} is not owned by {self.me.broker_id}")
        if bundle in self._unloading:
            raise ConflictError(f"bundle {bundle} is being unloaded already")
        self._unloading[bundle] = None
        try:
            target = await self._next_owner(bundle, to)
        except AnabranchError:
            del self._unloading[bundle]
            raise
        self._unloading[bundle] = target
        return target

    async def _next_owner(self, bundle: Bundle, to: str) -> BrokerAddress | None:
        brokers = await self.membership.brokers()
        brokers.pop(self.me.broker_id, None)
        if to:
            if to not in brokers:
                raise NotFound(f"there is no other broker {to}; there are {', '.join(brokers)}")
            return brokers[to]
        if not brokers:
            return None
        layout = await self.layouts.of(bundle.namespace)
        placed = place(layout.all, list(brokers))
        return brokers[placed[bundle]] if bundle in placed else None

    async def finish_unload(self, bundle: Bundle) -> None:
        """See `Ownership.finish_unload`."""
        target = self._unloading.pop(bundle)
        lock = self._held.pop(bundle, None)
        if lock is None:
            return  # lost meanwhile, and perhaps somebody else's already
        if target is not None:
            self._handovers.give(bundle, target)
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await lock.release()
        except (AnabranchError, TimeoutError) as error:
            # The node goes with the session; the ledgers are closed already.
            _log.warning("bundle_not_released", bundle=str(bundle), reason=str(error))
        else:
            _log.info("bundle_released", bundle=str(bundle))

    async def close(self) -> None:
        """See `Ownership.close`."""
        await self.leave()
        self._held.clear()
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._locks.close()
        except TimeoutError:
            _log.warning("bundles_not_released", broker=self.me.broker_id)
