"""Where ZooKeeper cannot do what the contract's suite asks for: what it does instead."""

import pytest

from anabranch import limits
from anabranch.errors import InvalidPath
from anabranch.metadata.store import Delete, IndexKey, MetadataStore, Put, Record
from anabranch.testing.contracts.metadata import HostileInput, node_at
from anabranch.testing.contracts.metadata_copies import Copies, by_index, each, records_of
from anabranch.testing.contracts.metadata_trees import put_all


class ZooKeeperHostileInput(HostileInput):
    """Names that Java has two characters for are not taken."""

    @pytest.mark.parametrize("path", ["/ä/€/ﬀ", "/a b/ c ", "/%2F/a%00", "/...", "/a:b=c;d"])
    async def test_odd_names_are_kept(self, store: MetadataStore, path: str) -> None:
        await HostileInput.test_odd_names_are_kept(self, store, path)

    async def test_names_that_java_has_two_characters_for_are_refused(
        self, store: MetadataStore
    ) -> None:
        with pytest.raises(InvalidPath, match="/€/𝄞"):
            await store.put("/€/𝄞", b"")
        assert await store.get("/€/𝄞") is None


class ZooKeeperCopies(Copies):
    """An export is not of one moment; times and large versions are not restored."""

    async def test_export_tells_all(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"1")
        await store.put("/a/b", b"2", indexes=(IndexKey("i", "k"),))
        await store.put("/a/n-", b"", sequential=True)
        await store.put("/e", b"", ephemeral=True)
        found = {record.path: record for record in await records_of(store)}
        # The numbers are those of all children.
        assert list(found) == ["/", "/a", "/a/b", "/a/n-0000000001", "/e"]
        assert found["/a"].next_sequence == 2
        assert (found["/a/b"].value, found["/a/b"].native_version) == (b"2", 1)
        assert found["/a/b"].indexes == (IndexKey("i", "k"),)
        assert found["/a/b"].modified_ms >= found["/a/b"].created_ms > 0
        assert found["/e"].session == store.session
        assert found["/a/b"].session is None
        assert [r.path for r in await records_of(store, "/a")] == list(found)[1:4]

    async def test_export_is_of_one_moment(self, store: MetadataStore) -> None:
        """It is not; what changed meanwhile is told by `changed_since`, deletions included."""
        await put_all(store, [Put(f"/t/{i:05}", b"old") for i in range(3000)])
        since = await store.revision()
        seen: dict[str, Record] = {}
        async for record in store.export("/t"):
            assert record.path not in seen
            seen[record.path] = record
            if len(seen) == 5:
                await put_all(store, [Put(f"/t/{i:05}", b"new") for i in range(0, 3000, 3)])
                await put_all(store, [Delete(f"/t/{i:05}") for i in range(1, 3000, 3)])
                await put_all(store, [Put(f"/t/{i:05}/new", b"") for i in range(2, 3000, 3)])
        assert list(seen) == sorted(seen)
        assert {f"/t/{i:05}" for i in range(3000) if i % 3 != 1} <= set(seen)
        async for event in store.changed_since(since, "/t"):
            seen.pop(event.path, None)
            if (node := await store.get(event.path)) is not None:
                seen[event.path] = Record(event.path, node.value, 0, 0, 0)
        state = {path: record.value for path, record in seen.items()}
        assert state == {node.stat.path: node.value async for node in store.scan("/t")}

    async def test_round_trip_keeps_everything(
        self, store: MetadataStore, another: MetadataStore
    ) -> None:
        """Times are those of the restore; all else is kept, and sequences never go back."""
        await another.put("/", b"root")
        for value in (b"", b"\x00" * 1000, "ä€".encode()):
            await another.put("/a/ä€", value, indexes=(IndexKey("i", "k"),))
        await another.put("/big", b"x" * limits.METADATA_VALUE_BYTES_MAX)
        await another.put("/d" * 100, b"deep")
        issued = [(await another.put("/a/n-", b"", sequential=True)).path for _ in range(30)]
        await another.batch([Delete(path) for path in issued[2:]])
        await another.put("/gone", b"", ephemeral=True)
        records = await records_of(another)
        lasting = [record for record in records if record.session is None]
        assert await store.restore(each(records)) == len(lasting)
        for restored, record in zip(await records_of(store), lasting, strict=True):
            assert restored.next_sequence >= record.next_sequence
            assert restored.created_ms > 0
            kept = restored._replace(
                created_ms=record.created_ms,
                modified_ms=record.modified_ms,
                next_sequence=record.next_sequence,
            )
            assert kept == record
        assert not await store.exists("/gone")
        assert await by_index(store, "i") == ["/a/ä€"]
        assert (await store.put("/a/n-", b"", sequential=True)).path > issued[-1]
        version = (await node_at(store, "/a/ä€")).stat.version
        assert version.native == (await node_at(another, "/a/ä€")).stat.version.native == 2
        assert (await store.put("/a/ä€", b"next", version)).version.native == 3

    async def test_large_version_is_kept(self, store: MetadataStore) -> None:
        """Up to 1,000; a node with a larger one begins anew."""
        versions = {"/a": 1, "/b": 999, "/c": 1000, "/d": 1001, "/e": 2**40}
        await store.restore(each([Record(p, b"x", n, 1, 2) for p, n in versions.items()]))
        found = [(await node_at(store, path)).stat.version.native for path in versions]
        assert found == [1, 999, 1000, 0, 0]
