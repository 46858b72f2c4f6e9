"""The metadata store's contract, shown on the store for Oxia with a modelled server.

The cases are those of the real one, so the model is like it as far as they look, and the client's
code is tested where neither a real server nor gRPC can be had.
"""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import ClassVar

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime import Runtime
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.contracts.metadata import ConditionalWrites, Deletes, HostileInput
from anabranch.testing.contracts.metadata_copies import Indexes
from anabranch.testing.contracts.metadata_sessions import Guards, Kill, Sequences, Sessions
from anabranch.testing.contracts.metadata_trees import Batching, ScanAndChildren, Watching
from anabranch.testing.contracts.oxia_differences import OxiaBatching, OxiaCopies
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import ModelServer

MANY_CHILDREN = 2000
TIMEOUT_S = 3.0


def runtime() -> Runtime:
    return replace(real_runtime(), channels=ModelChannels(RealNetwork()))


class OnModel:
    shards: ClassVar = 1

    @pytest.fixture
    async def url(self) -> AsyncIterator[str]:
        around = Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))
        server = ModelServer(
            Cluster(around, Nature(shards=self.shards)), contextvars.copy_context()
        )
        listener = await server.start(RealNetwork(), "127.0.0.1", 0)
        yield f"oxia://{server.address}"
        await listener.close()
        await server.close()

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[MetadataStore]:
        store = await open_store(url, runtime(), session_timeout_s=TIMEOUT_S)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, url: str) -> AsyncIterator[MetadataStore]:
        other = await open_store(url, runtime(), session_timeout_s=TIMEOUT_S)
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


class TestModelledOxiaConditionalWrites(OnModel, ConditionalWrites):
    pass


class TestModelledOxiaDeletes(OnModel, Deletes):
    pass


class TestModelledOxiaHostileInput(OnModel, HostileInput):
    pass


class TestModelledOxiaScanAndChildren(OnModel, ScanAndChildren):
    many = MANY_CHILDREN
    shards = 3


class TestModelledOxiaBatching(OnModel, OxiaBatching):
    shards = 3


class TestModelledOxiaBatchingOnOneShard(OnModel, Batching):
    pass


class TestModelledOxiaWatching(OnModel, Watching):
    shards = 3


class TestModelledOxiaSessions(OnModel, Sessions):
    shards = 3


class TestModelledOxiaSequences(OnModel, Sequences):
    pass


class TestModelledOxiaGuards(OnModel, Guards):
    shards = 3


class TestModelledOxiaIndexes(OnModel, Indexes):
    shards = 3


class TestModelledOxiaCopies(OnModel, OxiaCopies):
    pass
