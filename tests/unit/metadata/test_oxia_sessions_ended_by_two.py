"""A session that its own client ends while somebody else does: over, not in doubt."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.errors import NotFound
from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.store import SessionEvent
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import ModelServer

SHARDS = 3


class QuickerCluster(Cluster):
    """On every shard but the first, somebody always ends a session just before."""

    def close_session(self, shard: int, session: int) -> bool:
        if shard != 0:
            super().close_session(shard, session)
        return super().close_session(shard, session)


@pytest.fixture
async def store() -> AsyncIterator[OxiaStore]:
    around = Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))
    cluster = QuickerCluster(around, Nature(shards=SHARDS))
    server = ModelServer(cluster, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    runtime = replace(real_runtime(), channels=ModelChannels(RealNetwork()))
    store = await open_store(f"oxia://{server.address}", runtime, session_timeout_s=3)
    assert isinstance(store, OxiaStore)
    yield store
    await store.close()
    await listener.close()
    await server.close()


async def test_a_session_that_is_over_on_a_shard_already_is_ended(store: OxiaStore) -> None:
    events, ended = store.session_events(), store.session
    await store.end_session(ended)
    async with asyncio.timeout(10):
        heard = [await anext(events), await anext(events)]
    assert heard == [SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED]
    with pytest.raises(NotFound, match=str(ended)):
        await store.end_session(ended)
