"""What a cache may serve while answers and news overtake each other, and when it gives up."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from anabranch import limits
from anabranch.errors import ConflictError, OutcomeUnknown
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.cache_entries import ENTRY_OVERHEAD_BYTES
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import Event, EventKind, MetadataStore, Revision, SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.unanswered import Lose, UnansweredStore


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.now_s


class Bench:
    def __init__(self, base: MemoryStore) -> None:
        self.base = base
        self.clock = HandClock()
        self.store = UnansweredStore(base)
        self.store.deaf = True
        self.tasks = Tasks(lambda _name, failure: pytest.fail(repr(failure)))
        self.cache = self.make()

    def make(self, **bounds: int) -> MetadataCache[int]:
        return MetadataCache(
            cast("MetadataStore", self.store),
            replace(real_runtime(), clock=self.clock),
            decode=int,
            encode=lambda number: b"%d" % number,
            **bounds,
        )

    def reads(self) -> int:
        return self.store.calls.count("get")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    base = MemoryStore(real_runtime().clock)
    bench = Bench(base)
    bench.cache.start(bench.tasks)
    await settle()
    yield bench
    await bench.tasks.close()
    await base.close()


@pytest.mark.goal("core.M10", part="cache", broken_by="gap_keeps_cache")
async def test_a_gap_drops_everything(bench: Bench) -> None:
    await bench.base.put("/a", b"1")
    assert await bench.cache.get("/a") == 1
    assert await bench.cache.children("/") == ["a"]
    await bench.base.put("/a", b"2")
    await bench.base.put("/b", b"3")
    assert await bench.cache.get("/a") == 1, "nobody told it"
    bench.store.tell(Event(EventKind.GAP, "/", await bench.base.revision()))
    await settle()
    assert bench.cache.get_if_cached("/a") is None
    assert await bench.cache.get("/a") == 2
    assert await bench.cache.children("/") == ["a", "b"]


@pytest.mark.goal("core.M10", part="cache", broken_by="own_write_not_seen")
async def test_a_read_that_an_own_write_overtook_is_made_again(bench: Bench) -> None:
    await bench.base.put("/a", b"1")
    gate = bench.store.hold("get")
    reading = asyncio.get_running_loop().create_task(bench.cache.get("/a"))
    await settle()
    await bench.cache.put("/a", 2)
    gate.set()
    assert await reading == 2
    assert bench.cache.get_if_cached("/a") == 2


async def test_a_read_that_news_overtook_is_made_again(bench: Bench) -> None:
    await bench.base.put("/a", b"1")
    gate = bench.store.hold("get")
    reading = asyncio.get_running_loop().create_task(bench.cache.get("/a"))
    await settle()
    stat = await bench.base.put("/a", b"2")
    bench.store.tell(Event(EventKind.MODIFIED, "/a", stat.revision))
    await settle()
    gate.set()
    assert await reading == 2


async def test_an_answer_that_is_older_than_the_news_is_not_kept(bench: Bench) -> None:
    gate = bench.store.hold("put")
    writing = asyncio.get_running_loop().create_task(bench.cache.put("/a", 1))
    await settle()
    stat = await bench.base.put("/a", b"2")
    bench.store.tell(Event(EventKind.MODIFIED, "/a", stat.revision))
    await settle()
    gate.set()
    await writing
    assert bench.cache.get_if_cached("/a") is None
    assert await bench.cache.get("/a") == 2


async def test_news_of_an_own_write_cost_no_read(bench: Bench) -> None:
    stat = await bench.cache.put("/a", 1)
    bench.store.tell(Event(EventKind.CREATED, "/a", stat.revision))
    await settle()
    assert await bench.cache.get("/a") == 1
    assert bench.reads() == 0


async def test_what_is_not_there_is_remembered_too(bench: Bench) -> None:
    assert await bench.cache.get("/a") is None
    assert await bench.cache.get("/a") is None
    assert bench.reads() == 1
    bench.store.tell(Event(EventKind.CREATED, "/a", Revision(1, 99)))
    await settle()
    await bench.base.put("/a", b"1")
    assert await bench.cache.get("/a") == 1


async def test_a_write_without_an_answer_is_read_back(bench: Bench) -> None:
    await bench.cache.put("/a", 1)
    bench.store.lose("put", Lose.ANSWER)
    with pytest.raises(OutcomeUnknown):
        await bench.cache.put("/a", 2)
    assert bench.cache.get_if_cached("/a") is None
    assert await bench.cache.get("/a") == 2


@pytest.mark.goal("core.M10", part="cache", broken_by="old_entries_are_read_while_cut_off")
async def test_old_entries_are_read_again_but_not_while_nobody_can_answer(bench: Bench) -> None:
    await bench.base.put("/a", b"1")
    assert await bench.cache.get("/a") == 1
    await bench.base.put("/a", b"2")
    bench.clock.now_s += limits.CACHE_ENTRY_AGE_S_MAX
    bench.store.news.publish(SessionEvent.CONNECTION_LOST)
    await settle()
    assert await bench.cache.get("/a") == 1
    assert bench.reads() == 1
    bench.store.news.publish(SessionEvent.RECONNECTED)
    await settle()
    assert await bench.cache.get("/a") == 2


async def test_an_update_gives_up_in_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        bench.clock.now_s += seconds

    monkeypatch.setattr("anabranch.metadata.backoff.asyncio.sleep", sleep)
    await bench.base.put("/a", b"1")
    original = bench.store.put

    async def put(*arguments: object, **options: object) -> object:
        await bench.base.put("/a", b"7")
        return await original(*arguments, **options)

    monkeypatch.setattr(bench.store, "put", put)
    with pytest.raises(ConflictError, match="others changed /a at each try for 30"):
        await bench.cache.read_modify_update("/a", lambda number: number + 1)
    assert await bench.cache.get("/a") == 7
    assert limits.UPDATE_BACKOFF_S_MIN / 2 <= waits[0] <= limits.UPDATE_BACKOFF_S_MIN
    assert limits.UPDATE_BACKOFF_S_MAX / 2 <= max(waits) <= limits.UPDATE_BACKOFF_S_MAX
    assert sum(waits) <= limits.UPDATE_S_MAX


async def test_what_modify_refuses_changes_nothing(bench: Bench) -> None:
    await bench.cache.put("/a", 1)

    def refuse(_number: int) -> int:
        raise KeyError("not this one")

    with pytest.raises(KeyError):
        await bench.cache.read_modify_update("/a", refuse)
    assert await bench.cache.get("/a") == 1


async def test_memory_is_bounded(bench: Bench) -> None:
    cache = bench.make(entries_max=1000, bytes_max=10 * (ENTRY_OVERHEAD_BYTES + 100))
    for number in range(100):
        await cache.put(f"/{number}", number)
    kept = [number for number in range(100) if cache.get_if_cached(f"/{number}") is not None]
    assert kept == list(range(100 - len(kept), 100))
    assert 5 <= len(kept) <= 15


async def test_invalidating_by_hand(bench: Bench) -> None:
    await bench.cache.put("/a", 1)
    await bench.base.put("/a", b"2")
    assert await bench.cache.get("/a") == 1
    bench.cache.invalidate("/a")
    assert await bench.cache.get("/a") == 2
