"""Access rights of a whole tree on ZooKeeper, read by several connections side by side."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.sources import StoreSource
from anabranch.metadata.zookeeper import readers
from anabranch.metadata.zookeeper.limits import READERS_MAX
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.network import Connection
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ClientConnection, ModelServer

NODES = 3000
OPEN = Acl(31, "world", "anyone")
CLOSED = (AccessRight(31, "world", "anyone"), AccessRight(1, "ip", "::1"))


@dataclass
class Ensemble:
    quorum: Quorum
    servers: list[ModelServer]
    urls: list[str]

    @property
    def connections(self) -> int:
        return sum(len(server.connections) for server in self.servers)


@pytest.fixture
async def ensemble() -> AsyncIterator[Ensemble]:
    loop, runtime = asyncio.get_running_loop(), real_runtime()
    quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), Nature(members=3))
    servers = [ModelServer(quorum, contextvars.copy_context()) for _ in range(3)]
    listeners = [await server.start(RealNetwork(), "127.0.0.1", 0) for server in servers]
    urls = [f"zk:127.0.0.1:{listener.port}/tree" for listener in listeners]
    yield Ensemble(quorum, servers, urls)
    for server, listener in zip(servers, listeners, strict=True):
        await listener.close()
        server.stop()


@pytest.fixture
async def store(ensemble: Ensemble) -> AsyncIterator[ZooKeeperStore]:
    follower = next(s for s in ensemble.servers if s is not ensemble.quorum.leader)
    url = ensemble.urls[ensemble.servers.index(follower)]
    store = await ZooKeeperStore.open(real_runtime(), url)
    yield store
    await store.close()


def tree() -> list[Record]:
    """Every seventh node has rights, and every parent many children."""
    return [
        Record(f"/{number // 100:02}{end}", b"x", 0, 0, 0, access=() if number % 7 else CLOSED)
        for number in range(NODES)
        for end in (["", f"/{number % 100:02}"] if number % 100 == 0 else [f"/{number % 100:02}"])
    ]


def source_of(store: ZooKeeperStore, options: str = "") -> StoreSource:
    url = f"zk:127.0.0.1:2181/tree{options}"
    return StoreSource(store, url, "/", keeping_of(url))


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="zk_readers_begin_too_late")
async def test_they_find_what_one_connection_finds_and_are_no_change_of_the_tree(
    ensemble: Ensemble, store: ZooKeeperStore
) -> None:
    await store.restore(each(tree()))
    wanted = [record async for record in store.export()]
    assert sum(bool(record.access) for record in wanted) > NODES // 7
    source = source_of(store)
    moment = await source.moment()
    assert (store.client.readers.count, ensemble.connections) == (READERS_MAX, 1 + READERS_MAX)
    asked = [len(connection.watches) for connection in ensemble.servers[0].connections]
    assert sum(asked) <= 1, "nobody but the store is told of changes"
    assert [record async for record in source.records()] == wanted
    outlines = [record async for record in source.outlines()]
    assert [record.access for record in outlines] == [record.access for record in wanted]
    assert [record.path for record in outlines] == [record.path for record in wanted]
    assert await source.moment() == moment, "the source would be read once more"
    await source.forget()
    assert (store.client.readers.count, ensemble.connections) == (0, 1)
    assert [record async for record in source.records()] == wanted


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="zk_readers_show_the_past")
async def test_they_show_what_was_there_before_they_are_asked(
    ensemble: Ensemble, store: ZooKeeperStore
) -> None:
    """Their server may be behind that of whoever changed something, or of the store."""
    await store.put("/a", b"")
    await store.open_readers()
    behind = next(server for server in ensemble.servers if server.connections)
    leader = ensemble.quorum.leader
    assert leader is not None
    other = await ZooKeeperStore.open(real_runtime(), ensemble.urls[ensemble.servers.index(leader)])
    behind.cut_off()
    await other.client.set_acl("/a", [OPEN, Acl(1, "ip", "::1")])
    asyncio.get_running_loop().call_later(0.2, behind.rejoin)
    found = {record.path: record.access async for record in store.export(values=False)}
    assert found["/a"] == CLOSED
    await other.close()


async def test_connections_that_break_are_made_again(
    ensemble: Ensemble, store: ZooKeeperStore
) -> None:
    await store.restore(each(tree()))
    wanted = [record.access async for record in store.export()]
    source = source_of(store)
    moment = await source.moment()
    found = []
    async for record in source.outlines():
        if len(found) in (0, NODES // 2):
            for server in ensemble.servers:
                for connection in list(server.connections):
                    connection.hang_up()
        found.append(record.access)
    assert found == wanted
    assert await source.moment() == moment, "a session that goes on is no new one"


def take_only(connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers hang up on more."""
    made = ClientConnection.connection_made

    def limited(self: ClientConnection, transport: Connection, /) -> None:
        made(self, transport)
        if len(self.server.connections) > connections:
            self.hang_up()

    monkeypatch.setattr(ClientConnection, "connection_made", limited)


@pytest.mark.parametrize("taken", [0, 5])
async def test_servers_may_take_fewer_connections(
    ensemble: Ensemble, store: ZooKeeperStore, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.restore(each(tree()))
    wanted = [record async for record in store.export()]
    take_only(1 + taken, monkeypatch)
    monkeypatch.setattr(readers, "READERS_OPEN_S_MAX", 0.3)
    source = source_of(store)
    await source.moment()
    assert (store.client.readers.count, ensemble.connections) == (taken, 1 + taken)
    assert [record async for record in source.records()] == wanted


async def test_who_leaves_rights_out_needs_none(ensemble: Ensemble, store: ZooKeeperStore) -> None:
    await source_of(store, "?export.acl=skip").moment()
    assert (store.client.readers.count, ensemble.connections) == (0, 1)


async def test_who_gives_up_waiting_for_them_leaves_none_behind(
    ensemble: Ensemble, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_only(6, monkeypatch)
    opening = asyncio.ensure_future(store.open_readers())
    await asyncio.sleep(0.2)
    assert ensemble.connections == 6
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (store.client.readers.count, ensemble.connections) == (0, 1)
