"""The store on ZooKeeper and kazoo, a client that nobody here wrote, work on one tree."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError
from kazoo.security import make_digest_acl

from anabranch.errors import BadVersion, NotEmpty
from anabranch.metadata.store import ABSENT, EventKind
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.servers import zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
_places = count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.servers


@pytest.fixture
def place(servers: str) -> str:
    return f"{servers}/kazoo/{next(_places)}"


@pytest.fixture
async def store(place: str) -> Any:
    store = await ZooKeeperStore.open(real_runtime(), f"zk:{place}")
    yield store
    await store.close()


@pytest.fixture
def kazoo(store: ZooKeeperStore, place: str) -> Iterator[KazooClient]:
    client = KazooClient(place, timeout=10)
    client.start()
    yield client
    client.stop()
    client.close()


async def test_each_reads_what_the_other_wrote(store: ZooKeeperStore, kazoo: KazooClient) -> None:
    mine = await store.put("/ä/b", b"\x00mine")
    value, stat = await asyncio.to_thread(kazoo.get, "/ä/b")
    assert value == b"\x00mine"
    assert (stat.version, stat.czxid, stat.mzxid) == (
        mine.version.native,
        mine.version.life,
        mine.revision.index,
    )
    assert (stat.ctime, stat.mtime) == (mine.created_ms, mine.modified_ms)
    await asyncio.to_thread(kazoo.set, "/ä/b", b"theirs", 0)
    with pytest.raises(BadVersion):
        await store.put("/ä/b", b"", mine.version)
    node = await store.get("/ä/b")
    assert node is not None
    assert (node.value, node.stat.version.native) == (b"theirs", 1)
    await store.put("/ä/b", b"mine again", node.stat.version)
    with pytest.raises(BadVersionError):
        await asyncio.to_thread(kazoo.set, "/ä/b", b"", 1)


async def test_ephemeral_and_sequential_nodes_are_the_same_to_both(
    store: ZooKeeperStore, kazoo: KazooClient
) -> None:
    first = await store.put("/q/n-", b"", sequential=True, ephemeral=True)
    second = await asyncio.to_thread(
        lambda: kazoo.create("/q/n-", b"", ephemeral=True, sequence=True)
    )
    third = await store.put("/q/n-", b"", sequential=True)
    assert [first.path, second, third.path] == [f"/q/n-{i:010}" for i in range(3)]
    _, stat = await asyncio.to_thread(kazoo.get, first.path)
    assert stat.ephemeralOwner == store.session
    theirs = await store.get(second)
    assert theirs is not None
    assert (theirs.stat.ephemeral, theirs.stat.created_by_self) == (True, False)


async def test_watch_tells_what_the_other_does_also_in_one_transaction(
    store: ZooKeeperStore, kazoo: KazooClient
) -> None:
    watch = store.watch("/t")

    def transact() -> None:
        transaction = kazoo.transaction()
        transaction.create("/t", b"")
        transaction.create("/t/a", b"")
        transaction.set_data("/t/a", b"x")
        transaction.commit()

    await asyncio.to_thread(transact)
    async with asyncio.timeout(10):
        events = [await anext(watch) for _ in range(3)]
    assert [(event.kind, event.path) for event in events] == [
        (EventKind.CREATED, "/t"),
        (EventKind.CREATED, "/t/a"),
        (EventKind.MODIFIED, "/t/a"),
    ]
    assert len({event.revision for event in events}) == 1
    again = store.watch("/t", since=events[0].revision)
    async with asyncio.timeout(10):
        assert [await anext(again) for _ in range(3)] == events


async def test_lock_of_one_keeps_out_the_other(store: ZooKeeperStore, kazoo: KazooClient) -> None:
    await asyncio.to_thread(lambda: kazoo.create("/lock", b"theirs", ephemeral=True))
    with pytest.raises(BadVersion):
        await store.put("/lock", b"mine", ABSENT, ephemeral=True)
    await asyncio.to_thread(lambda: kazoo.create("/parent/child", b"", makepath=True))
    with pytest.raises(NotEmpty):
        await store.delete("/parent")


async def test_export_tells_what_kazoo_sees(place: str, kazoo: KazooClient) -> None:
    def fill() -> None:
        kazoo.create("/closed", b"x", acl=[make_digest_acl("me", "pw", all=True)])
        for i in range(50):
            kazoo.create(f"/n/{i:03}", b"%d" % i, makepath=True)
            for _ in range(i % 3):
                kazoo.set(f"/n/{i:03}", b"%d" % i)

    await asyncio.to_thread(fill)
    owner = await ZooKeeperStore.open(
        real_runtime(), f"zk:{place}", identities=[("digest", b"me:pw")]
    )
    records = {record.path: record async for record in owner.export()}
    assert len(records) == 53
    await asyncio.to_thread(kazoo.add_auth, "digest", "me:pw")
    for path, record in records.items():
        value, stat = await asyncio.to_thread(kazoo.get, path)
        assert (record.value, record.native_version) == (value, stat.version)
        acl, _ = await asyncio.to_thread(kazoo.get_acls, path)
        told = [(right.permissions, right.scheme, right.identity) for right in record.access]
        seen = [(entry.perms, entry.id.scheme, entry.id.id) for entry in acl]
        assert (told or [(31, "world", "anyone")]) == seen
    copy = await ZooKeeperStore.open(
        real_runtime(), f"zk:{place}-copy", identities=[("digest", b"me:pw")]
    )
    assert await copy.restore(each(list(records.values()))) == 53
    again = {record.path: record async for record in copy.export()}
    assert {path: (r.value, r.native_version, r.access) for path, r in again.items()} == {
        path: (r.value, r.native_version, r.access) for path, r in records.items()
    }
    await copy.close()
    await owner.close()
