"""A process that others went on without: what it buffered, and what it reads when it wakes."""

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
    participants_path,
    write_document,
)
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.switchable.fence import raise_fence, raise_generation
from anabranch.metadata.switchable.part import SwitchPart
from anabranch.metadata.switchable.reserved import write_reserved
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.runtime.real import real_runtime

LOOKS_S = 0.2
"""Long enough for several looks of somebody who would go on by mistake."""


def announced(phase: str) -> Announced:
    return Announced("first", 1, 1, phase=phase, parameters={"target": "target"})


class Leased:
    """A handle whose session can run out, by the clock that its user reads."""

    session_timeout_s = 1.0

    def __init__(self, handle: LocalHandle) -> None:
        self._handle = handle
        self.session_valid_until = float("inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


class Sleeper:
    """A process that takes part, and then hears of nothing."""

    def __init__(self, stores: dict[str, MemoryStore]) -> None:
        self.stores = stores
        self._opened: list[MetadataStore] = []
        self.store: SwitchableStore
        self.part: SwitchPart
        self._side: Leased

    async def open(self, url: str) -> LocalHandle:
        handle = await self.stores[url].handle()
        self._opened.append(handle)
        return handle

    async def take_part(self) -> None:
        self._side = Leased(await self.open("source"))
        side: Any = self._side
        clock = real_runtime().clock
        self.store = SwitchableStore(await self.open("source"), side, clock, "metadata", "a")
        self.part = SwitchPart(self.store, "source", self.open)
        await side.put(f"{participants_path('metadata')}/a", b"", ephemeral=True)
        await self.store.put("/a", b"0")
        await self.part.enter(announced("preparing"))

    async def others_switch(self) -> None:
        """What happens while it sleeps: nobody has heard of it since long ago."""
        self._side.session_valid_until = 0.0
        source, target = self.stores["source"], self.stores["target"]
        await target.put(RESERVED_PATH, write_reserved("source", "first"))
        await raise_fence(source, "first forth")
        async for record in source.export("/"):
            ours = record.path == "/" or record.path.startswith("/anabranch")
            if record.session is None and not ours:
                await target.restore(_one(record))
        await raise_generation(source, target)
        document = {"announced": asdict(announced("switched"))}
        await source.put(journal_path("metadata"), write_document(JOURNAL_MAGIC, document))
        await target.put("/a", b"by others")

    async def value(self, name: str) -> bytes | None:
        node = await self.stores[name].get("/a")
        return None if node is None else node.value

    async def close(self) -> None:
        await self.part.close()
        for handle in self._opened:
            await handle.close()


async def _one(record: Record) -> AsyncIterator[Record]:
    yield record


@pytest.fixture
async def sleeper() -> AsyncIterator[Sleeper]:
    clock = real_runtime().clock
    sleeper = Sleeper({name: MemoryStore(clock) for name in ("source", "target")})
    await sleeper.take_part()
    yield sleeper
    await sleeper.close()
    for store in sleeper.stores.values():
        await store.close()


async def test_what_it_had_buffered_never_lands_in_the_store_that_was_left(
    sleeper: Sleeper,
) -> None:
    await sleeper.others_switch()
    late = asyncio.ensure_future(sleeper.store.put("/a", b"late"))
    await asyncio.sleep(LOOKS_S)
    assert not late.done()
    assert await sleeper.value("source") == b"0", "nobody will ever read it there"
    await sleeper.part.enter(announced("switched"))
    await late
    assert (await sleeper.value("source"), await sleeper.value("target")) == (b"0", b"late")


async def test_what_it_reads_is_of_the_store_in_use(sleeper: Sleeper) -> None:
    node = await sleeper.store.get("/a")
    assert node is not None
    assert node.value == b"0"
    await sleeper.others_switch()
    reading = asyncio.ensure_future(sleeper.store.get("/a"))
    await asyncio.sleep(LOOKS_S)
    assert not reading.done(), "it does not say what was"
    await sleeper.part.enter(announced("switched"))
    node = await reading
    assert node is not None
    assert node.value == b"by others"


async def test_a_fence_of_an_attempt_that_is_over_is_no_obstacle(sleeper: Sleeper) -> None:
    source = sleeper.stores["source"]
    await raise_fence(source, "first forth")
    document = {"announced": asdict(announced("failed"))}
    await source.put(journal_path("metadata"), write_document(JOURNAL_MAGIC, document))
    await sleeper.store.put("/a", b"1")
    assert await sleeper.value("source") == b"1"
