"""Writes to ZooKeeper of which nobody knows whether they were carried out, and what follows."""

from collections.abc import AsyncIterator

import pytest
from zookeeper_stand_in import URL, StandIn, Wire

from anabranch.errors import BadVersion, OutcomeUnknown
from anabranch.metadata.store import IndexKey, Node
from anabranch.metadata.zookeeper.replies import Code
from anabranch.metadata.zookeeper.requests import Op
from anabranch.metadata.zookeeper.store import ZooKeeperStore


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
async def store(server: StandIn) -> AsyncIterator[ZooKeeperStore]:
    store = await ZooKeeperStore.open(server.runtime(), URL, session_timeout_s=30)
    yield store
    server.before = lambda wire, code: None
    await store.close()


async def node_at(store: ZooKeeperStore, path: str) -> Node:
    node = await store.get(path)
    assert node is not None
    return node


class SlowLeader:
    """The first removal is proposed, and its connection lost before the majority has it.

    Whoever asks the leader waits for that; whoever asks another server is shown the node. The next
    client in the line makes the node anew as soon as it is gone.
    """

    def __init__(self, server: StandIn, path: str) -> None:
        self.server = server
        self.path = path
        self.under_way = False
        self.removals = 0

    def __call__(self, wire: Wire, code: int) -> object:
        if code == Op.DELETE:
            self.removals += 1
            if self.removals == 1:
                self.under_way = True
                wire.abort()
                return "lost"
        if self.under_way and code in (Op.DELETE, Op.SYNC):
            self.under_way = False
            del self.server.nodes[self.path]
            self.server.write(self.path, b"theirs", owner=7)
        return None


@pytest.mark.goal("core.M10", part="zookeeper", broken_by="zk_doubt_is_forgotten")
@pytest.mark.goal("core.M2", part="zookeeper", broken_by="zk_doubt_is_forgotten")
@pytest.mark.parametrize("ephemeral", [True, False])
async def test_second_removal_leaves_the_node_of_whoever_came_next(
    server: StandIn, store: ZooKeeperStore, ephemeral: bool
) -> None:
    mine = await store.put("/lock", b"mine", ephemeral=ephemeral)
    server.before = SlowLeader(server, "/lock")
    with pytest.raises(OutcomeUnknown):
        await store.delete("/lock", mine.version)
    with pytest.raises(BadVersion):
        await store.delete("/lock", mine.version)
    assert (await node_at(store, "/lock")).value == b"theirs"
    asked = server.requests.count(Op.SYNC)
    other = await store.put("/other", b"1")
    await store.put("/other", b"2", other.version)
    assert server.requests.count(Op.SYNC) - asked <= 1, "the doubt is over: only the session asks"


@pytest.mark.goal("core.M2", part="zookeeper", broken_by="node_without_keys_counts_as_refused")
@pytest.mark.parametrize("why", ["written by another", "refused"])
async def test_node_that_got_no_keys_is_not_told_to_be_missing(
    server: StandIn, store: ZooKeeperStore, why: str
) -> None:
    """A sequential node with index keys takes two writes: the first may be all that was done."""
    await store.put("/ids", b"")

    def before(wire: Wire, code: int) -> None:
        if code == Op.EXISTS and "/ids/n-" in server.nodes:
            if why == "refused":
                server.errors[Op.EXISTS] = Code.NO_AUTH
            else:
                server.nodes["/ids/n-"].version += 1

    server.before = before
    with pytest.raises(OutcomeUnknown, match="/ids/n- was made, its index keys were not"):
        await store.put("/ids/n-", b"1", sequential=True, indexes=(IndexKey("i", "k"),))
    assert server.nodes["/ids/n-"].value == b"1"
