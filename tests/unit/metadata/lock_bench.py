"""One participant on a store that loses things, for the tests of locks and elections."""

import asyncio
from typing import cast

from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore, SessionEvent
from anabranch.runtime.tasks import Tasks
from anabranch.testing.unanswered import UnansweredStore

LOCK = "/locks/mill"


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.now_s


class Bench:
    """One participant on a store that can be told to lose things, and a second look at the tree."""

    def __init__(self, base: MemoryStore) -> None:
        self.base = base
        self.clock = HandClock()
        self.store = UnansweredStore(base)
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda _name, failure: self.failures.append(failure))
        self.locks = Locks(cast("MetadataStore", self.store), self.clock, self.tasks)

    async def start(self) -> None:
        self.locks.start()
        await settle()

    async def acquire(self) -> Lock:
        return await self.locks.acquire(LOCK, b"ash")

    def news(self, event: SessionEvent) -> None:
        self.store.news.publish(event)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
