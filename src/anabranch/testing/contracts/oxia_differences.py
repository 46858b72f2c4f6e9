"""Where Oxia cannot do what the contract's suite asks for: what it does instead.

Times of restored nodes are those of the copy, an export goes level by level, and changes on
different shards have no order between them.
"""

import asyncio

from anabranch import limits
from anabranch.metadata.store import IndexKey, MetadataStore, Put, Record, Stat
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_copies import Copies, by_index, each, records_of
from anabranch.testing.contracts.metadata_trees import Batching


class OxiaBatching(Batching):
    """Revisions of one batch differ, and are not in its order."""

    async def test_large_batch(self, store: MetadataStore) -> None:
        operations = [Put(f"/n/{i:04}", b"%d" % i) for i in range(3500)]
        outcomes = await store.batch(operations)
        assert [o.path for o in outcomes if isinstance(o, Stat)] == [o.path for o in operations]
        assert len({o.revision for o in outcomes if isinstance(o, Stat)}) == 3500


class OxiaCopies(Copies):
    """Times are new, and levels come one after another."""

    async def test_export_tells_all(self, store: MetadataStore) -> None:
        await store.put("/a/b", b"1")
        await store.put("/a/b", b"2", indexes=(IndexKey("i", "k"), IndexKey("i/.j", "/k.")))
        await store.put("/a/n-", b"", sequential=True)
        await store.put("/e", b"", ephemeral=True)
        found = {record.path: record for record in await records_of(store)}
        assert list(found) == ["/", "/a", "/e", "/a/b", "/a/n-0000000000"]
        assert found["/a"].next_sequence == 1
        assert found["/a/b"].value == b"2"
        assert found["/a/b"].indexes == (IndexKey("i", "k"), IndexKey("i/.j", "/k."))
        assert found["/a/b"].modified_ms >= found["/a/b"].created_ms > 0
        assert found["/e"].session == store.session
        assert found["/a/b"].session is None
        assert [record.path for record in await records_of(store, "/a")] == [
            "/a",
            "/a/b",
            "/a/n-0000000000",
        ]

    async def test_round_trip_keeps_everything(
        self, store: MetadataStore, another: MetadataStore
    ) -> None:
        await another.put("/", b"root")
        for value in (b"", b"\x00" * 1000, "ä€𝄞".encode()):
            await another.put("/a/ä€", value, indexes=(IndexKey("i", "k"),))
        await another.put("/big", b"x" * limits.METADATA_VALUE_BYTES_MAX)
        await another.put("/d" * 100, b"deep")
        await another.put("/a", b"a parent with a value")
        issued = [(await another.put("/a/n-", b"", sequential=True)).path for _ in range(3)]
        await another.delete(issued[2])
        await another.put("/gone", b"", ephemeral=True)
        records = await records_of(another)
        lasting = {r.path: r._replace(created_ms=0, modified_ms=0) for r in records}
        del lasting["/gone"]
        since = records[0].modified_ms
        assert await store.restore(each(records)) == len(lasting)
        copied = await records_of(store)
        assert all(record.created_ms == record.modified_ms >= since for record in copied)
        assert {r.path: r._replace(created_ms=0, modified_ms=0) for r in copied} == lasting
        assert not await store.exists("/gone")
        assert await by_index(store, "i") == ["/a/ä€"]
        assert (await store.put("/a/n-", b"", sequential=True)).path > issued[2]
        version = (await node_at(store, "/a/ä€")).stat.version
        assert version.native == (await node_at(another, "/a/ä€")).stat.version.native == 2
        assert version.life == 2, "what Pulsar takes for the version"
        assert (await store.put("/a/ä€", b"next", version)).version.native == 3

    async def test_empty_parent_counts_as_pulsar_counts(
        self, store: MetadataStore, another: MetadataStore
    ) -> None:
        for _ in range(7):
            await another.put("/q/n-", b"", sequential=True)
        await store.restore(each(await records_of(another)))
        # Pulsar writes to the empty parent and takes the count of its changes as the number.
        stat = await store.put("/q", b"")
        assert stat.version.native == 7
        assert (await store.put("/q/n-", b"", sequential=True)).path == "/q/n-0000000008"
        (record,) = [r for r in await records_of(store) if r.path == "/q"]
        assert record.next_sequence == 9

    async def test_large_version_is_kept(self, store: MetadataStore) -> None:
        await store.restore(each([Record("/a", b"", 30_000, 1, 2), Record("/b", b"", 2**40, 3, 4)]))
        node = await node_at(store, "/a")
        assert (node.stat.version.native, node.stat.version.life) == (30_000, 30_000)
        assert (await node_at(store, "/b")).stat.version.native == 2**40
        client = store._shards.present.client  # type: ignore[attr-defined]
        names = [f"/later{i}" for i in range(60)]
        names = [name for name in names if client.link_of(name) is client.link_of("/a")]
        later = await asyncio.gather(*(store.put(name, b"") for name in names))
        assert min(stat.version.life for stat in later) > 30_000, "no number is given twice"
        changed = await store.put("/a", b"", node.stat.version)
        assert changed.version.native == 30_001
        assert changed.version.life > 30_000
