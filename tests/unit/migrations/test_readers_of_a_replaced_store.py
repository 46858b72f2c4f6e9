"""What those who read, watch, cache and hold tokens see while their store is replaced."""

import asyncio
from typing import Any

import pytest

from anabranch.errors import AlreadyClosed, BadVersion, Unreachable
from anabranch.metadata.announced import participants_path
from anabranch.metadata.cache import MetadataCache
from anabranch.metadata.store import EventKind, MetadataStore, Node, Record, Version
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.replaced_stores import Member
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    ON_THE_WAY_BACK,
    SOURCE_URL,
    TARGET_URL,
    Stage,
    let_others_run,
    staged,
    until,
)


class Slow(PassThrough):
    """A store that answers reads late, and not at all once it was closed."""

    def __init__(self, behind: MetadataStore) -> None:
        super().__init__(behind)
        self.asked, self.closed = asyncio.Event(), asyncio.Event()

    async def get(self, path: str) -> Node | None:
        if path == "/slow":
            self.asked.set()
            await self.closed.wait()
            raise AlreadyClosed("the metadata store was closed")
        return await super().get(path)

    async def close(self) -> None:
        self.closed.set()
        await super().close()


@pytest.mark.goal("454.A21", part="under way", broken_by="reads_end_with_their_store")
async def test_a_read_that_is_under_way_when_its_store_is_left_is_answered() -> None:
    async with staged("ash") as stage:
        first: list[Slow] = []

        async def open_store(url: str) -> MetadataStore:
            store = await stage.open_store(url)
            if url == SOURCE_URL and not first:
                first.append(Slow(store))
                return first[0]
            return store

        member = await stage.join("birch", open_store=open_store)
        await stage.members["ash"].store.put("/slow", b"1")
        reading = asyncio.ensure_future(member.store.exists("/there"))
        assert not await reading
        route = member.store.route.store
        assert route is first[0]
        member.store._leased = True  # as on a store whose sessions can end
        late = asyncio.ensure_future(member.store.get("/slow"))
        await first[0].asked.wait()
        member.store._leased = False
        await stage.switch()
        async with asyncio.timeout(20.0):
            node = await late
        assert node is not None
        assert node.value == b"1"


async def test_a_scan_that_is_under_way_when_its_store_is_left_can_be_begun_anew() -> None:
    async with staged("ash") as stage:
        store = stage.anybody.store
        for number in range(3):
            await store.put(f"/a/{number}", b"")

        async def broken() -> Any:
            yield 1
            raise AlreadyClosed("the metadata store was closed")

        route = store.route
        kept = store._while_in_use(route, broken())
        assert await anext(kept) == 1
        with pytest.raises(AlreadyClosed):
            await anext(kept)
        left = store._while_in_use(route, broken())
        assert await anext(left) == 1
        await stage.switch()
        with pytest.raises(Unreachable, match="was replaced while it was read"):
            await anext(left)
        assert [node.stat.path async for node in store.scan("/a")][1:] == ["/a/0", "/a/1", "/a/2"]


@pytest.mark.goal("454.A20", part="each change", broken_by="watches_stay_with_the_source")
@pytest.mark.goal("rel.A23", part="each change", broken_by="watches_stay_with_the_source")
async def test_a_watch_tells_each_change_once_and_none_of_the_store_that_was_left() -> None:
    async with staged("ash", "birch") as stage:
        writer, reader = stage.members["ash"].store, stage.members["birch"].store
        await writer.put("/w", b"")
        heard: list[str] = []
        gaps = 0
        watch = reader.watch("/w")

        async def listen() -> None:
            nonlocal gaps
            async for event in watch:
                if event.kind is EventKind.GAP:
                    gaps += 1
                else:
                    heard.append(event.path)

        listening = asyncio.ensure_future(listen())
        await writer.put("/w/before", b"")
        await until(lambda: "/w/before" in heard)
        await stage.switch()
        await until(lambda: gaps == 1)
        left = await stage.open_store(SOURCE_URL)
        await left.put("/other/late", b"")
        del heard[:]
        for number in range(5):
            await writer.put(f"/w/{number}", b"")
        await until(lambda: len(heard) >= 5)
        await let_others_run()
        assert heard == [f"/w/{number}" for number in range(5)]
        listening.cancel()
        await left.close()


@pytest.mark.goal("454.A20", part="unheard", broken_by="what_was_not_heard_is_forgotten")
@pytest.mark.goal("454.A21", part="caches", broken_by="what_was_not_heard_is_forgotten")
async def test_a_cache_that_did_not_hear_of_a_change_reads_it_after_the_switch() -> None:
    async with staged("ash", "birch") as stage:
        writer, member = stage.members["ash"].store, stage.members["birch"]
        await writer.put("/n", b"1")
        cache = MetadataCache(
            member.store, stage.runtime, decode=int, encode=lambda n: b"%d" % n, prefix="/n"
        )
        heard = asyncio.Event()
        plain = cache._changed

        watch = member.store.watch("/n")
        assert await cache.get("/n") == 1

        async def listen() -> None:
            await heard.wait()  # a process that does much else hears late
            async for event in watch:
                plain(event)

        listening = asyncio.ensure_future(listen())
        await writer.put("/n", b"2")
        await stage.switch()
        heard.set()
        await until(lambda: cache.get_if_cached("/n") != 1)
        assert await cache.get("/n") == 2
        await writer.put("/n", b"3")
        await until(lambda: cache.get_if_cached("/n") != 2)
        assert await cache.get("/n") == 3
        listening.cancel()


@pytest.mark.goal("454.A34", part="news", broken_by="a_switch_ends_the_session")
async def test_nobody_is_told_of_a_lost_session_there_or_back() -> None:
    async with staged("ash", "birch", "cedar") as stage:
        heard: list[tuple[str, object]] = []
        sessions = {name: member.store.session for name, member in stage.members.items()}

        async def listen(name: str, member: Member) -> None:
            async for event in member.store.session_events():
                heard.append((name, event))  # noqa: PERF401 - it has no end

        listening = [asyncio.ensure_future(listen(*each)) for each in stage.members.items()]
        await let_others_run()
        for name, member in stage.members.items():
            await member.store.put(f"/owned/{name}", b"", ephemeral=True)
        await stage.switch()
        await stage.ask(Verb.ROLLBACK)
        await stage.until("rolled back")
        await stage.all_on("source")
        await let_others_run()
        assert heard == []
        assert {name: m.store.session for name, m in stage.members.items()} == sessions
        assert len(await stage.anybody.store.children("/owned")) == 3
        for task in listening:
            task.cancel()


class Counted(PassThrough):
    """Counts how often it was asked for all that others have written."""

    def __init__(self, behind: MetadataStore, counts: dict[str, int], url: str) -> None:
        super().__init__(behind)
        self._counts, self._url = counts, url

    async def sync(self) -> None:
        self._counts[self._url] = self._counts.get(self._url, 0) + 1
        await super().sync()


@pytest.mark.goal("454.A39", part="each phase", broken_by="sync_is_forgotten")
@pytest.mark.parametrize("phase", [*BEFORE_SWITCH, "switched", *ON_THE_WAY_BACK])
async def test_who_syncs_reads_what_others_wrote_in_every_phase(phase: str) -> None:
    async with staged("ash") as stage:
        counts: dict[str, int] = {}

        async def counted(url: str) -> MetadataStore:
            return Counted(await stage.open_store(url), counts, url)

        reader = (await stage.join("birch", open_store=counted)).store
        writer = stage.members["ash"].store
        await writer.put("/n", b"before")
        if phase in ON_THE_WAY_BACK:
            await stage.switch()
            stage.hold(phase)
            await stage.ask(Verb.ROLLBACK)
            await stage.until_held()
        else:
            await stage.reach(phase)
        await stage.until_reported(phase)
        if phase == "switched":
            await stage.all_on("target")
        expected = b"before"
        if not TABLE[phase].holds_writes:
            await writer.put("/n", b"after")
            expected = b"after"
        url = SOURCE_URL if reader.route.name == "source" else TARGET_URL
        before = counts.get(url, 0)
        await reader.sync()
        assert counts.get(url, 0) > before, "the store in use was asked"
        node = await reader.get("/n")
        assert node is not None
        assert node.value == expected


async def turned_to(stage: Stage, name: str) -> None:
    await until(lambda: stage.members[name].store.route.name == "target")


@pytest.mark.goal("trap.U8", part="writes", broken_by="early_birds_write")
async def test_nobody_writes_to_the_target_before_everybody_reads_it() -> None:
    async with staged("ash", "birch") as stage:
        await stage.anybody.store.put("/n", b"before")
        await stage.reach("switching")
        for name, member in stage.members.items():
            await turned_to(stage, name)
            node = await member.store.get("/n")
            assert node is not None, "reads go on"
        writing = [
            asyncio.ensure_future(member.store.put("/n", name.encode()))
            for name, member in stage.members.items()
        ]
        await let_others_run()
        assert not any(task.done() for task in writing)
        for url in (SOURCE_URL, TARGET_URL):
            store = await stage.open_store(url)
            node = await store.get("/n")
            assert node is not None
            assert node.value == b"before", "neither store is written"
            await store.close()
        stage.go_on()
        await stage.until("switched")
        await asyncio.gather(*writing)


@pytest.mark.goal("454.A14", part="tokens", broken_by="stale_tokens_are_believed")
@pytest.mark.goal("rel.A22", part="tokens", broken_by="stale_tokens_are_believed")
@pytest.mark.parametrize("version", [0, 1, 999_999, 1_000_000])
async def test_a_token_from_before_works_once_however_large(version: int) -> None:
    async with staged("ash") as stage:
        raw = await stage.open_store(SOURCE_URL)

        async def one() -> Any:
            yield Record("/n", b"old", version, 1, 1)

        await raw.restore(one())
        store = stage.anybody.store
        node = await store.get("/n")
        assert node is not None
        assert node.stat.version.native == version
        stale = (await store.put("/other", b"1")).version
        await store.put("/other", b"2")
        await stage.switch()
        with pytest.raises(BadVersion):
            await store.put("/other", b"no", stale)
        with pytest.raises(BadVersion):
            await store.put("/n", b"no", Version(0, 77, version + 1))
        after = await store.put("/n", b"new", node.stat.version)
        with pytest.raises(BadVersion):
            await store.put("/n", b"no", node.stat.version)
        await store.put("/n", b"newer", after.version)
        await raw.close()


@pytest.mark.goal("454.A22", part="fenced", broken_by="the_source_is_not_fenced")
@pytest.mark.goal("rel.A8", part="fenced", broken_by="the_source_is_not_fenced")
async def test_who_slept_over_the_switch_writes_nothing_to_the_source_and_follows() -> None:
    async with staged("ash", "birch") as stage:
        await stage.reach("verifying")
        awake = await stage.driver()
        (asleep,) = set(stage.members) - {awake}
        member = stage.members.pop(asleep)
        await member.replaceable._at_source.close()  # it is told nothing any more
        source = await stage.open_store(SOURCE_URL)
        folder = participants_path("metadata")
        for name in await source.children(folder):
            if name.startswith(asleep):
                await source.delete(f"{folder}/{name}")  # its session is over
        stage.go_on()
        state = await stage.until("switched")
        await stage.all_on("target")
        with pytest.raises(Unreachable, match="was not written"):
            await member.store.put("/late", b"")
        assert not await source.exists("/late")
        await member.replaceable._part.enter(state.announced)
        await member.store.put("/late", b"")
        assert await stage.members[awake].store.exists("/late")
        assert not await source.exists("/late")
        await source.close()
        await member.close()
