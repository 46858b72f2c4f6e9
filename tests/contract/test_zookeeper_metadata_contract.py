"""The metadata store's contract, shown on a real ZooKeeper.

One server for all; every test has a chroot of its own. Where ZooKeeper cannot do what the suite
asks for, `zookeeper_differences` says what it does instead.
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import ClassVar

import pytest

from anabranch import limits
from anabranch.errors import InputError
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes
from anabranch.testing.contracts.metadata_copies import Indexes, each
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.zookeeper_differences import (
    ZooKeeperCopies,
    ZooKeeperHostileInput,
)
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


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M2", part="zookeeper")
class TestZooKeeperConditionalWrites(OnZooKeeper, ConditionalWrites):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
class TestZooKeeperDeletes(OnZooKeeper, Deletes):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
class TestZooKeeperHostileInput(OnZooKeeper, ZooKeeperHostileInput):
    async def test_value_above_what_the_server_takes_is_refused(self, servers: str) -> None:
        store = await open_store(f"zk:{servers}/contract/{next(_places)}", real_runtime())
        with pytest.raises(InputError, match=r"/large.*jute.maxbuffer"):
            await store.put("/large", b"x" * limits.METADATA_VALUE_BYTES_MAX)
        await store.put("/large", b"x" * (limits.METADATA_VALUE_BYTES_MAX - 16 * limits.KIB))
        await store.close()


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M7", part="zookeeper")
class TestZooKeeperScanAndChildren(OnZooKeeper, ScanAndChildren):
    many: ClassVar[int] = 10_000

    async def test_a_hundred_thousand_children(self, store: MetadataStore) -> None:
        names = [f"{i:07}" for i in range(100_000)]
        paths = ["/many", *(f"/many/{name}" for name in names)]
        records = [Record(path, b"", 0, 1, 1) for path in paths]
        assert await store.restore(each(records)) == len(paths)
        assert await store.children("/many") == names
        scanned = [node.stat.path async for node in store.scan("/many")]
        assert scanned == paths


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M6", part="zookeeper")
class TestZooKeeperBatching(OnZooKeeper, Batching):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M5", part="zookeeper")
class TestZooKeeperWatching(OnZooKeeper, Watching):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M3", part="zookeeper")
class TestZooKeeperSessions(OnZooKeeper, Sessions):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
@pytest.mark.goal("core.M4", part="zookeeper")
class TestZooKeeperSequences(OnZooKeeper, Sequences):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
class TestZooKeeperGuards(OnZooKeeper, Guards):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
class TestZooKeeperIndexes(OnZooKeeper, Indexes):
    pass


@pytest.mark.goal("core.M1", part="zookeeper")
class TestZooKeeperCopies(OnZooKeeper, ZooKeeperCopies):
    pass
