"""Nodes of ours below nodes where we may make none: ZooKeeper refuses that before it looks."""

from collections.abc import AsyncIterator

import pytest
from zookeeper_stand_in import URL, StandIn

from anabranch.errors import InputError
from anabranch.metadata.store import ABSENT, IndexKey, Put, Stat
from anabranch.metadata.zookeeper.store import ZooKeeperStore

INDEXES = "/.anabranch-indexes"


@pytest.fixture
async def server() -> StandIn:
    server = StandIn()
    for path in ("/ours", "/ours/there", INDEXES):
        server.write(path, b"")
    server.closed.add("/")
    return server


@pytest.fixture
async def store(server: StandIn) -> AsyncIterator[ZooKeeperStore]:
    store = await ZooKeeperStore.open(server.runtime(), URL, session_timeout_s=10)
    yield store
    await store.close()


@pytest.mark.goal("core.M13", part="zookeeper", broken_by="zk_refused_parents_are_missing")
async def test_missing_parents_are_made_below_ours(server: StandIn, store: ZooKeeperStore) -> None:
    assert (await store.put("/ours/a/b/c", b"1")).version.native == 0
    assert server.nodes["/ours/a/b/c"].value == b"1"
    with pytest.raises(InputError, match=r"/theirs: .*ACL"):
        await store.put("/theirs/a", b"1")
    assert "/theirs" not in server.nodes


async def test_index_keys_need_no_right_to_make_what_is_there(
    server: StandIn, store: ZooKeeperStore
) -> None:
    await store.put("/ours/there", b"1", indexes=(IndexKey("i", "k"),))
    side = f"{INDEXES}/%2Fours%2Fthere"
    assert server.nodes[side].mzxid == server.nodes["/ours/there"].mzxid
    del server.nodes[INDEXES], server.nodes[side]
    other = await ZooKeeperStore.open(server.runtime(), URL, session_timeout_s=10)
    with pytest.raises(InputError, match="ACL"):
        await other.put("/ours/there", b"2", indexes=(IndexKey("i", "k"),))
    await other.close()
    assert server.nodes["/ours/there"].value == b"1"


@pytest.mark.goal("core.M6", part="zookeeper", broken_by="zk_batches_must_make_nodes")
async def test_what_is_there_is_written_in_a_batch_as_alone(
    server: StandIn, store: ZooKeeperStore
) -> None:
    server.closed.add("/ours")
    assert (await store.put("/ours/there", b"1")).version.native == 1
    written, missing, kept = await store.batch(
        [Put("/ours/there", b"2"), Put("/ours/new", b"2"), Put("/ours", b"2", ABSENT)]
    )
    assert isinstance(written, Stat)
    assert server.nodes["/ours/there"].value == b"2"
    assert isinstance(missing, InputError)
    assert isinstance(kept, InputError)
    assert "/ours/new" not in server.nodes


async def test_chroot_of_ours_is_made_below_what_is_not(server: StandIn) -> None:
    url = f"{URL}/ours/root"
    store = await ZooKeeperStore.open(server.runtime(), url, session_timeout_s=10)
    await store.close()
    assert "/ours/root" in server.nodes
    with pytest.raises(InputError, match="ACL"):
        await ZooKeeperStore.open(server.runtime(), f"{URL}/theirs/root", session_timeout_s=10)
