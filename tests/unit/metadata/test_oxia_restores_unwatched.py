"""The changes of a large restore into Oxia are kept only for those who read along."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import EventKind, MetadataStore, Record
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import ModelServer

PATHS = ["/a", *(f"/a/{number:03}" for number in range(500))]


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    around = Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))
    server = ModelServer(Cluster(around, Nature(shards=1)), contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    runtime = replace(real_runtime(), channels=ModelChannels(RealNetwork()))
    store = await open_store(f"oxia://{server.address}", runtime)
    yield store
    await store.close()
    await listener.close()
    await server.close()


async def restore(store: MetadataStore) -> None:
    assert await store.restore(each(Record(path, b"v", 0, 0, 0) for path in PATHS)) == len(PATHS)


async def test_who_asks_later_is_told_by_the_server_and_who_watches_then_by_us(
    store: MetadataStore,
) -> None:
    since = await store.revision()
    await restore(store)
    found = [(event.kind, event.path) async for event in store.changed_since(since)]
    assert found == [(EventKind.CREATED, path) for path in PATHS]
    node = await store.get("/a/007")
    assert node is not None
    assert since < node.stat.revision <= await store.revision()
    watch = store.watch("/")
    put = await store.put("/a/007", b"")
    event = await anext(watch)
    assert (event.kind, event.path, event.revision) == (
        EventKind.MODIFIED,
        "/a/007",
        put.revision,
    )


async def test_who_reads_along_is_told_of_every_node(store: MetadataStore) -> None:
    watch = store.watch("/")
    await restore(store)
    assert [(await anext(watch)).path for _ in PATHS] == PATHS


async def test_a_put_beside_it_ends_and_has_its_place(store: MetadataStore) -> None:
    since = await store.revision()
    first, _, second = await asyncio.gather(
        store.put("/b", b""), restore(store), store.put("/c/d", b"")
    )
    assert since < first.revision
    assert since < second.revision
    assert await store.revision() >= max(first.revision, second.revision)
