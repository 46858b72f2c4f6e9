"""A tree on ZooKeeper in which large nodes follow many small ones, page by page."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator

import pytest

from anabranch import limits
from anabranch.errors import FrameTooLarge
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore, Record
from anabranch.metadata.zookeeper.connection import ServerConnection
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer

SMALL, LARGE = 1500, 200
LARGE_BYTES = 8 << 10
REPLY_BYTES_MAX = 128 << 10


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    loop, runtime = asyncio.get_running_loop(), real_runtime()
    quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), Nature())
    server = ModelServer(quorum, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    store = await open_store(f"zk:127.0.0.1:{listener.port}", runtime)
    yield store
    await store.close()
    await listener.close()
    server.stop()


def tree() -> list[Record]:
    small = [Record(f"/a{number:05}", b"x", 0, 0, 0) for number in range(SMALL)]
    value = b"x" * LARGE_BYTES
    return small + [Record(f"/b{number:05}", value, 0, 0, 0) for number in range(LARGE)]


@pytest.mark.goal("core.M8", part="zookeeper", broken_by="zk_pages_stay_too_large")
@pytest.mark.goal("core.M7", part="zookeeper", broken_by="zk_pages_stay_too_large")
async def test_pages_that_are_too_large_are_read_again_in_parts(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tree()
    await store.restore(each(iter(made)))
    monkeypatch.setattr(limits, "ZOOKEEPER_REPLY_BYTES_MAX", REPLY_BYTES_MAX)
    aborted: list[object] = []
    abort = ServerConnection.abort

    def counted(self: ServerConnection, reason: object = None) -> None:
        aborted.append(reason)
        abort(self, reason)  # type: ignore[arg-type]

    monkeypatch.setattr(ServerConnection, "abort", counted)
    found = [record async for record in store.export()]
    assert any(isinstance(reason, FrameTooLarge) for reason in aborted), "nothing was tried"
    assert [(record.path, record.value) for record in found[1:]] == [
        (record.path, record.value) for record in made
    ]
    nodes = [node async for node in store.scan("/")]
    assert [node.value for node in nodes[1:]] == [record.value for record in made]


async def test_a_node_that_is_too_large_alone_is_an_error(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a", b"x" * LARGE_BYTES)
    monkeypatch.setattr(limits, "ZOOKEEPER_REPLY_BYTES_MAX", LARGE_BYTES)
    with pytest.raises(FrameTooLarge, match=f"at most {LARGE_BYTES} are read"):
        _ = [record async for record in store.export()]
