"""What every metadata store must do with single nodes: conditional writes, deletes, bad input.

Subclasses give the fixture `store`, an open and empty `MetadataStore`.
"""

import asyncio

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    BadVersion,
    ConflictError,
    InputError,
    InvalidPath,
    NotEmpty,
    NotFound,
)
from anabranch.metadata.store import ABSENT, ANY, MetadataStore, Node, Stat, Version


async def node_at(store: MetadataStore, path: str) -> Node:
    """The node, which must be there."""
    node = await store.get(path)
    assert node is not None, f"nothing at {path}"
    return node


class ConditionalWrites:
    """Any, absent and exact versions."""

    async def test_put_then_get_returns_value_and_stat(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"one")
        assert await node_at(store, "/a") == Node(b"one", stat)
        assert stat.path == "/a"
        assert stat.created_ms == stat.modified_ms > 0

    async def test_get_of_nothing_is_none(self, store: MetadataStore) -> None:
        assert await store.get("/nothing") is None
        assert not await store.exists("/nothing")

    async def test_put_any_overwrites(self, store: MetadataStore) -> None:
        first = await store.put("/a", b"one", ANY)
        second = await store.put("/a", b"two", ANY)
        assert await node_at(store, "/a") == Node(b"two", second)
        assert second.version != first.version
        assert second.revision > first.revision
        assert second.created_ms == first.created_ms

    async def test_put_absent_creates_once(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"one", ABSENT)
        with pytest.raises(BadVersion, match="/a"):
            await store.put("/a", b"two", ABSENT)
        assert await node_at(store, "/a") == Node(b"one", stat)

    async def test_put_exact_version(self, store: MetadataStore) -> None:
        first = await store.put("/a", b"one")
        second = await store.put("/a", b"two", first.version)
        assert await node_at(store, "/a") == Node(b"two", second)

    async def test_put_stale_version_changes_nothing(self, store: MetadataStore) -> None:
        first = await store.put("/a", b"one")
        second = await store.put("/a", b"two", first.version)
        with pytest.raises(BadVersion):
            await store.put("/a", b"three", first.version)
        assert await node_at(store, "/a") == Node(b"two", second)

    async def test_put_version_where_nothing_is(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"one")
        with pytest.raises(BadVersion):
            await store.put("/b", b"one", stat.version)
        assert not await store.exists("/b")

    async def test_put_version_after_delete(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"one")
        await store.delete("/a")
        with pytest.raises(BadVersion):
            await store.put("/a", b"two", stat.version)
        assert not await store.exists("/a")

    async def test_version_of_an_earlier_life_does_not_match(self, store: MetadataStore) -> None:
        first = await store.put("/a", b"one")
        await store.delete("/a")
        second = await store.put("/a", b"one")
        assert second.version != first.version
        with pytest.raises(BadVersion):
            await store.put("/a", b"two", first.version)
        with pytest.raises(BadVersion):
            await store.delete("/a", first.version)
        await store.put("/a", b"two", second.version)

    async def test_version_of_another_store_does_not_match(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"one")
        foreign = Version(stat.version.epoch + 1, stat.version.native, stat.version.life)
        with pytest.raises(BadVersion):
            await store.put("/a", b"two", foreign)

    async def test_refused_put_makes_no_parents(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"")
        with pytest.raises(BadVersion):
            await store.put("/x/y/z", b"", stat.version)
        assert not await store.exists("/x")

    async def test_one_of_many_creators_wins(self, store: MetadataStore) -> None:
        results = await asyncio.gather(
            *(store.put("/a", b"%d" % i, ABSENT) for i in range(20)), return_exceptions=True
        )
        winners = [i for i, result in enumerate(results) if isinstance(result, Stat)]
        assert len(winners) == 1
        assert (await node_at(store, "/a")).value == b"%d" % winners[0]
        assert sum(isinstance(result, BadVersion) for result in results) == 19

    async def test_concurrent_counters_lose_nothing(self, store: MetadataStore) -> None:
        await store.put("/counter", b"0")

        async def add(times: int) -> None:
            while times:
                node = await node_at(store, "/counter")
                try:
                    value = b"%d" % (int(node.value) + 1)
                    await store.put("/counter", value, node.stat.version)
                    times -= 1
                except BadVersion:
                    pass

        await asyncio.gather(*(add(5) for _ in range(8)))
        assert (await node_at(store, "/counter")).value == b"40"

    async def test_write_is_read_back_at_once(self, store: MetadataStore) -> None:
        for i in range(20):
            stat = await store.put("/a", b"%d" % i)
            assert await node_at(store, "/a") == Node(b"%d" % i, stat)
            assert await store.revision() >= stat.revision

    async def test_parents_are_made_empty(self, store: MetadataStore) -> None:
        await store.put("/a/b/c", b"x")
        assert (await node_at(store, "/a")).value == b""
        assert (await node_at(store, "/a/b")).value == b""
        assert await store.exists("/a/b")

    async def test_parents_keep_their_values(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"kept")
        await store.put("/a/b", b"x")
        assert await node_at(store, "/a") == Node(b"kept", stat)

    async def test_implied_parent_counts_as_present(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"x")
        with pytest.raises(BadVersion):
            await store.put("/a", b"", ABSENT)
        implied = await node_at(store, "/a")
        await store.put("/a", b"now put", implied.stat.version)
        assert (await node_at(store, "/a")).value == b"now put"

    async def test_root_is_there_and_can_be_written(self, store: MetadataStore) -> None:
        root = await node_at(store, "/")
        assert root.value == b""
        with pytest.raises(BadVersion):
            await store.put("/", b"x", ABSENT)
        await store.put("/", b"x", root.stat.version)
        assert (await node_at(store, "/")).value == b"x"


class Deletes:
    """Removing nodes."""

    async def test_delete(self, store: MetadataStore) -> None:
        await store.put("/a", b"one")
        await store.delete("/a")
        assert await store.get("/a") is None
        assert await store.children("/") == []

    async def test_delete_of_nothing(self, store: MetadataStore) -> None:
        with pytest.raises(NotFound, match="/a"):
            await store.delete("/a")
        stat = await store.put("/b", b"")
        with pytest.raises(NotFound):
            await store.delete("/a", stat.version)

    async def test_delete_exact_version(self, store: MetadataStore) -> None:
        stale = await store.put("/a", b"one")
        fresh = await store.put("/a", b"two")
        with pytest.raises(BadVersion):
            await store.delete("/a", stale.version)
        assert await store.exists("/a")
        await store.delete("/a", fresh.version)
        assert not await store.exists("/a")

    async def test_delete_if_absent_never_deletes(self, store: MetadataStore) -> None:
        await store.put("/a", b"one")
        with pytest.raises(BadVersion):
            await store.delete("/a", ABSENT)
        assert await store.exists("/a")

    async def test_delete_of_a_parent_is_refused(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"x")
        with pytest.raises(NotEmpty, match="/a"):
            await store.delete("/a")
        await store.delete("/a/b")
        assert await store.exists("/a"), "an emptied parent stays"
        await store.delete("/a")
        assert not await store.exists("/a")

    async def test_conflicts_are_one_family(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"x")
        with pytest.raises(ConflictError):
            await store.delete("/a")

    async def test_root_cannot_be_deleted(self, store: MetadataStore) -> None:
        with pytest.raises(AnabranchError):
            await store.delete("/")
        assert await store.exists("/")

    async def test_one_of_many_deleters_wins(self, store: MetadataStore) -> None:
        stat = await store.put("/a", b"")
        results = await asyncio.gather(
            *(store.delete("/a", stat.version) for _ in range(10)), return_exceptions=True
        )
        assert results.count(None) == 1
        assert sum(isinstance(result, NotFound) for result in results) == 9


class HostileInput:
    """What is wrong in itself is refused by name and changes nothing; what is odd is kept."""

    @pytest.mark.parametrize(
        "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\x00b", "/a\nb", "/\ud800"]
    )
    async def test_bad_path_is_refused_by_every_call(self, store: MetadataStore, path: str) -> None:
        before = await store.revision()
        for call in (store.get, store.exists, store.children, store.delete):
            with pytest.raises(InvalidPath):
                await call(path)
        with pytest.raises(InvalidPath):
            await store.put(path, b"")
        with pytest.raises(InvalidPath):
            async for _ in store.scan(path):
                pass
        with pytest.raises(InvalidPath):
            await anext(store.watch(path))
        assert await store.revision() == before

    async def test_value_at_the_limit_is_kept(self, store: MetadataStore) -> None:
        value = bytes(range(256)) * (limits.METADATA_VALUE_BYTES_MAX // 256)
        await store.put("/large", value)
        assert (await node_at(store, "/large")).value == value

    async def test_value_above_the_limit_is_refused(self, store: MetadataStore) -> None:
        with pytest.raises(InputError, match="/large"):
            await store.put("/large", b"x" * (limits.METADATA_VALUE_BYTES_MAX + 1))
        assert not await store.exists("/large")

    async def test_empty_value_is_a_value(self, store: MetadataStore) -> None:
        await store.put("/empty", b"")
        assert (await node_at(store, "/empty")).value == b""

    @pytest.mark.parametrize("path", ["/ä/€/𝄞", "/a b/ c ", "/%2F/a%00", "/...", "/a:b=c;d"])
    async def test_odd_names_are_kept(self, store: MetadataStore, path: str) -> None:
        await store.put(path, path.encode())
        assert (await node_at(store, path)).value == path.encode()
        assert await store.children("/") == [path.split("/")[1]]

    async def test_deep_path(self, store: MetadataStore) -> None:
        path = "/d" * 200
        await store.put(path, b"deep")
        assert (await node_at(store, path)).value == b"deep"
        assert [node async for node in store.scan("/d")][-1].stat.path == path

    async def test_closed_store_says_so(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        await store.close()
        with pytest.raises(AlreadyClosed):
            await store.get("/a")
        with pytest.raises(AlreadyClosed):
            await store.put("/a", b"")
        with pytest.raises(AlreadyClosed):
            await store.batch([])
        await store.close()
