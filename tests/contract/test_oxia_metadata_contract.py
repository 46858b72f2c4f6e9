"""The metadata store's contract, shown on a real Oxia with one shard and with three.

Where Oxia cannot do what the shared suite expects, the test is replaced here by one that says what
it does instead: times of restored nodes are those of the copy, an export goes level by level, and
changes on different shards have no order between them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from anabranch import limits
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.address import parse_address
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.store import IndexKey, MetadataStore, Put, Record, Stat
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import (
    ConditionalWrites,
    Deletes,
    HostileInput,
    node_at,
)
from anabranch.testing.contracts.metadata_copies import (
    Copies,
    Indexes,
    by_index,
    each,
    records_of,
)
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.servers.oxia import Oxia, oxia

# One loop for all: grpc.aio serves one loop per process well, and many after another badly.
pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]
TIMEOUT_S = 3.0


async def wipe(server: Oxia) -> None:
    """Delete every key of the one server that the tests of this module share."""
    client = await OxiaClient.open(real_runtime(), parse_address(server.url))
    for link in client.links:
        found = await link.keys_in(("", ""))
        await asyncio.gather(*(link.write(pb.DeleteRequest(key=key)) for key in found))
    await client.close()


@pytest.fixture(scope="module", params=[1, 3], ids=["1-shard", "3-shards"])
def server(request: pytest.FixtureRequest) -> Iterator[Oxia]:
    with oxia(request.param) as server:
        yield server


class OnOxia:
    @pytest_asyncio.fixture(loop_scope="module")
    async def store(self, server: Oxia) -> AsyncIterator[MetadataStore]:
        await wipe(server)
        store = await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)
        yield store
        await store.close()

    @pytest_asyncio.fixture(loop_scope="module")
    async def other(self, server: Oxia, store: MetadataStore) -> AsyncIterator[MetadataStore]:
        other = await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: MetadataStore) -> Kill:
        return lambda victim: store.end_session(victim.session)  # type: ignore[attr-defined]

    @pytest_asyncio.fixture(loop_scope="module")
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M2", part="oxia")
class TestOxiaConditionalWrites(OnOxia, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaDeletes(OnOxia, Deletes):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaHostileInput(OnOxia, HostileInput):
    pass


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M7", part="oxia")
class TestOxiaScanAndChildren(OnOxia, ScanAndChildren):
    pass


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M6", part="oxia")
class TestOxiaBatching(OnOxia, Batching):
    async def test_large_batch(self, store: MetadataStore, server: Oxia) -> None:
        operations = [Put(f"/n/{i:04}", b"%d" % i) for i in range(3500)]
        outcomes = await store.batch(operations)
        assert [o.path for o in outcomes if isinstance(o, Stat)] == [o.path for o in operations]
        assert len({o.revision for o in outcomes if isinstance(o, Stat)}) == 3500


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M5", part="oxia")
class TestOxiaWatching(OnOxia, Watching):
    pass


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M3", part="oxia")
class TestOxiaSessions(OnOxia, Sessions):
    pass


@pytest.mark.goal("core.M1", part="oxia")
@pytest.mark.goal("core.M4", part="oxia")
class TestOxiaSequences(OnOxia, Sequences):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaGuards(OnOxia, Guards):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaIndexes(OnOxia, Indexes):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaCopies(OnOxia, Copies):
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
        lasting = {r.path: replace(r, created_ms=0, modified_ms=0) for r in records}
        del lasting["/gone"]
        since = records[0].modified_ms
        assert await store.restore(each(records)) == len(lasting)
        copied = await records_of(store)
        assert all(record.created_ms == record.modified_ms >= since for record in copied)
        assert {r.path: replace(r, created_ms=0, modified_ms=0) for r in copied} == lasting
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
        client = store._client  # type: ignore[attr-defined]
        names = [f"/later{i}" for i in range(60)]
        names = [name for name in names if client.link_of(name) is client.link_of("/a")]
        later = await asyncio.gather(*(store.put(name, b"") for name in names))
        assert min(stat.version.life for stat in later) > 30_000, "no number is given twice"
        changed = await store.put("/a", b"", node.stat.version)
        assert changed.version.native == 30_001
        assert changed.version.life > 30_000
