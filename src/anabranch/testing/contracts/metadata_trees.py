"""What every metadata store must do with many nodes: children, scans, batches, watches.

Subclasses give the fixture `store`, an open and empty `MetadataStore`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import ClassVar

import pytest

from anabranch.errors import AnabranchError, BadVersion, InvalidPath, NotEmpty, NotFound
from anabranch.metadata.store import (
    ABSENT,
    Delete,
    Event,
    EventKind,
    MetadataStore,
    Operation,
    Put,
    Revision,
    Stat,
)
from anabranch.testing.contracts.metadata import node_at

CREATED, MODIFIED, DELETED = EventKind.CREATED, EventKind.MODIFIED, EventKind.DELETED


async def paths_below(store: MetadataStore, prefix: str) -> list[str]:
    """What a scan finds, the root left out."""
    found = [node.stat.path async for node in store.scan(prefix)]
    return [path for path in found if path != "/"]


async def put_all(store: MetadataStore, operations: list[Operation]) -> None:
    """Write many, all of which must succeed."""
    for start in range(0, len(operations), 1000):
        for outcome in await store.batch(operations[start : start + 1000]):
            assert not isinstance(outcome, AnabranchError), outcome


class ScanAndChildren:
    """Listing, in order, at size."""

    many: ClassVar[int] = 100_000
    """How many children one node is given."""

    async def test_children_are_names_in_order(self, store: MetadataStore) -> None:
        for name in ("b", "a", "c", "a/x/y", "a-b", "ä", "B"):
            await store.put(f"/top/{name}", b"")
        assert await store.children("/top") == ["B", "a", "a-b", "b", "c", "ä"]
        assert await store.children("/top/a") == ["x"]
        assert await store.children("/") == ["top"]

    async def test_children_of_a_leaf_or_of_nothing(self, store: MetadataStore) -> None:
        await store.put("/leaf", b"")
        assert await store.children("/leaf") == []
        assert await store.children("/nothing/at/all") == []

    async def test_scan_is_in_path_order_with_parents_first(self, store: MetadataStore) -> None:
        for path in ("/a/b/c", "/a-b", "/a/b-c", "/a!", "/b"):
            await store.put(path, path.encode())
        in_order = ["/a", "/a/b", "/a/b/c", "/a/b-c", "/a!", "/a-b", "/b"]
        assert await paths_below(store, "/") == in_order
        assert await paths_below(store, "/a") == in_order[:4]

    async def test_scan_returns_whole_nodes(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"1")
        await store.put("/a/b", b"2")
        found = {node.stat.path: node async for node in store.scan("/a")}
        assert found == {path: await node_at(store, path) for path in ("/a", "/a/b")}

    async def test_scan_takes_whole_names_only(self, store: MetadataStore) -> None:
        for path in ("/ab", "/abc", "/ab/x"):
            await store.put(path, b"")
        assert await paths_below(store, "/ab") == ["/ab", "/ab/x"]

    async def test_scan_of_nothing(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        assert await paths_below(store, "/nothing") == []

    async def test_scan_goes_on_while_the_tree_changes(self, store: MetadataStore) -> None:
        await put_all(store, [Put(f"/t/{i:05}", b"") for i in range(3000)])
        seen = []
        async for node in store.scan("/t"):
            seen.append(node.stat.path)
            if len(seen) == 10:
                # The scan stands here: it must find what stayed, whatever happens around it.
                await put_all(store, [Delete(f"/t/{i:05}") for i in range(0, 3000, 2)])
                await put_all(store, [Put(f"/t/{i:05}/x", b"") for i in range(1, 3000, 2)])
        assert seen == sorted(set(seen))
        assert {f"/t/{i:05}" for i in range(1, 3000, 2)} <= set(seen)

    async def test_many_children_of_one_node(self, store: MetadataStore) -> None:
        # Written in an order far from sorted.
        numbers = [i * 7919 % self.many for i in range(self.many)]
        await put_all(store, [Put(f"/many/{i:07}", b"") for i in numbers])
        names = [f"{i:07}" for i in range(self.many)]
        assert await store.children("/many") == names
        count = 0
        async with aclosing(store.scan("/many")) as nodes:  # type: ignore[type-var]
            async for node in nodes:
                assert count == 0 or node.stat.path == f"/many/{names[count - 1]}"
                count += 1
        assert count == self.many + 1
        await put_all(store, [Delete(f"/many/{i:07}") for i in numbers if i % 10])
        assert await store.children("/many") == names[::10]


class Batching:
    """Many operations with one request."""

    async def test_outcomes_stand_in_order(self, store: MetadataStore) -> None:
        await store.put("/old", b"x")
        created, deleted, missing = await store.batch(
            [Put("/new", b"1"), Delete("/old"), Delete("/nothing")]
        )
        assert created == (await node_at(store, "/new")).stat
        assert deleted is None
        assert isinstance(missing, NotFound)
        assert not await store.exists("/old")

    async def test_one_refused_does_not_stop_its_neighbours(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"")
        outcomes = await store.batch(
            [
                Put("/1", b"1"),
                Put("/a", b"", ABSENT),
                Put("/2", b"2"),
                Delete("/a"),
                Put("not a path", b""),
                Put("/large", b"x" * (2 << 20)),
                Put("/3", b"3"),
            ]
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds[:5] == [Stat, BadVersion, Stat, NotEmpty, InvalidPath]
        assert isinstance(outcomes[5], AnabranchError)
        assert kinds[6] is Stat
        assert await store.children("/") == ["1", "2", "3", "a"]

    async def test_later_operations_see_earlier_ones(self, store: MetadataStore) -> None:
        outcomes = await store.batch(
            [
                Put("/a", b"1", ABSENT),
                Put("/a", b"2", ABSENT),
                Delete("/a"),
                Put("/a", b"3", ABSENT),
            ]
        )
        assert isinstance(outcomes[1], BadVersion)
        first, last = outcomes[0], outcomes[3]
        assert isinstance(first, Stat)
        assert isinstance(last, Stat)
        assert await node_at(store, "/a") == await store.get("/a")
        assert (await node_at(store, "/a")).stat == last
        with pytest.raises(BadVersion):
            await store.put("/a", b"4", first.version)

    async def test_empty_batch(self, store: MetadataStore) -> None:
        before = await store.revision()
        assert await store.batch([]) == []
        assert await store.revision() == before

    async def test_large_batch(self, store: MetadataStore) -> None:
        operations = [Put(f"/n/{i:04}", b"%d" % i) for i in range(3500)]
        outcomes = await store.batch(operations)
        assert [o.path for o in outcomes if isinstance(o, Stat)] == [o.path for o in operations]
        revisions = [o.revision for o in outcomes if isinstance(o, Stat)]
        assert revisions == sorted(set(revisions))

    async def test_batch_of_many_bytes(self, store: MetadataStore) -> None:
        outcomes = await store.batch([Put(f"/n/{i}", b"x" * (1 << 20)) for i in range(10)])
        assert all(isinstance(outcome, Stat) for outcome in outcomes)
        assert len(await store.children("/n")) == 10

    async def test_concurrent_calls_all_answer(self, store: MetadataStore) -> None:
        stats = await asyncio.gather(*(store.put(f"/n/{i:03}", b"") for i in range(300)))
        assert len({stat.revision for stat in stats}) == 300
        assert len(await store.children("/n")) == 300


async def take(watch: AsyncIterator[Event], count: int) -> list[Event]:
    """The next events; waits for them, but not for ever."""
    async with asyncio.timeout(10):
        return [await anext(watch) for _ in range(count)]


def told(events: list[Event]) -> list[tuple[EventKind, str]]:
    """Events without revisions."""
    return [(event.kind, event.path) for event in events]


class Watching:
    """Every change once, in order, with its revision."""

    async def test_own_writes_are_seen(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        created = await store.put("/a", b"1")
        modified = await store.put("/a", b"2")
        await store.delete("/a")
        events = await take(watch, 3)
        assert told(events) == [(CREATED, "/a"), (MODIFIED, "/a"), (DELETED, "/a")]
        revisions = [event.revision for event in events]
        assert revisions[:2] == [created.revision, modified.revision]
        assert revisions == sorted(set(revisions))

    async def test_waiting_watch_is_woken(self, store: MetadataStore) -> None:
        watch = store.watch("/a")
        waiting = asyncio.gather(take(watch, 1))
        await asyncio.sleep(0.01)
        await store.put("/b", b"")
        await store.put("/a", b"")
        assert told((await waiting)[0]) == [(CREATED, "/a")]

    async def test_implied_parents_are_told_first(self, store: MetadataStore) -> None:
        watch = store.watch("/a")
        await store.put("/a/b/c", b"")
        assert told(await take(watch, 3)) == [
            (CREATED, "/a"),
            (CREATED, "/a/b"),
            (CREATED, "/a/b/c"),
        ]

    async def test_only_whole_names_below_the_prefix(self, store: MetadataStore) -> None:
        watch = store.watch("/a/b")
        for path in ("/a/bc", "/a/b", "/x", "/a/b/c", "/a/c", "/a/b/c/d"):
            await store.put(path, b"")
        assert [event.path for event in await take(watch, 3)] == ["/a/b", "/a/b/c", "/a/b/c/d"]

    async def test_refused_writes_are_silent(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        await store.put("/a", b"")
        with pytest.raises(BadVersion):
            await store.put("/a", b"", ABSENT)
        await store.batch([Delete("/nothing"), Put("/b", b"")])
        assert told(await take(watch, 2)) == [(CREATED, "/a"), (CREATED, "/b")]

    async def test_resume_after_every_event(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        await store.put("/a/b/c", b"")
        await store.batch([Put("/d", b""), Put("/d", b"2"), Delete("/d")])
        await store.delete("/a/b/c")
        events = await take(watch, 7)
        for number, event in enumerate(events[:-1]):
            resumed = store.watch("/", since=event.revision)
            assert await take(resumed, 6 - number) == events[number + 1 :]

    async def test_resume_from_now_tells_only_what_follows(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        watch = store.watch("/", since=await store.revision())
        await store.put("/b", b"")
        assert told(await take(watch, 1)) == [(CREATED, "/b")]

    async def test_revision_of_another_history_is_a_gap(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        newest = await store.revision()
        watch = store.watch("/a", since=Revision(newest.epoch + 5, newest.index + 1000))
        assert told(await take(watch, 1)) == [(EventKind.GAP, "/")]
        await store.put("/a", b"2")
        assert told(await take(watch, 1)) == [(MODIFIED, "/a")], "it goes on after the gap"

    async def test_several_watches_see_the_same(self, store: MetadataStore) -> None:
        watches = [store.watch("/") for _ in range(3)]
        await asyncio.gather(*(store.put(f"/n/{i}", b"") for i in range(20)))
        first, *others = [await take(watch, 21) for watch in watches]
        assert all(other == first for other in others)
        assert len({event.path for event in first}) == 21

    async def test_concurrent_writes_are_told_in_the_order_of_history(
        self, store: MetadataStore
    ) -> None:
        watch = store.watch("/k")
        stats = await asyncio.gather(*(store.put("/k", b"%d" % i) for i in range(50)))
        events = await take(watch, 50)
        assert [event.revision for event in events] == sorted(stat.revision for stat in stats)

    async def test_close_ends_the_watch_after_what_happened(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        await store.put("/a", b"")
        idle = store.watch("/")
        ended = asyncio.gather(take(idle, 1), return_exceptions=True)
        await asyncio.sleep(0.01)
        await store.close()
        assert isinstance((await ended)[0], StopAsyncIteration | RuntimeError)
        assert told([event async for event in watch]) == [(CREATED, "/a")]

    async def test_reader_that_gives_up_can_come_back(self, store: MetadataStore) -> None:
        watch = store.watch("/")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(watch)
        await store.put("/a", b"")
        assert told(await take(watch, 1)) == [(CREATED, "/a")]
