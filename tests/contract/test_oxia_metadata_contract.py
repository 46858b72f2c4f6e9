"""The metadata store's contract, shown on a real Oxia with one shard and with three.

Where Oxia cannot do what the shared suite expects, the test is replaced here by one that says what
it does instead: times of restored nodes are those of the copy, an export goes level by level, and
changes on different shards have no order between them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from anabranch import limits
from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.address import parse_address
from anabranch.metadata.oxia.client import OxiaClient
from anabranch.metadata.store import IndexKey, MetadataStore, Put, Record, Stat
from anabranch.runtime.real import real_runtime
from anabranch.generated import oxia_client_pb2 as pb
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

pytestmark = pytest.mark.peer
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
    @pytest.fixture
    async def store(self, server: Oxia) -> AsyncIterator[MetadataStore]:
        await wipe(server)
        store = await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, server: Oxia, store: MetadataStore) -> AsyncIterator[MetadataStore]:
        other = await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)
        yield other
        await other.close()

    @pytest.fixture
    def kill(self, store: MetadataStore) -> Kill:
        return lambda victim: store.end_session(victim.session)  # type: ignore[attr-defined]

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaConditionalWrites(OnOxia, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaDeletes(OnOxia, Deletes):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaHostileInput(OnOxia, HostileInput):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaScanAndChildren(OnOxia, ScanAndChildren):
    many = 10_000


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaBatching(OnOxia, Batching):
    async def test_large_batch(self, store: MetadataStore, server: Oxia) -> None:
        operations = [Put(f"/n/{i:04}", b"%d" % i) for i in range(3500)]
        outcomes = await store.batch(operations)
        assert [o.path for o in outcomes if isinstance(o, Stat)] == [o.path for o in operations]
        assert len({o.revision for o in outcomes if isinstance(o, Stat)}) == 3500


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaWatching(OnOxia, Watching):
    pass


@pytest.mark.goal("core.M1", part="oxia")
class TestOxiaSessions(OnOxia, Sessions):
    pass


@pytest.mark.goal("core.M1", part="oxia")
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
    pass
