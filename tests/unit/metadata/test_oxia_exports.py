"""Exports of Oxia: one node is looked at without all others, and many are of one moment."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.errors import ConflictError
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia import keys
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


async def test_the_top_of_an_export_is_of_the_moment_of_the_rest(store: MetadataStore) -> None:
    export = store.export("/a/b")
    top = await anext(export)
    assert without_times(top) == PARENT
    issued = await store.put("/a/b/n-", b"", sequential=True)
    assert issued.path == f"/a/b/n-{top.next_sequence:010}"
    rest = [record.path async for record in export]
    assert rest == ["/a/b/c"], "the next number of the copy would be one that was issued"


async def test_a_session_that_shows_its_life_does_not_change_the_moment(
    store: MetadataStore,
) -> None:
    client = store._shards.present.client  # type: ignore[attr-defined]
    before = await store.moment()
    for link in client.links:
        await link.write(pb.PutRequest(key=keys.pulse_key(7)))
    assert await store.moment() == before, "or every copy would read its source twice"
    await client.write(pb.PutRequest(key="of others"))
    assert await store.moment() > before


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


async def test_one_node_is_looked_up_on_its_own_shard(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[ShardLink] = []
    key_stream = ShardLink.key_stream

    def noted(self: ShardLink, *range_: object, **how: bool) -> AsyncIterator[str]:
        listed.append(self)
        return key_stream(self, *range_, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(ShardLink, "key_stream", noted)
    found = await store.record(PARENT.path)
    assert found is not None
    assert without_times(found) == PARENT
    client = store._shards.present.client  # type: ignore[attr-defined]
    assert listed == [client.links[client.place_of(PARENT.path)]]
