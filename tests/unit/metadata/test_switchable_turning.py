"""A process turns to another store and back, while sessions end and stores are gone."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest

from anabranch.errors import AlreadyClosed, ConflictError, SessionExpired, Unreachable
from anabranch.metadata.announced import (
    JOURNAL_MAGIC,
    RESERVED_PATH,
    Announced,
    journal_path,
    write_document,
)
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import ABSENT, SessionEvent
from anabranch.metadata.switchable.fence import generation_of_store, raise_generation
from anabranch.metadata.switchable.part import SwitchPart
from anabranch.metadata.switchable.reserved import write_reserved
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.runtime.real import real_runtime

FORTH = ("preparing", "freezing", "rejoining", "fencing", "switching")
BACK = ("switched", "reverifying", "refreezing", "returning", "refencing", "reverting")


def announced(phase: str, attempt: str = "first", number: int = 1) -> Announced:
    return Announced(attempt, number, 1, phase=phase, parameters={"target": "target"})


class Handle:
    """A handle that can be cut off, and whose session can end."""

    session_timeout_s = 1.0

    def __init__(self, handle: LocalHandle, url: str) -> None:
        self._handle = handle
        self.url = url
        self.gone = False
        self.closed = False
        self.session_valid_until = math.inf
        self.sessions = 0
        """How many came after the first."""

    @property
    def session(self) -> int:
        return self._handle.session + (self.sessions << 20)

    async def close(self) -> None:
        self.closed = True
        await self._handle.close()

    def __getattr__(self, name: str) -> Any:
        if self.gone and name in ("get", "put", "delete", "record", "revision", "children"):
            raise Unreachable(f"{self.url} is gone")
        return getattr(self._handle, name)


class Process:
    """One process, its handles in the order in which they were opened, and the two stores."""

    def __init__(self, stores: dict[str, MemoryStore]) -> None:
        self.stores = stores
        self.handles: list[Handle] = []
        self.store: SwitchableStore
        self.part: SwitchPart

    async def open(self, url: str) -> Any:
        self.handles.append(Handle(await self.stores[url].handle(), url))
        return self.handles[-1]

    async def start(self) -> None:
        main, side = await self.open("source"), await self.open("source")
        self.store = SwitchableStore(main, side, real_runtime().clock, "metadata", "p")
        self.part = SwitchPart(self.store, "source", self.open)
        await side.put("/anabranch/migrations/metadata/participants/p", b"", ephemeral=True)

    @property
    def main(self) -> Handle:
        return self.handles[0]

    @property
    def side(self) -> Handle:
        return self.handles[1]

    async def go(self, *phases: str, attempt: str = "first") -> None:
        for phase in phases:
            head = announced(phase, attempt)
            document = write_document(JOURNAL_MAGIC, {"announced": asdict(head)})
            await self.stores["source"].put(journal_path("metadata"), document)
            if phase == "switching":
                await raise_generation(self.stores["source"], self.stores["target"])
            if phase == "reverting":
                await raise_generation(self.stores["target"], self.stores["source"])
            if phase != "preparing":
                reserved = write_reserved("source", attempt)
                await self.stores["target"].put(RESERVED_PATH, reserved)
            await self.part.enter(head)


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    clock = real_runtime().clock
    process = Process({name: MemoryStore(clock) for name in ("source", "target")})
    await process.start()
    yield process
    await process.part.close()
    for handle in process.handles:
        await handle.close()
    for store in process.stores.values():
        await store.close()


async def test_node_that_another_session_left_makes_way_for_its_owner(process: Process) -> None:
    left = await process.stores["target"].handle()
    await left.put("/lock", b"of an attempt that failed", ephemeral=True)
    held = await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    await process.go(*FORTH, "switched")
    node = await process.store.get("/lock")
    assert node is not None
    assert (node.value, node.stat.created_by_self) == (b"p", True)
    assert node.stat.version == held.version
    await left.close()


async def test_node_of_others_stays_once_they_use_the_store(process: Process) -> None:
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    await process.go("preparing", "freezing")
    other = await process.stores["target"].handle()
    await other.put("/lock", b"of whoever came after", ephemeral=True)
    # The journal has gone on, and this process is late.
    document = write_document(JOURNAL_MAGIC, {"announced": asdict(announced("switched"))})
    await process.stores["source"].put(journal_path("metadata"), document)
    with pytest.raises(Unreachable, match="others have gone on"):
        await process.part.enter(announced("rejoining"))
    node = await process.stores["target"].get("/lock")
    assert node is not None
    assert node.value == b"of whoever came after"
    await other.close()


async def test_node_of_no_session_in_the_way_is_named(process: Process) -> None:
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    await process.stores["target"].put("/lock", b"lasting")
    with pytest.raises(ConflictError, match="/lock belongs to a session"):
        await process.go("preparing", "freezing", "rejoining")


async def test_nobody_turns_as_if_others_had_waited_when_they_did_not(process: Process) -> None:
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    session = process.store.session
    await process.go(*FORTH[:-1])
    document = write_document(JOURNAL_MAGIC, {"announced": asdict(announced("switched"))})
    await process.stores["source"].put(journal_path("metadata"), document)
    with pytest.raises(Unreachable, match="others have gone on"):
        await process.part.enter(announced("switching"))
    await process.go("switched")
    assert process.store.session != session
    assert not await process.store.exists("/lock")


@pytest.mark.parametrize("end", ["failing", "aborting"])
async def test_process_that_turned_comes_back_though_the_target_is_gone(
    process: Process, end: str
) -> None:
    held = await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    news = process.store.session_events()
    await process.go(*FORTH)
    assert process.store.route.name == "target"
    for handle in process.handles:
        handle.gone = handle.url == "target"
    await process.go(end)
    assert process.store.route.name == "source"
    await process.store.put("/lock", b"still p", held.version, ephemeral=True)
    hearing = asyncio.ensure_future(anext(news))
    await asyncio.sleep(0)
    assert not hearing.done()
    hearing.cancel()


async def test_process_that_was_missed_comes_back_as_a_new_one(process: Process) -> None:
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    news = process.store.session_events()
    await process.go(*FORTH)
    process.side.sessions += 1
    assert process.store.session_valid_until == -math.inf
    await process.go("failing")
    assert await anext(news) is SessionEvent.SESSION_LOST
    await process.store.put("/after", b"")
    await process.go("failing")  # registered anew, it is asked again
    assert not await process.store.exists("/lock")
    with pytest.raises(AlreadyClosed):
        await process.main.get("/after")


@pytest.mark.parametrize("ended", ["source", "target"])
async def test_session_that_ended_meanwhile_is_lost_on_both_stores(
    process: Process, ended: str
) -> None:
    """A lock that callers were told is lost must not stay, and one that is gone not be held."""
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    session = process.store.session
    await process.go(*FORTH)
    assert process.store.session == session
    main = process.main if ended == "source" else process.handles[-1]
    main.sessions += 1
    assert process.store.session_valid_until == -math.inf
    await process.go("failing")
    assert process.store.session != session
    assert not await process.stores["source"].exists("/lock")


async def test_lock_is_held_only_as_long_as_on_both_stores_while_writes_wait(
    process: Process,
) -> None:
    await process.go(*FORTH)
    assert process.store.session_valid_until == math.inf
    process.main.session_valid_until = 7.0
    assert process.store.session_valid_until == 7.0
    await process.go("switched")
    assert process.store.session_valid_until == math.inf


async def test_turn_waits_for_nodes_of_a_new_session_at_the_other_store(process: Process) -> None:
    await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    await process.go(*FORTH[:-1])
    other: Any = process.handles[-1]
    plain = other.revision

    async def ends(*_: object) -> Any:
        other.sessions += 1
        other.revision = plain
        return await plain()

    other.revision = ends
    with pytest.raises(SessionExpired):
        await process.go("switching")
    assert process.store.route.name == "source"
    await process.go("switching")
    assert process.store.route.name == "target"
    assert await process.store.exists("/lock")


async def test_a_second_rollback_finds_a_process_that_missed_the_failure_of_the_first(
    process: Process,
) -> None:
    held = await process.store.put("/lock", b"p", ABSENT, ephemeral=True)
    await process.go(*FORTH, *BACK)
    assert process.store.route.name == "source"
    session = process.store.session
    await process.go("refreezing")
    assert process.store.route.name == "target"
    assert process.store.session == session
    await process.go("returning", "refencing", "reverting", "rolled back")
    node = await process.store.get("/lock")
    assert node is not None
    assert node.stat.version == held.version


async def test_no_connection_is_kept_that_is_not_needed(process: Process) -> None:
    kept = process.handles[:2]

    def open_to(url: str) -> list[Handle]:
        return [h for h in process.handles if h.url == url and not h.closed and h not in kept]

    await process.go(*FORTH, *BACK, "rolled back")
    assert len(open_to("target")) == 1, "for tokens from before"
    assert len(open_to("source")) == 1, "the store in use"
    await process.go(*FORTH, "switched", attempt="second")
    assert len(open_to("target")) == 1
    assert open_to("source") == []
    await process.part.close()
    assert len(open_to("target")) == 1, "the store in use"


async def test_every_switch_has_a_generation_of_its_own(process: Process) -> None:
    source, target = process.stores["source"], process.stores["target"]
    found = []
    for left, entered in ((source, target), (source, target), (target, source)):
        await raise_generation(left, entered)
        found.append(await generation_of_store(entered))
    assert found == [1, 2, 3]
