"""Which bookies there are, which of them take entries, and how each is reached.

Bookies register themselves by ephemeral nodes; a watch tells of those that come and go. The list
is as good as the last answer of the metadata store: while nobody answers, it stays as it was, for
bookies and their clients go on without the store. An address outlives its registration, since old
segments name bookies that are away for the moment.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anabranch import limits
from anabranch.errors import AlreadyClosed, AnabranchError, FormatError, NotFound
from anabranch.ledgers.bookkeeper.ledger_paths import LedgerPaths
from anabranch.ledgers.bookkeeper.service_info import (
    BookieAddress,
    address_in_id,
    registered_address,
)
from anabranch.metadata.paths import name_of, parent_of
from anabranch.metadata.store import Event, EventKind, MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks

Listener = Callable[[], None]


class Bookies:
    """The bookies of a cluster."""

    def __init__(self, store: MetadataStore, runtime: Runtime, paths: LedgerPaths) -> None:
        self._store = store
        self._runtime = runtime
        self._paths = paths
        self._groups: dict[str, dict[str, BookieAddress]] = {
            paths.available: {},
            paths.read_only: {},
        }
        self._addresses: dict[str, BookieAddress] = {}
        self._faults: dict[str, str] = {}
        self._quarantined_until_s: dict[str, float] = {}
        self._left_s: dict[str, float] = {}
        """When each of those that were registered, and are not, was missed first."""
        self._listeners: dict[Listener, None] = {}

    async def start(self, tasks: Tasks) -> None:
        """Learn which bookies there are, and begin to listen; before anything is asked.

        Raises:
            Unreachable: if the metadata store cannot be asked.
        """
        changes = self._store.watch(self._paths.available)
        await self._read_all()

        async def hear() -> None:
            async for event in changes:
                await self._changed(event)

        tasks.spawn("bookies", hear())

    # --- asking -------------------------------------------------------------------------------

    def writable(self, *, with_quarantined: bool = False) -> tuple[str, ...]:
        """Ids of the bookies that take entries, in order; without those that failed of late."""
        there = sorted(self._groups[self._paths.available])
        if with_quarantined:
            return tuple(there)
        return tuple(bookie_id for bookie_id in there if not self.quarantined(bookie_id))

    def read_only(self) -> tuple[str, ...]:
        """Ids of the bookies that give entries and take none, in order."""
        return tuple(sorted(self._groups[self._paths.read_only]))

    def gone_for_s(self, bookie_id: str) -> float:
        """For how long a bookie that was here has not been registered; 0 if it is."""
        left_s = self._left_s.get(bookie_id)
        return 0.0 if left_s is None else self._runtime.clock.monotonic_s() - left_s

    def address(self, bookie_id: str) -> BookieAddress:
        """Where a bookie is, or was when it was last seen.

        Raises:
            NotFound: if it was never seen and its id does not say.
        """
        known = self._addresses.get(bookie_id)
        if known is not None:
            return known
        try:
            return address_in_id(bookie_id)
        except FormatError:
            reason = self._faults.get(bookie_id, "it is not registered")
            raise NotFound(f"nobody knows where bookie {bookie_id} is: {reason}") from None

    @property
    def faults(self) -> Mapping[str, str]:
        """Bookies whose registration cannot be used, and why."""
        return MappingProxyType(self._faults)

    # --- bookies that failed ------------------------------------------------------------------

    def quarantine(self, bookie_id: str, *, seconds: float = limits.BOOKIE_QUARANTINE_S) -> None:
        """Give a bookie that failed no new ledgers for some time."""
        self._quarantined_until_s[bookie_id] = self._runtime.clock.monotonic_s() + seconds

    def quarantined(self, bookie_id: str) -> bool:
        """Whether a bookie failed of late."""
        until_s = self._quarantined_until_s.get(bookie_id)
        if until_s is None:
            return False
        if self._runtime.clock.monotonic_s() < until_s:
            return True
        del self._quarantined_until_s[bookie_id]
        return False

    # --- hearing of changes -------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Call a function, which must not wait, after the bookies or their addresses changed."""
        self._listeners[listener] = None

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        self._listeners.pop(listener, None)

    async def _changed(self, event: Event) -> None:
        delay_s = limits.UPDATE_BACKOFF_S_MIN
        read_one = event.kind is not EventKind.GAP
        while True:
            try:
                if read_one:
                    await self._read_one(event.path)
                else:
                    await self._read_all()
            except AlreadyClosed:
                return
            except AnabranchError:
                # What an event told of is not lost: everything is read as soon as it can be.
                read_one = False
                await asyncio.sleep(self._runtime.entropy.uniform(delay_s / 2, delay_s))
                delay_s = min(delay_s * 2, limits.UPDATE_BACKOFF_S_MAX)
            else:
                return

    async def _read_one(self, path: str) -> None:
        group = self._groups.get(parent_of(path))
        if group is None or path in self._groups:
            return
        node = await self._store.get(path)
        before = dict(group)
        if node is None:
            group.pop(name_of(path), None)
            self._faults.pop(name_of(path), None)
        else:
            self._register(group, name_of(path), node.value)
        if group != before:
            self._tell()

    async def _read_all(self) -> None:
        found: dict[str, dict[str, bytes]] = {path: {} for path in self._groups}
        async for node in self._store.scan(self._paths.available):
            path = node.stat.path
            if path not in self._groups and parent_of(path) in found:
                found[parent_of(path)][name_of(path)] = node.value
        before = {path: dict(group) for path, group in self._groups.items()}
        self._faults.clear()
        for path, values in found.items():
            group = self._groups[path]
            for bookie_id in before[path]:
                if bookie_id not in values:
                    del group[bookie_id]
            for bookie_id, value in values.items():
                self._register(group, bookie_id, value)
        if self._groups != before:
            self._tell()

    def _register(self, group: dict[str, BookieAddress], bookie_id: str, value: bytes) -> None:
        try:
            address = registered_address(bookie_id, value)
        except FormatError as fault:
            group.pop(bookie_id, None)
            self._faults[bookie_id] = str(fault)
            return
        if bookie_id not in group:
            # One that comes back has earned another try.
            self._quarantined_until_s.pop(bookie_id, None)
        group[bookie_id] = address
        self._addresses[bookie_id] = address
        self._faults.pop(bookie_id, None)

    def _tell(self) -> None:
        now_s = self._runtime.clock.monotonic_s()
        for bookie_id in self._addresses:
            if any(bookie_id in group for group in self._groups.values()):
                self._left_s.pop(bookie_id, None)
            else:
                self._left_s.setdefault(bookie_id, now_s)
        for listener in tuple(self._listeners):
            listener()
