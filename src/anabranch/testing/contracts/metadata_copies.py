"""What every metadata store must do for copies of it: indexes, export, restore, changes since.

Subclasses give the fixtures `store`, an open and empty `MetadataStore`, and `another`, a second
empty store of any kind.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from anabranch import limits
from anabranch.errors import AnabranchError, ConflictError, InputError
from anabranch.metadata.store import (
    Delete,
    EventKind,
    IndexKey,
    MetadataStore,
    Put,
    Record,
    Revision,
    Version,
)
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_trees import put_all


async def by_index(
    store: MetadataStore, index: str, first: str = "", last: str | None = None
) -> list[str]:
    """The paths that a secondary index finds."""
    return [node.stat.path async for node in store.scan_index(index, first, last)]


async def records_of(store: MetadataStore, prefix: str = "/") -> list[Record]:
    """Everything that is exported."""
    return [record async for record in store.export(prefix)]


async def each(records: list[Record]) -> AsyncIterator[Record]:
    """Records as `restore` takes them."""
    for record in records:
        yield record


class Indexes:
    """Nodes found by another name than their path."""

    async def test_found_in_the_order_of_keys_and_paths(self, store: MetadataStore) -> None:
        for path, key in (("/c", "2"), ("/a/x", "3"), ("/b", "1"), ("/a", "2"), ("/a-b", "2")):
            await store.put(path, key.encode(), indexes=(IndexKey("by-key", key),))
        await store.put("/none", b"")
        assert await by_index(store, "by-key") == ["/b", "/a", "/a-b", "/c", "/a/x"]
        assert await by_index(store, "by-key", "2", "3") == ["/a", "/a-b", "/c"]
        assert await by_index(store, "by-key", "20") == ["/a/x"]
        assert await by_index(store, "unknown") == []
        nodes = [node async for node in store.scan_index("by-key", "3")]
        assert nodes == [await node_at(store, "/a/x")]

    async def test_follow_puts_and_deletes(self, store: MetadataStore) -> None:
        await store.put("/a", b"", indexes=(IndexKey("i", "1"), IndexKey("j", "1")))
        await store.put("/a", b"", indexes=(IndexKey("i", "2"),))
        assert await by_index(store, "i") == ["/a"]
        assert await by_index(store, "i", "1", "2") == []
        assert await by_index(store, "j") == []
        await store.put("/a", b"")
        assert await by_index(store, "i") == []
        await store.put("/a", b"", indexes=(IndexKey("i", "3"),))
        await store.delete("/a")
        assert await by_index(store, "i") == []

    async def test_refused_put_leaves_them(self, store: MetadataStore) -> None:
        await store.put("/a", b"", indexes=(IndexKey("i", "1"),))
        with pytest.raises(ConflictError):
            await store.put("/a", b"", Version(0, 99), indexes=(IndexKey("i", "2"),))
        assert await by_index(store, "i", "1", "2") == ["/a"]

    async def test_bad_keys_are_refused(self, store: MetadataStore) -> None:
        key = IndexKey("i", "1")
        for wrong in (
            (key, key),
            (IndexKey("", "1"),),
            (IndexKey("i", "x" * (limits.METADATA_INDEX_BYTES_MAX + 1)),),
            tuple(IndexKey("i", str(i)) for i in range(limits.METADATA_INDEXES_PER_NODE_MAX + 1)),
        ):
            with pytest.raises(InputError, match="/a"):
                await store.put("/a", b"", indexes=wrong)
        assert not await store.exists("/a")

    async def test_many(self, store: MetadataStore) -> None:
        numbers = [i * 7 % 3000 for i in range(3000)]
        await put_all(
            store, [Put(f"/n/{i}", b"", indexes=(IndexKey("i", f"{i:04}"),)) for i in numbers]
        )
        assert await by_index(store, "i") == [f"/n/{i}" for i in range(3000)]


class Copies:
    """Everything can be taken out and put in elsewhere."""

    async def test_export_tells_all(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"1")
        await store.put("/a/b", b"2", indexes=(IndexKey("i", "k"),))
        await store.put("/a/n-", b"", sequential=True)
        await store.put("/e", b"", ephemeral=True)
        found = {record.path: record for record in await records_of(store)}
        assert list(found) == ["/", "/a", "/a/b", "/a/n-0000000000", "/e"]
        assert found["/a"].next_sequence > 0
        assert found["/a/b"].value == b"2"
        assert found["/a/b"].indexes == (IndexKey("i", "k"),)
        assert found["/a/b"].modified_ms >= found["/a/b"].created_ms > 0
        assert found["/e"].session == store.session
        assert found["/a/b"].session is None
        assert [record.path for record in await records_of(store, "/a")] == [
            "/a",
            "/a/b",
            "/a/n-0000000000",
        ]

    async def test_one_node_is_looked_at_as_it_is_exported(self, store: MetadataStore) -> None:
        assert await store.record("/a") is None
        await store.put("/a/b", b"1", indexes=(IndexKey("i", "k"),))
        await store.put("/a/n-", b"", sequential=True)
        await store.put("/e", b"", ephemeral=True)
        for record in await records_of(store):
            assert await store.record(record.path) == record
        await store.delete("/a/b")
        assert await store.record("/a/b") is None

    async def test_export_is_of_one_moment(self, store: MetadataStore) -> None:
        await put_all(store, [Put(f"/t/{i:05}", b"old") for i in range(3000)])
        seen: list[Record] = []
        async for record in store.export("/t"):
            seen.append(record)
            if len(seen) == 5:
                await put_all(store, [Put(f"/t/{i:05}", b"new") for i in range(0, 3000, 3)])
                await put_all(store, [Delete(f"/t/{i:05}") for i in range(1, 3000, 3)])
                await put_all(store, [Put(f"/t/{i:05}/new", b"") for i in range(2, 3000, 3)])
        assert [record.path for record in seen] == ["/t"] + [f"/t/{i:05}" for i in range(3000)]
        assert {record.value for record in seen[1:]} == {b"old"}

    async def test_round_trip_keeps_everything(
        self, store: MetadataStore, another: MetadataStore
    ) -> None:
        await another.put("/", b"root")
        for value in (b"", b"\x00" * 1000, "ä€𝄞".encode()):
            await another.put("/a/ä€", value, indexes=(IndexKey("i", "k"),))
        await another.put("/big", b"x" * limits.METADATA_VALUE_BYTES_MAX)
        await another.put("/d" * 100, b"deep")
        issued = [(await another.put("/a/n-", b"", sequential=True)).path for _ in range(3)]
        await another.delete(issued[2])
        await another.put("/gone", b"", ephemeral=True)
        records = await records_of(another)
        lasting = [record for record in records if record.session is None]
        assert await store.restore(each(records)) == len(lasting)
        assert await records_of(store) == lasting
        assert not await store.exists("/gone")
        assert await by_index(store, "i") == ["/a/ä€"]
        assert (await store.put("/a/n-", b"", sequential=True)).path > issued[2]
        version = (await node_at(store, "/a/ä€")).stat.version
        assert version.native == (await node_at(another, "/a/ä€")).stat.version.native == 2
        assert (await store.put("/a/ä€", b"next", version)).version.native == 3

    async def test_large_version_is_kept(self, store: MetadataStore) -> None:
        await store.restore(each([Record("/a", b"", 10**6, 1, 2), Record("/b", b"", 2**40, 3, 4)]))
        node = await node_at(store, "/a")
        assert (node.stat.version.native, node.stat.created_ms, node.stat.modified_ms) == (
            10**6,
            1,
            2,
        )
        assert (await node_at(store, "/b")).stat.version.native == 2**40

    async def test_restore_over_something_is_refused(self, store: MetadataStore) -> None:
        await store.put("/b", b"kept")
        records = [Record(path, b"new", 0, 1, 1) for path in ("/a", "/b", "/c")]
        with pytest.raises(ConflictError, match="/b"):
            await store.restore(each(records))
        assert (await node_at(store, "/b")).value == b"kept"
        assert not await store.exists("/c")

    async def test_restored_nodes_are_told(self, store: MetadataStore) -> None:
        since = await store.revision()
        await store.restore(each([Record("/a/b", b"", 0, 1, 1)]))
        changes = [(event.kind, event.path) async for event in store.changed_since(since)]
        assert changes == [(EventKind.CREATED, "/a"), (EventKind.CREATED, "/a/b")]

    async def test_changed_since_tells_the_newest_change_of_each_path(
        self, store: MetadataStore
    ) -> None:
        await store.put("/before", b"")
        since = await store.revision()
        await store.put("/a", b"")
        await store.put("/b/c", b"")
        modified = await store.put("/a", b"2")
        await store.put("/gone", b"")
        await store.delete("/gone")
        changes = [event async for event in store.changed_since(since)]
        assert [(event.kind, event.path) for event in changes] == [
            (EventKind.CREATED, "/b"),
            (EventKind.CREATED, "/b/c"),
            (EventKind.MODIFIED, "/a"),
            (EventKind.DELETED, "/gone"),
        ]
        assert changes[2].revision == modified.revision
        assert [event.path async for event in store.changed_since(since, "/b")] == ["/b", "/b/c"]
        assert [event async for event in store.changed_since(changes[-1].revision)] == []

    async def test_changed_since_another_history_is_a_gap_alone(self, store: MetadataStore) -> None:
        await store.put("/a", b"")
        newest = await store.revision()
        since = Revision(newest.epoch + 5, newest.index + 1000)
        changes = [event async for event in store.changed_since(since)]
        assert [(event.kind, event.path) for event in changes] == [(EventKind.GAP, "/")]

    async def test_a_moment_comes_again_only_if_nothing_was_written(
        self, store: MetadataStore
    ) -> None:
        writes: dict[str, Callable[[], Awaitable[object]]] = {
            "create": lambda: store.put("/a", b""),
            "modify": lambda: store.put("/a", b""),
            "below": lambda: store.put("/a/b", b"", indexes=(IndexKey("i", "k"),)),
            "session": lambda: store.put("/mine", b"", ephemeral=True),
            "sequence": lambda: store.put("/a/n-", b"", sequential=True),
            "delete": lambda: store.delete("/a/b"),
            "restore": lambda: store.restore(each([Record("/r", b"", 3, 1, 1)])),
        }
        for name, write in writes.items():
            before = await store.moment()
            await records_of(store)
            assert await store.moment() == before, "reading is no writing"
            await write()
            assert await store.moment() != before, name

    async def test_sync_shows_what_was_answered(self, store: MetadataStore) -> None:
        await asyncio.gather(*(store.put(f"/n/{i}", b"") for i in range(20)))
        await store.sync()
        assert len(await store.children("/n")) == 20

    async def test_bad_record_is_refused(self, store: MetadataStore) -> None:
        for wrong in (
            Record("no path", b"", 0, 0, 0),
            Record("/a", b"x" * (limits.METADATA_VALUE_BYTES_MAX + 1), 0, 0, 0),
            Record("/a", b"", -1, 0, 0),
        ):
            with pytest.raises(AnabranchError):
                await store.restore(each([wrong]))
        assert await store.children("/") == []
