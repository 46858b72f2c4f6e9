"""The parts of a store that can be replaced: gate, tokens, postures, own nodes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest

from anabranch.errors import BadVersion, OutcomeUnknown
from anabranch.metadata.announced import JOURNAL_MAGIC, Announced, journal_path, write_document
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import (
    ABSENT,
    EventKind,
    MetadataStore,
    Put,
    Record,
    SessionEvent,
    Version,
)
from anabranch.metadata.switchable.fence import (
    PRESENT_PATH,
    be_present,
    raise_fence,
    raise_generation,
)
from anabranch.metadata.switchable.gate import Gate
from anabranch.metadata.switchable.part import SwitchPart
from anabranch.metadata.switchable.postures import POSTURES, counts_still
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.reservation import reserve
from anabranch.runtime.real import real_runtime

ATTEMPT = "first"


def announced(phase: str, attempt: str = ATTEMPT, number: int = 1) -> Announced:
    return Announced(attempt, number, 1, phase=phase, parameters={"target": "target"})


class Told(SwitchPart):
    """Finds in the journal what it was told."""

    async def enter(self, announced: Announced) -> None:
        document = write_document(JOURNAL_MAGIC, {"announced": asdict(announced)})
        await self._store.side.put(journal_path("metadata"), document)
        await super().enter(announced)


class Place:
    """Two stores, and processes on them."""

    def __init__(self, stores: dict[str, MemoryStore]) -> None:
        self.stores = stores
        self.opened: list[MetadataStore] = []

    async def open(self, url: str) -> LocalHandle:
        handle = await self.stores[url].handle()
        self.opened.append(handle)
        return handle

    async def process(self, name: str) -> tuple[SwitchableStore, SwitchPart]:
        store = SwitchableStore(
            await self.open("source"),
            await self.open("source"),
            real_runtime().clock,
            "metadata",
            name,
        )
        return store, Told(store, "source", self.open)

    async def copy(self) -> None:
        """What a driver does while writes wait."""
        source, target = self.stores["source"], self.stores["target"]
        async for record in source.export("/"):
            if record.session is None and await target.record(record.path) is None:
                await target.restore(_one(record))
        await raise_generation(source, target)


async def _one(record: Record) -> AsyncIterator[Record]:
    yield record


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = real_runtime().clock
    place = Place({name: MemoryStore(clock) for name in ("source", "target")})
    await reserve(place.stores["target"], "source", ATTEMPT)
    yield place
    for handle in place.opened:
        await handle.close()
    for store in place.stores.values():
        await store.close()


async def freeze_and_copy(place: Place, *parts: SwitchPart) -> None:
    for phase in ("preparing", "freezing"):
        for part in parts:
            await part.enter(announced(phase))
    await place.copy()


async def switch(place: Place, *parts: SwitchPart) -> None:
    await freeze_and_copy(place, *parts)
    for phase in ("rejoining", "switching", "switched"):
        for part in parts:
            await part.enter(announced(phase))


def test_every_phase_has_a_posture() -> None:
    assert set(POSTURES) == set(TABLE.phases)
    for name, phase in TABLE.phases.items():
        assert POSTURES[name].holds == phase.holds_writes, name


@pytest.mark.goal("trap.U1", part="gate", broken_by="gate_looks_then_counts")
async def test_write_is_counted_before_it_looks_at_the_gate() -> None:
    gate = Gate()
    entering = asyncio.ensure_future(gate.pass_in())
    await asyncio.sleep(0)
    gate.close()
    drained = asyncio.ensure_future(gate.drained())
    for _ in range(5):
        await asyncio.sleep(0)
    assert entering.done(), "it is on its way to the store, and nobody knows"
    assert gate.under_way == 1
    assert not drained.done()
    gate.leave()
    await drained


@pytest.mark.goal("454.A10", part="gate", broken_by="conditional_writes_pass_the_gate")
@pytest.mark.goal("454.A12", part="gate", broken_by="held_writes_are_refused")
async def test_writes_wait_while_they_are_held_and_then_go_to_the_target(place: Place) -> None:
    store, part = await place.process("a")
    await store.put("/a", b"0")
    await store.put("/d", b"0")
    await part.enter(announced("preparing"))
    await part.enter(announced("freezing"))
    cache = MetadataCache(store, real_runtime(), decode=int, encode=lambda n: b"%d" % n)
    waiting = [
        asyncio.ensure_future(call)
        for call in (
            cache.read_modify_update("/d", lambda n: n + 1),
            store.put("/b", b"1"),
            store.delete("/a"),
            store.put("/n-", b"", sequential=True),
            store.put("/e", b"", ephemeral=True),
        )
    ]
    batch = asyncio.ensure_future(store.batch([Put("/c", b"")]))
    await asyncio.sleep(0.01)
    assert not any(call.done() for call in [*waiting, batch])
    assert await store.get("/a") is not None
    await place.copy()
    for phase in ("rejoining", "switching"):
        await part.enter(announced(phase))
        await asyncio.sleep(0)
        assert not any(call.done() for call in waiting)
    await part.enter(announced("switched"))
    await asyncio.gather(*waiting, batch)
    assert await place.stores["source"].children("/") == ["a", "anabranch", "d"]
    left = await place.stores["source"].get("/d")
    assert left is not None
    assert left.value == b"0"
    names = await place.stores["target"].children("/")
    assert names == ["anabranch", "b", "c", "d", "e", "n-0000000000"]


async def test_token_from_before_works_once_and_a_stale_one_never(place: Place) -> None:
    store, part = await place.process("a")
    stale = (await store.put("/a", b"0")).version
    good = (await store.put("/a", b"1")).version
    await store.put("/gone", b"")
    old_life = (await store.put("/again", b"")).version
    await store.delete("/again")
    await store.put("/again", b"")
    await switch(place, part)
    for version in (stale, Version(0, 99, 99)):
        with pytest.raises(BadVersion):
            await store.put("/a", b"no", version)
    with pytest.raises(BadVersion):
        await store.put("/again", b"no", old_life)
    (outcome,) = await store.batch([Put("/a", b"no", stale)])
    assert isinstance(outcome, BadVersion)
    after = await store.put("/a", b"2", good)
    with pytest.raises(BadVersion):
        await store.put("/a", b"no", good)
    await store.put("/a", b"3", after.version)
    assert after.version > good
    assert after.revision.epoch > 0


@pytest.mark.goal("454.A17", part="memory", broken_by="losers_make_nodes_anew")
@pytest.mark.goal("trap.U9", broken_by="losers_make_nodes_anew")
async def test_only_the_owner_makes_an_ephemeral_node_anew(place: Place) -> None:
    winner, first = await place.process("a")
    loser, second = await place.process("b")
    await winner.put("/locks/x", b"winner", ABSENT, ephemeral=True)
    with pytest.raises(BadVersion):
        await loser.put("/locks/x", b"loser", ABSENT, ephemeral=True)
    numbered = await winner.put("/queue/n-", b"w", ephemeral=True, sequential=True)
    await loser.put("/queue/n-", b"l", ephemeral=True, sequential=True)
    await freeze_and_copy(place, second, first)
    await second.enter(announced("rejoining"))
    # Should the owner be gone now, nobody may find its lock in the hands of who came first.
    target = place.stores["target"]
    assert not await target.exists("/locks/x")
    assert await target.children("/queue") == ["n-0000000001"]
    await first.enter(announced("rejoining"))
    for phase in ("switching", "switched"):
        for part in (second, first):
            await part.enter(announced(phase))
    node = await winner.get("/locks/x")
    assert node is not None
    assert (node.value, node.stat.created_by_self) == (b"winner", True)
    seen = await loser.get("/locks/x")
    assert seen is not None
    assert not seen.stat.created_by_self
    assert await winner.children("/queue") == ["n-0000000000", "n-0000000001"]
    again = await winner.get(numbered.path)
    assert again is not None
    assert (again.stat.version, again.stat.revision) == (numbered.version, numbered.revision)
    assert again.value == b"w"
    # Both know their sessions as before, and the nodes go with their owners.
    await winner.close()
    assert await loser.children("/queue") == ["n-0000000001"]
    assert not await loser.exists("/locks/x")


@pytest.mark.goal("trap.U5", broken_by="failed_attempt_keeps_its_target")
@pytest.mark.goal("454.A28", part="back", broken_by="failure_leaves_some_on_the_target")
async def test_attempt_that_failed_leaves_nothing_behind(place: Place) -> None:
    store, part = await place.process("a")
    await store.put("/e", b"", ephemeral=True)
    before = (await store.put("/a", b"0")).version
    for phase in ("preparing", "freezing"):
        await part.enter(announced(phase))
    await place.copy()
    await part.enter(announced("rejoining"))
    await part.enter(announced("switching"))
    target = place.stores["target"]
    assert await target.exists("/e")
    for phase in ("failing", "failed"):
        await part.enter(announced(phase))
    assert not await target.exists("/e")
    assert store.route.name == "source"
    await store.put("/a", b"1", before)
    node = await place.stores["source"].get("/a")
    assert node is not None
    assert node.value == b"1"
    # Another attempt, to another target, has no connection to the first.
    place.stores["other"] = MemoryStore(real_runtime().clock)
    again = Announced("second", 2, 2, phase="preparing", parameters={"target": "other"})
    await part.enter(again)
    other = part._other
    assert isinstance(other, LocalHandle)
    assert other.backing is place.stores["other"].backing


async def test_watch_goes_on_with_a_gap_and_session_news_with_none(place: Place) -> None:
    store, part = await place.process("a")
    watch, news = store.watch("/w"), store.session_events()
    await store.put("/w/a", b"")
    assert [(await anext(watch)).path for _ in range(2)] == ["/w", "/w/a"]
    reading = asyncio.ensure_future(anext(watch))
    hearing = asyncio.ensure_future(anext(news))
    session = store.session
    await switch(place, part)
    assert (await reading).kind is EventKind.GAP
    await store.put("/w/b", b"")
    await place.stores["source"].put("/w/late", b"")
    await store.put("/w/c", b"")
    assert [(await anext(watch)).path for _ in range(2)] == ["/w/b", "/w/c"]
    assert store.session == session
    assert not hearing.done()
    hearing.cancel()


async def test_fence_stops_a_writer_that_was_left_behind(place: Place) -> None:
    store, part = await place.process("a")
    await part.enter(announced("preparing"))
    await store.put("/a", b"0")
    await raise_fence(place.stores["source"], ATTEMPT)
    late = asyncio.ensure_future(store.put("/a", b"late"))
    await asyncio.sleep(0.001)
    node = await place.stores["source"].get("/a")
    assert node is not None
    assert node.value == b"0"
    store.gate.close()
    await asyncio.sleep(0.05)
    assert not late.done()
    store.gate.open()
    await late


async def test_process_that_slept_through_a_switch_and_back_begins_anew(place: Place) -> None:
    store, part = await place.process("a")
    old = (await store.put("/e", b"", ephemeral=True)).version
    news = store.session_events()
    session = store.session
    await raise_generation(place.stores["target"], place.stores["source"])
    await part.enter(announced("rolled back"))
    assert store.session != session
    assert await anext(news) is SessionEvent.SESSION_LOST
    assert await anext(news) is SessionEvent.SESSION_REESTABLISHED
    assert not await store.exists("/e")
    assert (await store.put("/e", b"", ABSENT, ephemeral=True)).version > old


def test_what_counts_after_the_lease_ran_out() -> None:
    def counts(before: Announced | None, now: Announced | None, on: str = "source") -> bool:
        return counts_still(before, now, on)

    assert counts(None, None)
    for phase in ("preparing", "copying", "tailing", "verifying", "failed", "aborted"):
        assert counts(None, announced(phase)), phase
        assert counts(announced("preparing"), announced(phase)), phase
        assert not counts(announced(phase), announced(phase), "target"), phase
    for phase in ("freezing", "rejoining", "switching", "switched", "finalized", "rolled back"):
        assert not counts(None, announced(phase)), phase
        assert not counts(announced("verifying"), announced(phase)), phase
    assert not counts(announced("preparing"), announced("preparing", "x", 5))
    assert counts(announced("switched"), announced("finalized"), "target")
    # Only of an attempt that was over is it known that it did not go there and back since.
    for phase in ("copying", "tailing", "failed", "aborted", "rolled back"):
        was_over = phase in ("failed", "aborted", "rolled back")
        next_try = announced("copying", "next", announced(phase).number + 1)
        assert counts(announced(phase), next_try) is was_over, phase


class Leased:
    """A handle whose session can run out, by the clock that its user reads."""

    session_timeout_s = 1.0

    def __init__(self, handle: LocalHandle) -> None:
        self._handle = handle
        self.session_valid_until = float("inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


@pytest.mark.goal("454.A22", part="acknowledged", broken_by="late_answers_are_believed")
async def test_nothing_is_acknowledged_that_may_have_come_after_the_copy(place: Place) -> None:
    side = Leased(await place.open("source"))
    clock = real_runtime().clock
    store = SwitchableStore(await place.open("source"), side, clock, "metadata", "a")  # type: ignore[arg-type]
    await side.put("/anabranch/migrations/metadata/participants/a", b"", ephemeral=True)
    await store.put("/a", b"0")
    side.session_valid_until = 0.0
    await store.put("/a", b"1")  # nobody replaces the store
    journal = asdict(announced("freezing"))
    await side.put(journal_path("metadata"), write_document(JOURNAL_MAGIC, {"announced": journal}))
    with pytest.raises(OutcomeUnknown, match="replaced"):
        await store.put("/a", b"2")
    with pytest.raises(OutcomeUnknown):
        await store.batch([Put("/a", b"3")])


async def test_lock_is_not_held_by_a_store_that_others_may_have_left(place: Place) -> None:
    store, part = await place.process("a")
    await switch(place, part)
    await store.put("/lock", b"a", ABSENT, ephemeral=True)
    side: Any = Leased(await place.open("source"))
    store.side = side
    side.session_valid_until = 5.0
    assert store.session_valid_until == float("inf")
    await part.enter(announced("refreezing"))
    assert store.session_valid_until == 5.0
    assert store.session_timeout_s == 1.0
    side.session = side.session + 1
    assert store.session_valid_until == float("-inf")
    await part.enter(announced("returning"))
    assert store.session_valid_until == float("-inf")
    news = store.session_events()
    await part.enter(announced("reverting"))
    assert await anext(news) is SessionEvent.SESSION_LOST
    assert not await store.exists("/lock")


async def test_new_session_takes_the_place_of_the_presence_before(place: Place) -> None:
    before, after = await place.open("target"), await place.open("target")
    await be_present(before, "a")
    await be_present(after, "a")
    await be_present(after, "a")
    node = await after.get(f"{PRESENT_PATH}/a")
    assert node is not None
    assert node.stat.created_by_self
