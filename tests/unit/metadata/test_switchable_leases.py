"""What a process may read and hold whose registration others may not know any more."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest

from anabranch.metadata.announced import (
    JOURNAL_MAGIC,
    RESERVED_PATH,
    Announced,
    journal_path,
    write_document,
)
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.switchable.fence import raise_generation
from anabranch.metadata.switchable.part import SwitchPart
from anabranch.metadata.switchable.reserved import write_reserved
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.runtime.real import real_runtime

REGISTRATION = "/anabranch/migrations/metadata/participants/a"


class Leased:
    """A handle whose session can run out, by the clock that its user reads."""

    session_timeout_s = 1.0

    def __init__(self, handle: LocalHandle) -> None:
        self._handle = handle
        self.session_valid_until = float("inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


class Process:
    """One process on the first of two stores, registered there."""

    def __init__(self) -> None:
        clock = real_runtime().clock
        self.stores = {name: MemoryStore(clock) for name in ("source", "target")}
        self.side: Any
        self.store: SwitchableStore

    async def open(self, url: str) -> LocalHandle:
        return await self.stores[url].handle()

    async def start(self) -> None:
        self.side = Leased(await self.open("source"))
        clock, main = real_runtime().clock, await self.open("source")
        self.store = SwitchableStore(main, self.side, clock, "metadata", "a")
        await self.side.put(REGISTRATION, b"", ephemeral=True)


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = Process()
    await process.start()
    yield process
    for store in process.stores.values():
        await store.close()


@pytest.mark.goal("rel.A21", part="stale", broken_by="late_answers_are_believed")
async def test_nothing_is_read_from_a_store_that_others_may_have_left(process: Process) -> None:
    store, source, target = process.store, process.stores["source"], process.stores["target"]
    part = SwitchPart(store, "source", process.open)
    await store.put("/a", b"old")
    await target.put("/a", b"new")
    await target.put(RESERVED_PATH, write_reserved("source", "first"))
    await raise_generation(source, target)
    head = Announced("first", 1, 1, phase="switched", parameters={"target": "target"})
    journal = write_document(JOURNAL_MAGIC, {"announced": asdict(head)})
    await source.put(journal_path("metadata"), journal)
    process.side.session_valid_until = 0.0  # it missed the switch
    reading = asyncio.ensure_future(store.get("/a"))
    await asyncio.sleep(0.05)
    assert not reading.done(), "what it could read is old"
    await part.enter(head)
    async with asyncio.timeout(20.0):
        node = await reading
    assert node is not None
    assert node.value == b"new"
    await part.close()


async def test_lock_is_not_held_by_who_is_registered_no_more(process: Process) -> None:
    store, side = process.store, process.side
    await store.be_known()
    assert store.session_valid_until == float("inf")
    await side.delete(REGISTRATION)
    side.session = side.session + 1  # a new one, by which nobody knows this process
    assert store.session_valid_until == float("-inf"), "others may have gone on"
    await store.be_known()
    assert store.session_valid_until == float("-inf")
    await side.put(REGISTRATION, b"", ephemeral=True)
    await store.be_known()
    assert store.session_valid_until == float("inf")
