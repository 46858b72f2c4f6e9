"""What every metadata store must do with sessions, ephemeral nodes, sequences and guards.

Subclasses give the fixtures `store` and `other`, two handles on one empty store, and `kill`, which
ends the session of a handle as if its client were gone.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from anabranch.errors import BadVersion, Fenced, InputError, NotFound, SessionExpired
from anabranch.metadata.store import (
    ABSENT,
    Delete,
    EventKind,
    Guard,
    MetadataStore,
    Put,
    SessionEvent,
    Stat,
    Version,
)
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_trees import take, told

Kill = Callable[[MetadataStore], Awaitable[None]]
VANISH_S_MAX = 20.0


async def gone(store: MetadataStore, path: str) -> None:
    """Wait until a node is not there any more."""
    watch = store.watch(path)
    async with asyncio.timeout(VANISH_S_MAX):
        while await store.exists(path):
            await anext(watch)


async def news_until(events: AsyncIterator[SessionEvent], last: SessionEvent) -> list[SessionEvent]:
    """What is told of a session up to and with one event."""
    found: list[SessionEvent] = []
    async with asyncio.timeout(VANISH_S_MAX):
        async for event in events:
            found.append(event)
            if event is last:
                break
    return found


class Sessions:
    """Ephemeral nodes live as long as their session."""

    async def test_stat_tells_whose_node_it_is(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        mine = await store.put("/mine", b"", ephemeral=True)
        assert (mine.ephemeral, mine.created_by_self) == (True, True)
        assert (await node_at(store, "/mine")).stat == mine
        seen = (await node_at(other, "/mine")).stat
        assert (seen.ephemeral, seen.created_by_self) == (True, False)
        lasting = await store.put("/lasting", b"")
        assert (lasting.ephemeral, lasting.created_by_self) == (False, False)
        scanned = {node.stat.path: node.stat async for node in store.scan("/")}
        assert scanned["/mine"] == mine
        assert store.session != other.session

    async def test_closing_takes_the_nodes_along(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        await other.put("/e/one", b"", ephemeral=True)
        await other.put("/e/two", b"", ephemeral=True)
        await other.put("/e/lasting", b"")
        watch = store.watch("/e", since=await store.revision())
        await other.close()
        await gone(store, "/e/two")
        assert await store.children("/e") == ["lasting"]
        assert told(await take(watch, 2)) == [
            (EventKind.DELETED, "/e/one"),
            (EventKind.DELETED, "/e/two"),
        ]

    async def test_session_that_ends_takes_the_nodes_along(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        await other.put("/e/one", b"", ephemeral=True)
        await other.put("/e/lasting", b"")
        mine = await store.put("/e/mine", b"", ephemeral=True)
        watch = store.watch("/e", since=await store.revision())
        await kill(other)
        await gone(store, "/e/one")
        assert told(await take(watch, 1)) == [(EventKind.DELETED, "/e/one")]
        assert await store.children("/e") == ["lasting", "mine"]
        assert (await node_at(store, "/e/mine")).stat == mine

    async def test_client_is_told_and_begins_a_new_session(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        await other.put("/e", b"", ephemeral=True)
        session, events = other.session, other.session_events()
        await kill(other)
        heard = await news_until(events, SessionEvent.SESSION_REESTABLISHED)
        assert SessionEvent.SESSION_LOST in heard[:-1]
        assert SessionEvent.RECONNECTED not in heard
        assert other.session != session
        await gone(store, "/e")
        assert (await other.put("/e", b"again", ABSENT, ephemeral=True)).created_by_self
        assert not (await node_at(store, "/e")).stat.created_by_self

    async def test_child_of_an_ephemeral_node_is_refused(self, store: MetadataStore) -> None:
        await store.put("/e", b"", ephemeral=True)
        before = await store.revision()
        for call in (
            store.put("/e/child", b""),
            store.put("/e/a/b", b""),
            store.put("/e/n-", b"", sequential=True),
        ):
            with pytest.raises(InputError, match="/e"):
                await call
        assert await store.children("/e") == []
        assert await store.revision() == before

    async def test_later_put_keeps_the_owner(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        first = await other.put("/e", b"1", ephemeral=True)
        updated = await store.put("/e", b"2", first.version)
        assert (updated.ephemeral, updated.created_by_self) == (True, False)
        await store.put("/lasting", b"1")
        assert not (await other.put("/lasting", b"2", ephemeral=True)).ephemeral
        await kill(other)
        await gone(store, "/e")
        assert (await node_at(store, "/lasting")).value == b"2"

    async def test_anybody_may_delete_and_take_the_place(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        await other.put("/e", b"", ephemeral=True)
        await store.delete("/e")
        mine = await store.put("/e", b"mine", ABSENT, ephemeral=True)
        with pytest.raises(BadVersion):
            await other.put("/e", b"", ABSENT, ephemeral=True)
        await kill(other)
        await store.put("/wait", b"")
        assert (await node_at(store, "/e")).stat == mine

    async def test_ephemeral_nodes_in_a_batch(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        await other.batch([Put(f"/e/{i}", b"", ephemeral=i % 2 == 0) for i in range(6)])
        await kill(other)
        await gone(store, "/e/4")
        assert await store.children("/e") == ["1", "3", "5"]

    async def test_clock_of_the_session(self, store: MetadataStore) -> None:
        assert store.session_timeout_s > 0
        assert store.session_valid_until > 0


class Sequences:
    """Numbers given out per parent, each once, rising."""

    async def test_numbers_rise_and_stand_in_the_path(self, store: MetadataStore) -> None:
        stats = [await store.put("/q/n-", b"%d" % i, sequential=True) for i in range(3)]
        assert [stat.path for stat in stats] == [f"/q/n-{i:010}" for i in range(3)]
        assert await store.children("/q") == [f"n-{i:010}" for i in range(3)]
        assert (await node_at(store, stats[2].path)).value == b"2"

    async def test_a_name_below_the_root_may_be_the_number_alone(
        self, store: MetadataStore
    ) -> None:
        first = await store.put("/", b"", sequential=True)
        second = await store.put("/", b"", sequential=True)
        assert first.path < second.path
        assert {name for name in await store.children("/") if name.isdigit()} == {
            first.path[1:],
            second.path[1:],
        }

    async def test_names_of_one_parent_share_the_numbers(self, store: MetadataStore) -> None:
        first = await store.put("/q/a-", b"", sequential=True)
        second = await store.put("/q/", b"", sequential=True)
        third = await store.put("/q/b-", b"", sequential=True)
        elsewhere = await store.put("/r/a-", b"", sequential=True)
        numbers = [int(stat.path[-10:]) for stat in (first, second, third)]
        assert numbers == sorted(set(numbers))
        assert int(elsewhere.path[-10:]) == int(first.path[-10:])
        assert second.path == f"/q/{numbers[1]:010}"

    async def test_eight_writers_get_different_rising_numbers(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        async def draw(handle: MetadataStore) -> list[str]:
            return [(await handle.put("/q/n-", b"", sequential=True)).path for _ in range(25)]

        drawn = await asyncio.gather(*(draw((store, other)[i % 2]) for i in range(8)))
        assert len({path for paths in drawn for path in paths}) == 200
        assert all(paths == sorted(paths) for paths in drawn)

    async def test_number_is_not_given_out_again_after_a_delete(self, store: MetadataStore) -> None:
        last = ""
        for _ in range(3):
            stat = await store.put("/q/n-", b"", sequential=True)
            assert stat.path > last
            last = stat.path
            await store.delete(stat.path)
        assert await store.children("/q") == []

    async def test_name_that_is_taken_is_passed_over(self, store: MetadataStore) -> None:
        taken = await store.put("/q/n-0000000003", b"taken")
        drawn = [(await store.put("/q/n-", b"", sequential=True)).path for _ in range(6)]
        assert taken.path not in drawn
        assert drawn == sorted(set(drawn))
        assert (await node_at(store, taken.path)).value == b"taken"

    async def test_parent_does_not_change(self, store: MetadataStore) -> None:
        parent = await store.put("/q", b"x")
        await store.put("/q/n-", b"", sequential=True)
        assert (await node_at(store, "/q")).stat.version == parent.version

    async def test_exact_version_makes_no_sense(self, store: MetadataStore) -> None:
        with pytest.raises(InputError, match="/q/n-"):
            await store.put("/q/n-", b"", Version(0, 1), sequential=True)
        assert not await store.exists("/q")

    async def test_sequential_ephemeral_nodes_in_a_batch(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        outcomes = await other.batch(
            [Put("/q/n-", b"", ephemeral=True, sequential=True) for _ in range(3)]
        )
        paths = [outcome.path for outcome in outcomes if isinstance(outcome, Stat)]
        assert len(set(paths)) == 3
        assert paths == sorted(paths)
        await kill(other)
        await gone(store, paths[2])
        stat = await store.put("/q/n-", b"", sequential=True)
        assert stat.path > paths[2]


class Guards:
    """A write that carries a guard counts only while the guard's node is as it says."""

    async def test_guarded_writes_while_the_guard_holds(self, store: MetadataStore) -> None:
        fence = await store.put("/fence", b"1")
        guard = Guard("/fence", fence.version)
        await store.put("/a", b"1", guard=guard)
        await store.put("/a", b"2", guard=guard)
        await store.delete("/a", guard=guard)
        assert await store.children("/") == ["fence"]

    async def test_raising_the_fence_fails_older_writers(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        old = Guard("/fence", (await other.put("/fence", b"1")).version)
        await other.put("/a", b"1", guard=old)
        new = Guard("/fence", (await store.put("/fence", b"2", old.version)).version)
        for call in (
            other.put("/a", b"2", guard=old),
            other.put("/new", b"", ABSENT, guard=old),
            other.delete("/a", guard=old),
        ):
            with pytest.raises(Fenced, match="/fence"):
                await call
        assert (await node_at(store, "/a")).value == b"1"
        assert not await store.exists("/new")
        await store.put("/a", b"3", guard=new)

    async def test_guard_that_is_gone_fences(self, store: MetadataStore) -> None:
        guard = Guard("/fence", (await store.put("/fence", b"")).version)
        await store.delete("/fence")
        with pytest.raises(Fenced):
            await store.put("/a", b"", guard=guard)
        await store.put("/fence", b"")
        with pytest.raises(Fenced):
            await store.put("/a", b"", guard=guard)

    async def test_guards_in_a_batch_stop_only_their_own_write(self, store: MetadataStore) -> None:
        guard = Guard("/fence", (await store.put("/fence", b"")).version)
        outcomes = await store.batch(
            [
                Put("/1", b"", guard=guard),
                Put("/fence", b"raised"),
                Put("/2", b"", guard=guard),
                Delete("/1", guard=guard),
                Put("/3", b""),
            ]
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Stat, Stat, Fenced, Fenced, Stat]
        assert await store.children("/") == ["1", "3", "fence"]

    async def test_guard_by_an_ephemeral_node(
        self, store: MetadataStore, other: MetadataStore, kill: Kill
    ) -> None:
        lock = await other.put("/lock", b"", ABSENT, ephemeral=True)
        guard = Guard("/lock", lock.version)
        await other.put("/owned", b"1", guard=guard)
        await kill(other)
        await gone(store, "/lock")
        with pytest.raises((Fenced, SessionExpired)):
            await other.put("/owned", b"2", guard=guard)
        assert (await node_at(store, "/owned")).value == b"1"

    async def test_guard_is_looked_at_before_the_condition(self, store: MetadataStore) -> None:
        guard = Guard("/fence", (await store.put("/fence", b"")).version)
        await store.put("/fence", b"2")
        with pytest.raises(Fenced):
            await store.put("/fence", b"3", ABSENT, guard=guard)
        with pytest.raises(Fenced):
            await store.delete("/nothing", guard=guard)
        with pytest.raises(NotFound):
            await store.delete("/nothing")
