"""Looking at one node of Oxia, as a copy that goes on and `metadata put` do, reads no others."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.store import IndexKey, MetadataStore, Record
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.present_nodes import PresentNodes
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model.calls import ModelChannels
from anabranch.testing.oxia_model.cluster import Cluster, Nature
from anabranch.testing.oxia_model.service import ModelServer

PARENT = Record("/a/b", b"parent", 3, 0, 0, 7, None, (IndexKey("i", "k"),))
NODES = [Record("/a", b"top", 2, 0, 0), PARENT, Record("/a/b/c", b"leaf", 0, 0, 0)]


@pytest.fixture(params=[1, 3])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[MetadataStore]:
    around = Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))
    cluster = Cluster(around, Nature(shards=request.param))
    server = ModelServer(cluster, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    runtime = replace(real_runtime(), channels=ModelChannels(RealNetwork()))
    store = await open_store(f"oxia://{server.address}", runtime)
    await store.restore(each(iter(NODES)))
    yield store
    await store.close()
    await listener.close()
    await server.close()


def without_times(record: Record) -> Record:
    return record._replace(created_ms=0, modified_ms=0)


async def test_the_top_of_an_export_is_the_node_itself_and_comes_once(
    store: MetadataStore,
) -> None:
    found = [without_times(record) async for record in store.export("/a/b")]
    assert found == NODES[1:]
    assert [record.path async for record in store.export("/a")] == ["/a", "/a/b", "/a/b/c"]
    assert [record.path async for record in store.export("/missing")] == []


async def test_a_copy_that_goes_on_looks_at_single_nodes(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scanned(*_: object) -> None:
        raise AssertionError("everything was read to look at one node")

    monkeypatch.setattr(ShardLink, "records", scanned)
    present = PresentNodes(store, keeping_of("oxia://h:1/n"), lambda *_: None, overwrite=False)
    assert not await present.is_missing(PARENT)
    assert await present.is_missing(PARENT._replace(path="/a/d"))
    with pytest.raises(ConflictError, match="/a/b"):
        await present.is_missing(PARENT._replace(indexes=()))
