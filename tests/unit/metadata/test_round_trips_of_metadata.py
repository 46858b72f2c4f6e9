"""How often a server is asked for one operation: what no benchmark of rates can promise."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.oxia.shard import ShardLink
from anabranch.metadata.store import ABSENT, MetadataStore, Record
from anabranch.metadata.zookeeper import request_sizes
from anabranch.metadata.zookeeper.connection import Call, ServerConnection
from anabranch.metadata.zookeeper.requests import Op
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each, made_tree
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.oxia_model import calls, cluster
from anabranch.testing.oxia_model import service as oxia_service
from anabranch.testing.zookeeper_model import quorum
from anabranch.testing.zookeeper_model import server as zookeeper_server

NODES = 4000


def around() -> Surroundings:
    return Surroundings(asyncio.get_running_loop(), real_runtime().clock, random.Random(1))


@pytest.fixture
async def oxia() -> AsyncIterator[MetadataStore]:
    model = cluster.Cluster(around(), cluster.Nature(shards=1))
    server = oxia_service.ModelServer(model, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    runtime = replace(real_runtime(), channels=calls.ModelChannels(RealNetwork()))
    store = await open_store(f"oxia://{server.address}", runtime)
    yield store
    await store.close()
    await listener.close()
    await server.close()


@pytest.fixture
async def zookeeper() -> AsyncIterator[MetadataStore]:
    model = quorum.Quorum(around(), quorum.Nature(members=1))
    server = zookeeper_server.ModelServer(model, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    store = await open_store(f"zk:127.0.0.1:{listener.port}/here", real_runtime())
    yield store
    await store.close()
    await listener.close()
    server.stop()


@pytest.fixture
def oxia_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of Oxia's shards from now on, once per request."""
    asked: list[str] = []
    read, write = ShardLink._read, ShardLink.write

    async def reading(link: ShardLink, part: Any) -> None:
        asked.append("read")
        await read(link, part)

    def writing(link: ShardLink, *operation: Any) -> Any:
        asked.append("write")
        return write(link, *operation)

    monkeypatch.setattr(ShardLink, "_read", reading)
    monkeypatch.setattr(ShardLink, "write", writing)
    return asked


@pytest.fixture
def zookeeper_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of what is sent to ZooKeeper from now on, those that keep the session left out."""
    sent: list[int] = []
    send: Callable[[ServerConnection, Sequence[Call]], None] = ServerConnection.send

    def sending(connection: ServerConnection, asked: Sequence[Call]) -> None:
        codes = [(call.request.code, call.request.bundle or [b""]) for call in asked]
        sent.extend(code for code, bundle in codes for _ in bundle if code != Op.SYNC)
        send(connection, asked)

    monkeypatch.setattr(ServerConnection, "send", sending)
    return sent


async def test_oxia_is_asked_once_for_what_one_request_can_do(
    oxia: MetadataStore, oxia_calls: list[str]
) -> None:
    await oxia.restore(each(iter([Record("/a", b"", 0, 0, 0), Record("/a/b", b"", 0, 0, 0)])))
    oxia_calls.clear()
    node = await oxia.get("/a/b")
    assert oxia_calls == ["read"]
    assert node is not None
    oxia_calls.clear()
    stat = await oxia.put("/a/b", b"1", node.stat.version)
    await oxia.put("/a/b", b"2", stat.version)
    await oxia.put("/a/b", b"3")
    assert oxia_calls == ["write"] * 3, "what was read or written last is not looked at again"
    oxia_calls.clear()
    await oxia.put("/a/c", b"", ABSENT)
    assert oxia_calls == ["read", "write"], "the parent is looked at once"
    oxia_calls.clear()
    await oxia.put("/a/d", b"", ABSENT)
    assert oxia_calls == ["write"]


async def test_oxia_takes_a_tree_by_the_thousand(
    oxia: MetadataStore, oxia_calls: list[str]
) -> None:
    assert await oxia.restore(each(made_tree(NODES))) == NODES
    assert oxia_calls.count("write") <= NODES // 1000 + 3
    assert "read" not in oxia_calls[3:]


async def test_zookeeper_is_asked_once_for_what_one_request_can_do(
    zookeeper: MetadataStore, zookeeper_calls: list[int]
) -> None:
    await zookeeper.put("/a", b"")
    zookeeper_calls.clear()
    await zookeeper.get("/a")
    await zookeeper.put("/a", b"1")
    await zookeeper.put("/b", b"", ABSENT)
    await zookeeper.children("/")
    assert zookeeper_calls == [Op.GET_DATA, Op.SET_DATA, Op.CREATE2, Op.GET_CHILDREN2]


async def test_trees_on_zookeeper_go_by_the_thousand_except_for_rights(
    zookeeper: MetadataStore, zookeeper_calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Requests are shorter where answers are slow, as they are on a busy machine.
    monkeypatch.setattr(request_sizes, "RESTORE_ANSWER_S_USUAL", 60.0)
    assert await zookeeper.restore(each(made_tree(NODES))) == NODES
    # A version above 0 takes a write each: two operations for a node, about.
    assert zookeeper_calls.count(Op.MULTI) <= 3 * NODES // 1000 + 3
    zookeeper_calls.clear()
    assert len([record async for record in zookeeper.export("/", access=False)]) == NODES
    assert zookeeper_calls.count(Op.MULTI_READ) <= 40
    assert Op.GET_ACL not in zookeeper_calls
    zookeeper_calls.clear()
    looked = [record async for record in zookeeper.export("/", values=False)]
    assert len(looked) == NODES
    assert zookeeper_calls.count(Op.GET_ACL) == NODES, "one for each node, and no values besides"
    assert zookeeper_calls.count(Op.MULTI_READ) <= 40
