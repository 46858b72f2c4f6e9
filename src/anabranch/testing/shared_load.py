"""Clients of one metadata store that count, lock and watch while somebody hurts the connections.

All run on one loop, so what two of them believe can be compared in one moment. `judge` tells what
was wrong afterwards: a write that was lost, or done though it was refused, or done twice; two
holders of one lock; a change that a watch did not tell though there was no gap, or told twice; a
node that outlived its session or not.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import AnabranchError, BadVersion, Fenced, OutcomeUnknown, SessionExpired
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.store import ABSENT, Expected, MetadataStore, Revision, SessionEvent
from anabranch.runtime import Clock
from anabranch.runtime.tasks import Tasks
from anabranch.testing.heard_changes import HeardChanges

COUNTS: Final = "/counts"
LOCK: Final = "/locks/shared"
SHARED: Final = "/shared"
OWNED: Final = "/owned"
_REST_S: Final = 0.005
_HOLD_WRITES: Final = 3
_LOOK_EVERY_S: Final = 0.002
_END_S_MAX: Final = 30.0


@dataclass(slots=True)
class Findings:
    """What came of a load, over all clients."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    late: int = 0
    """Writes of unknown outcome that were carried out after somebody had read back."""
    locks: int = 0
    guarded: int = 0
    guarded_unknown: int = 0
    gaps: int = 0
    sessions_lost: int = 0
    events: int = 0
    compared: int = 0
    """Changes that were looked for by their revision in what a watch with gaps told."""
    wrong: list[str] = field(default_factory=list)


class Counter:
    """A number that one client counts up by conditional writes, one at a time."""

    def __init__(self, store: MetadataStore, path: str, found: Findings) -> None:
        self.path = path
        self.value = 0
        self.settled = True
        """Whether `value` is what was last acknowledged, or read back."""
        self.made: set[Revision] = set()
        """Where in the store's history its changes are, as far as that is known."""
        self._store = store
        self._found = found

    async def count(self, stop: asyncio.Event) -> None:
        """Count until told to stop."""
        version: Expected = ABSENT
        doubtful = False
        while not stop.is_set():
            try:
                if not self.settled:
                    version = await self._read_back()
                stat = await self._store.put(self.path, b"%d" % (self.value + 1), version)
            except OutcomeUnknown:
                self._found.unknown += 1
                self.settled, doubtful = False, True
            except BadVersion as error:
                # Only a write of unknown outcome may be carried out as late as this.
                if not doubtful:
                    self._found.wrong.append(f"{self.path}: {error}")
                self._found.late += 1
                self.settled, doubtful = False, False
            except AnabranchError:
                self._found.refused += 1
                await asyncio.sleep(10 * _REST_S)
            else:
                self.value, version = self.value + 1, stat.version
                self.made.add(stat.revision)
                doubtful = False
                self._found.acknowledged += 1
                await asyncio.sleep(_REST_S)

    async def _read_back(self) -> Expected:
        node = await self._store.get(self.path)
        found = 0 if node is None else int(node.value)
        if found not in (self.value, self.value + 1):
            self._found.wrong.append(f"{self.path} is {found} after {self.value}")
        self.value, self.settled = found, True
        if node is None:
            return ABSENT
        self.made.add(node.stat.revision)
        return node.stat.version


class Client:
    """One client: counts, takes the lock in turns, watches everybody."""

    def __init__(
        self, store: MetadataStore, name: str, clock: Clock, found: Findings, *, counters: int = 1
    ) -> None:
        self.store = store
        self.name = name
        self.counters = [
            Counter(store, f"{COUNTS}/{name}-{number}", found) for number in range(counters)
        ]
        self.session_news: list[SessionEvent] = []
        self.heard = HeardChanges()
        self.lock: Lock | None = None
        self._found = found
        self._tasks = Tasks(self._failed)
        self._locks = Locks(store, clock, self._tasks)
        self._stop = asyncio.Event()
        self._last_heard = asyncio.Event()
        self._heard_more = asyncio.Event()
        self._work: asyncio.Future[list[None]] | None = None

    def _failed(self, name: str, failure: BaseException) -> None:
        self._found.wrong.append(f"{self.name}: {name} broke: {failure!r}")

    @property
    def fewest(self) -> int:
        """How far the slowest of its counters is."""
        return min(counter.value for counter in self.counters)

    @property
    def session_lost(self) -> bool:
        """Whether the session ended meanwhile."""
        return SessionEvent.SESSION_LOST in self.session_news

    @property
    def holds(self) -> bool:
        """Whether it believes that the lock is its own."""
        return self.lock is not None and self.lock.held

    async def listen(self) -> None:
        """Watch, and be seen; before anybody begins to work. The store answers now."""
        self._locks.start()
        changes, news = self.store.watch(COUNTS), self.store.session_events()

        async def hear_changes() -> None:
            async for event in changes:
                if wrong := self.heard.hear(event):
                    self._found.wrong.append(f"{self.name}: {wrong}")
                self._heard_more.set()
                if event.path == f"{COUNTS}/end":
                    self._last_heard.set()

        async def hear_news() -> None:
            async for event in news:
                self.session_news.append(event)

        self._tasks.spawn("hear changes", hear_changes())
        self._tasks.spawn("hear news", hear_news())
        await self.store.put(f"{OWNED}/{self.name}", b"", ABSENT, ephemeral=True)

    def begin(self) -> None:
        """Work until `stop`."""
        counting = [counter.count(self._stop) for counter in self.counters]
        self._work = asyncio.gather(*counting, self._take_turns())

    async def stop(self) -> None:
        """Finish what is under way."""
        assert self._work is not None
        self._stop.set()
        async with asyncio.timeout(_END_S_MAX):
            await self._work

    async def hear_the_end(self) -> None:
        """Wait until the watch has told the last change."""
        async with asyncio.timeout(_END_S_MAX):
            await self._last_heard.wait()

    async def hear_of(self, path: str, changes: int) -> None:
        """Wait until so many changes were told, or for as long as is fair.

        The last change of all may be told sooner, if it is of another shard.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S_MAX):
                while self.heard.times_told(path) < changes:
                    self._heard_more.clear()
                    await self._heard_more.wait()

    async def close(self) -> None:
        """Let go of the store."""
        await self._tasks.close()
        await self.store.close()

    # --- the lock -----------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        last = None
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(2.0):
                    self.lock = await self._locks.acquire_when_free(LOCK, self.name.encode())
            except (AnabranchError, TimeoutError):
                await asyncio.sleep(_REST_S)
                continue
            if last is not None and self.lock.token <= last:
                self._found.wrong.append(f"{self.name} got {self.lock.token} after {last}")
            last = self.lock.token
            self._found.locks += 1
            await self._use(self.lock)
            try:
                await self.lock.release()
            except AnabranchError:
                continue  # the node goes once the store answers, or with the session
            await asyncio.sleep(_REST_S)

    async def _use(self, lock: Lock) -> None:
        for _ in range(_HOLD_WRITES):
            sent = False
            try:
                guard = lock.guard()
                node = await self.store.get(SHARED)
                value = 0 if node is None else int(node.value)
                version: Expected = ABSENT if node is None else node.stat.version
                sent = True
                await self.store.put(SHARED, b"%d" % (value + 1), version, guard=guard)
                # A store that cannot check guards leaves this to us.
                lock.check()
            except (Fenced, SessionExpired):
                self._found.guarded_unknown += sent
                return
            except OutcomeUnknown:
                self._found.guarded_unknown += 1
            except AnabranchError:
                return
            else:
                self._found.guarded += 1


async def look(clients: Sequence[Client], found: Findings) -> None:
    """See all the time that no two hold the lock; until cancelled."""
    while True:
        if len(holders := [client.name for client in clients if client.holds]) > 1:
            found.wrong.append(f"the lock is held by {holders}")
        await asyncio.sleep(_LOOK_EVERY_S)


async def judge(
    clients: Sequence[Client],
    reader: MetadataStore,
    found: Findings,
    *,
    one_history: bool = True,
) -> None:
    """Compare what clients were told with what is there, as somebody else sees it.

    Args:
        clients: who have stopped.
        reader: a handle of its own.
        found: what is wrong is added here.
        one_history: whether a change has the same revision for all clients; otherwise what a
            client with gaps was told can be compared with nothing.
    """
    await reader.sync()
    for client in clients:
        for counter in client.counters:
            node = await reader.get(counter.path)
            there = 0 if node is None else int(node.value)
            if there != counter.value and (counter.settled or there != counter.value + 1):
                found.wrong.append(f"{counter.path} is {there}, acknowledged was {counter.value}")
        owned = await _owned(client, reader)
        if owned is client.session_lost:
            found.wrong.append(
                f"{client.name} lost its session: {client.session_lost}; its node exists: {owned}"
            )
        found.sessions_lost += client.session_lost
    shared = await reader.get(SHARED)
    total = 0 if shared is None else int(shared.value)
    if not found.guarded <= total <= found.guarded + found.guarded_unknown:
        found.wrong.append(
            f"{SHARED} is {total}: {found.guarded} writes under the lock were acknowledged, "
            f"of {found.guarded_unknown} nobody knows"
        )
    await _judge_watches(clients, reader, found, one_history=one_history)


async def _owned(client: Client, reader: MetadataStore) -> bool:
    """Whether the client's own node is there; if its session ended, after the store knows it."""
    path = f"{OWNED}/{client.name}"
    if client.session_lost:
        gone = reader.watch(path)
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S_MAX):
                while await reader.exists(path):
                    await anext(gone)
    return await reader.exists(path)


async def _judge_watches(
    clients: Sequence[Client], reader: MetadataStore, found: Findings, *, one_history: bool
) -> None:
    await reader.put(f"{COUNTS}/end", b"")
    for client in clients:
        await client.hear_the_end()
        found.gaps += client.heard.gaps
        found.events += client.heard.count
        for counter in (counter for other in clients for counter in other.counters):
            await _judge_watch(client, counter, reader, found, one_history=one_history)


async def _judge_watch(
    client: Client, counter: Counter, reader: MetadataStore, found: Findings, *, one_history: bool
) -> None:
    """Whether a client was told of the changes of a counter."""
    heard = client.heard
    node = await reader.get(counter.path)
    changes = 0 if node is None else node.stat.version.native + 1
    if not heard.gaps:
        await client.hear_of(counter.path, changes)
        if (told := heard.times_told(counter.path)) != changes:
            found.wrong.append(
                f"{client.name} was told {told} of {changes} changes of {counter.path}"
            )
    if one_history:
        made = counter.made if node is None else counter.made | {node.stat.revision}
        found.compared += len(made) if heard.gaps else 0
        wrong = heard.wrong_with(counter.path, made, changes)
        found.wrong += (f"{client.name} {said}" for said in wrong)
