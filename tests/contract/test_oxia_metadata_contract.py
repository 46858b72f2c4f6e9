"""The metadata store's contract, shown on a real Oxia with one shard and with three.

Where Oxia cannot do what the shared suite expects, `oxia_differences` says what it does instead.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import ScanAndChildren, Watching
from anabranch.testing.contracts.oxia_differences import OxiaBatching, OxiaCopies
from anabranch.testing.oxia_wiping import wipe
from anabranch.testing.servers.oxia import Oxia, oxia

# One loop for all: grpc.aio serves one loop per process well, and many after another badly.
pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]
TIMEOUT_S = 3.0


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
class TestOxiaBatching(OnOxia, OxiaBatching):
    pass


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
class TestOxiaCopies(OnOxia, OxiaCopies):
    pass
