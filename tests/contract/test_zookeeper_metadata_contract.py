"""The metadata store's contract, shown on a real ZooKeeper.

One server for all; every test has a chroot of its own. Where ZooKeeper cannot do what the suite
asks for, the test here says what it does instead.
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import ClassVar

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Copies, Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.servers import zookeeper
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
REQUEST_BYTES = 4 << 20
_places = count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    memory = ("-Xmx512m", f"-Djute.maxbuffer={REQUEST_BYTES}")
    with zookeeper(memory=memory) as ensemble:
        yield ensemble.servers


class OnZooKeeper:
    @pytest.fixture
    def url(self, servers: str) -> str:
        return f"zk:{servers}/contract/{next(_places)}?jute.maxbuffer={REQUEST_BYTES}"

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[MetadataStore]:
        store = await open_store(url, real_runtime())
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, url: str) -> AsyncIterator[MetadataStore]:
        other = await open_store(url, real_runtime(), session_timeout_s=4)
        yield other
        await other.close()

    @pytest.fixture
    def kill(self) -> Kill:
        async def kill(victim: MetadataStore) -> None:
            assert isinstance(victim, ZooKeeperStore)
            await end_session(victim)

        return kill

    @pytest.fixture
    async def another(self) -> AsyncIterator[MetadataStore]:
        another = await open_store("memory:", real_runtime())
        yield another
        await another.close()


class TestZooKeeperConditionalWrites(OnZooKeeper, ConditionalWrites):
    pass


class TestZooKeeperDeletes(OnZooKeeper, Deletes):
    pass


class TestZooKeeperHostileInput(OnZooKeeper, HostileInput):
    pass


class TestZooKeeperScanAndChildren(OnZooKeeper, ScanAndChildren):
    many: ClassVar[int] = 10_000


class TestZooKeeperBatching(OnZooKeeper, Batching):
    pass


class TestZooKeeperWatching(OnZooKeeper, Watching):
    pass


class TestZooKeeperSessions(OnZooKeeper, Sessions):
    pass


class TestZooKeeperSequences(OnZooKeeper, Sequences):
    pass


class TestZooKeeperGuards(OnZooKeeper, Guards):
    pass


class TestZooKeeperIndexes(OnZooKeeper, Indexes):
    pass


class TestZooKeeperCopies(OnZooKeeper, Copies):
    pass
