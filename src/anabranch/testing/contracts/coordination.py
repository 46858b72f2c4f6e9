"""Several processes' worth of handles on one store, for tests of what they coordinate by."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.election import Election
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.locks import Lock, Locks
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks

LOCK = "/locks/mill"
WAIT_S_MAX = 10.0


class Participant:
    """What one process has."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda _name, failure: self.failures.append(failure))
        self.locks = Locks(store, real_runtime().clock, self.tasks)
        self.locks.start()

    def election(self, value: bytes) -> Election:
        return Election(self.locks, LOCK, value, self.tasks)

    def cache(self) -> MetadataCache[dict[str, int]]:
        cache: MetadataCache[dict[str, int]] = MetadataCache(
            self.store,
            real_runtime(),
            decode=json.loads,
            encode=lambda value: json.dumps(value).encode(),
        )
        cache.start(self.tasks)
        return cache

    async def close(self) -> None:
        await self.tasks.close()
        assert self.failures == []


@dataclass
class Place:
    """A store, and how several processes come to it."""

    join: Callable[[], Awaitable[Participant]]
    kill: Callable[[MetadataStore], Awaitable[None]]
    """End a session as if its client had not been heard of for too long."""
    joined: list[Participant]
    """All who came."""

    @property
    def failures(self) -> list[BaseException]:
        """What broke in the background of any of them, which nothing may."""
        return [failure for participant in self.joined for failure in participant.failures]

    @property
    def kinds(self) -> set[type]:
        """On which kinds of store they met."""
        return {type(participant.store) for participant in self.joined}


@asynccontextmanager
async def open_place(kind: str, folder: str) -> AsyncIterator[Place]:
    """A new store of a kind: memory, embedded or served."""
    url = "memory:" if kind == "memory" else f"embedded:{folder}/store"
    store = cast("LocalHandle", await open_store(url, real_runtime()))
    joined: list[Participant] = []
    server = MetadataServer(real_runtime(), store, on_failure=failed)
    if kind == "served":
        await server.start("127.0.0.1", 0)

    async def join() -> Participant:
        if kind == "served":
            address = f"anabranch://127.0.0.1:{server.port}"
            joined.append(Participant(await open_store(address, real_runtime())))
        else:
            joined.append(Participant(await store.handle()))
        return joined[-1]

    async def kill(victim: MetadataStore) -> None:
        number = victim.session
        await store.end_session(number)
        if kind == "served":
            # By its clock the session has not run out: only the server can tell it.
            await until(lambda: victim.session_valid_until < 0 or victim.session != number)

    yield Place(join, kill, joined)
    for participant in joined:
        await participant.close()
        await participant.store.close()
    if kind == "served":
        await server.close()
    await store.close()


def failed(name: str, error: BaseException) -> None:
    """A background task broke, which none may."""
    raise AssertionError(f"{name}: {error!r}")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something to come true."""

    async def ask() -> bool:
        return condition()

    await until_shown(ask)


async def until_shown(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a question is answered by yes."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.001)


async def lost(lock: Lock) -> str:
    """Wait until a lock is lost; returns why."""
    async with asyncio.timeout(WAIT_S_MAX):
        return await asyncio.shield(lock.expired)
