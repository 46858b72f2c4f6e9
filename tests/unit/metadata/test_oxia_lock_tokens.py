"""Tokens of locks on a store with several logs, of which two clients have seen different parts."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch.metadata.locks import Locks
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import ModelServer

LOCK = "/locks/mill"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    around = Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))
    server = ModelServer(Cluster(around, Nature(shards=3)), contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    yield f"oxia://{server.address}"
    await listener.close()
    await server.close()


async def open_store(url: str) -> OxiaStore:
    runtime = replace(real_runtime(), channels=ModelChannels(RealNetwork()))
    return await OxiaStore.open(runtime, url)


@pytest.mark.goal("core.M10", part="oxia", broken_by="token_is_a_revision")
async def test_token_rises_for_whoever_has_seen_less(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ash, birch = await open_store(url), await open_store(url)
    place = birch._shards.present.client.place_of(LOCK)
    take = birch._shards.present.feed._take

    def take_some(shard: int, batch: Any) -> None:
        if shard == place:
            take(shard, batch)

    for path in ("/locks", "/n"):
        await ash.put(path, b"")
    await birch.sync()
    monkeypatch.setattr(birch._shards.present.feed, "_take", take_some)
    for number in range(40):
        await ash.put(f"/n/{number}", b"")
    failures: list[BaseException] = []
    tasks = Tasks(lambda _name, failure: failures.append(failure))
    tokens = []
    for store in (ash, birch):
        locks = Locks(store, real_runtime().clock, tasks, prefix="/locks")
        locks.start()
        lock = await locks.acquire(LOCK, b"%d" % store.session)
        tokens.append(lock.token)
        await lock.release()
    assert tokens[1] > tokens[0]
    await tasks.close()
    assert not failures
    for store in (ash, birch):
        await store.close()
