"""The metadata store's contract, shown on the store for ZooKeeper with a modelled server.

The cases are those of the real one, so the model is like it as far as they look, and the client's
code is tested where no real server can be had.
"""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes
from anabranch.testing.contracts.metadata_copies import Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.zookeeper_differences import (
    ZooKeeperCopies,
    ZooKeeperHostileInput,
)
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer
from anabranch.testing.zookeeper_sessions import end_session

REQUEST_BYTES = 4 << 20
MANY_CHILDREN = 2000


class OnModel:
    members: ClassVar = 1

    @pytest.fixture
    async def url(self) -> AsyncIterator[str]:
        loop, runtime = asyncio.get_running_loop(), real_runtime()
        nature = Nature(members=self.members)
        quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), nature)
        context = contextvars.copy_context()
        servers = [
            ModelServer(quorum, context, request_bytes_max=REQUEST_BYTES)
            for _ in range(nature.members)
        ]
        listeners = [await server.start(RealNetwork(), "127.0.0.1", 0) for server in servers]
        places = ",".join(f"127.0.0.1:{listener.port}" for listener in listeners)
        yield f"zk:{places}/contract?jute.maxbuffer={REQUEST_BYTES}"
        for server, listener in zip(servers, listeners, strict=True):
            await listener.close()
            server.stop()

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


class TestModelledConditionalWrites(OnModel, ConditionalWrites):
    pass


class TestModelledDeletes(OnModel, Deletes):
    pass


class TestModelledHostileInput(OnModel, ZooKeeperHostileInput):
    pass


class TestModelledScanAndChildren(OnModel, ScanAndChildren):
    many = MANY_CHILDREN


class TestModelledBatching(OnModel, Batching):
    pass


class TestModelledWatching(OnModel, Watching):
    members = 3


class TestModelledSessions(OnModel, Sessions):
    members = 3


class TestModelledSequences(OnModel, Sequences):
    pass


class TestModelledGuards(OnModel, Guards):
    members = 3


class TestModelledIndexes(OnModel, Indexes):
    pass


class TestModelledCopies(OnModel, ZooKeeperCopies):
    pass
