"""A ZooKeeper that breaks off at the worst moment: what callers are told, and what is not done."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from zookeeper_stand_in import URL, StandIn, Wire

from anabranch import limits
from anabranch.errors import (
    BadVersion,
    InvalidPath,
    NotFound,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.store import ANY, EventKind, Guard, Node, SessionEvent
from anabranch.metadata.zookeeper.naming import revision_of
from anabranch.metadata.zookeeper.replies import Code
from anabranch.metadata.zookeeper.requests import Op, WatchKind
from anabranch.metadata.zookeeper.store import ZooKeeperStore

IDENTITIES = [("digest", b"ann:secret")]


@pytest.fixture
def server() -> StandIn:
    return StandIn()


async def opened(server: StandIn) -> ZooKeeperStore:
    return await ZooKeeperStore.open(
        server.runtime(), URL, session_timeout_s=2, identities=IDENTITIES
    )


@pytest.fixture
async def store(server: StandIn) -> AsyncIterator[ZooKeeperStore]:
    store = await opened(server)
    yield store
    server.before = lambda wire, code: None
    server.accepts = True
    await store.close()


async def node_at(store: ZooKeeperStore, path: str) -> Node:
    node = await store.get(path)
    assert node is not None
    return node


def once(wanted: int, act: Callable[[Wire], object]) -> Callable[[Wire, int], object]:
    """Do something at the first request of a kind."""
    left = [wanted]

    def before(wire: Wire, code: int) -> object:
        if code not in left:
            return None
        left.clear()
        return act(wire)

    return before


async def test_stand_in_serves_a_store(store: ZooKeeperStore) -> None:
    made = await store.put("/a/b", b"1")
    again = await store.put("/a/b", b"2", made.version)
    node = await node_at(store, "/a/b")
    assert (node.value, node.stat.version) == (b"2", again.version)
    await store.delete(
        "/a/b", again.version, guard=Guard("/", (await node_at(store, "/")).stat.version)
    )
    assert not await store.exists("/a/b")


# --- whose node is written ------------------------------------------------------------------------


def replaced_by_another(server: StandIn, path: str) -> Callable[[Wire], None]:
    """The session ends, and somebody else makes the node anew, behind the next answer."""

    def act(wire: Wire) -> None:
        wire.cut_behind_answer = True
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, server.expire, wire.session)
        loop.call_later(0.01, server.write, path, b"theirs", 7)

    return act


@pytest.mark.goal("core.M3", part="zookeeper", broken_by="own_node_is_anybodys")
async def test_delete_of_a_lost_session_leaves_the_next_owners_node(
    server: StandIn, store: ZooKeeperStore
) -> None:
    mine = await store.put("/lock", b"mine", ephemeral=True)
    server.before = once(Op.EXISTS, replaced_by_another(server, "/lock"))
    with pytest.raises(BadVersion, match="goes with the session"):
        await store.delete("/lock", mine.version)
    assert server.nodes["/lock"].value == b"theirs"


@pytest.mark.goal("core.M3", part="zookeeper", broken_by="own_node_is_anybodys")
async def test_put_of_a_lost_session_leaves_the_next_owners_node(
    server: StandIn, store: ZooKeeperStore
) -> None:
    mine = await store.put("/lock", b"mine", ephemeral=True)
    server.before = once(Op.EXISTS, replaced_by_another(server, "/lock"))
    with pytest.raises(SessionExpired):
        await store.put("/lock", b"mine still", mine.version)
    assert server.nodes["/lock"].value == b"theirs"


@pytest.mark.goal("core.M2", part="zookeeper", broken_by="guard_is_not_looked_at_again")
async def test_write_under_a_guard_made_anew_meanwhile_is_not_acknowledged(
    server: StandIn, store: ZooKeeperStore
) -> None:
    server.write("/fence", b"1", owner=7)
    guard = Guard("/fence", (await node_at(store, "/fence")).stat.version)
    assert (await store.put("/doc", b"1", guard=guard)).version.native == 0
    server.before = once(Op.MULTI, lambda wire: server.write("/fence", b"2", owner=8))
    with pytest.raises(OutcomeUnknown, match="/fence"):
        await store.put("/doc", b"2", guard=guard)
    server.before = once(Op.MULTI, lambda wire: server.write("/fence", b"3", owner=9))
    guard = Guard("/fence", (await node_at(store, "/fence")).stat.version)
    with pytest.raises(OutcomeUnknown, match="/fence"):
        await store.delete("/doc", guard=guard)


async def test_names_of_the_store_and_of_zookeeper_are_refused(
    server: StandIn, store: ZooKeeperStore
) -> None:
    asked = len(server.requests)
    for path in ("/a/.anabranch-x", "/.anabranch-indexes/a/b", "/zookeeper", "/zookeeper/quota"):
        with pytest.raises(InvalidPath, match="reserved"):
            await store.put(path, b"")
        with pytest.raises(InvalidPath, match="reserved"):
            await store.delete(path, ANY)
    assert len(server.requests) == asked, "nothing was sent"


# --- the chroot -----------------------------------------------------------------------------------


async def test_chroot_is_made_only_by_those_who_may(server: StandIn) -> None:
    url = f"{URL}/some/where"
    with pytest.raises(NotFound, match=r"no node /some/where in ZooKeeper at here:2181"):
        await ZooKeeperStore.open(server.runtime(), url, may_make=False)
    assert list(server.nodes) == ["/"]
    store = await ZooKeeperStore.open(server.runtime(), f"{url}?acl=creator")
    assert list(server.nodes) == ["/", "/some", "/some/where"]
    assert server.nodes["/some/where"].acl == ((31, "auth", ""),), "who may delete what is in it"
    assert server.nodes["/some"].acl == ((31, "world", "anyone"),), "others may be there, too"
    await store.close()
    asked = server.requests.count(Op.CREATE2)
    again = await ZooKeeperStore.open(server.runtime(), url, may_make=False)
    await again.close()
    assert server.requests.count(Op.CREATE2) == asked, "what is there needs no right to make it"


# --- connections and sessions ---------------------------------------------------------------------


async def test_new_session_is_told_even_if_its_first_connection_broke(
    server: StandIn, store: ZooKeeperStore
) -> None:
    first, news = store.session, store.session_events()
    server.before = once(Op.AUTH, Wire.abort)
    server.expire(first)
    server.connections[-1].abort()
    async with asyncio.timeout(10):
        told = [await anext(news) for _ in range(3)]
    assert told == [
        SessionEvent.CONNECTION_LOST,
        SessionEvent.SESSION_LOST,
        SessionEvent.SESSION_REESTABLISHED,
    ]
    assert store.session != first


async def test_write_that_meets_a_lost_connection_is_sent_on_the_next(
    server: StandIn, store: ZooKeeperStore
) -> None:
    server.connections[-1].abort()
    stat = await store.put("/late", b"1")
    assert (stat.version.native, server.nodes["/late"].value) == (0, b"1")


async def test_changes_right_behind_the_watch_are_known(server: StandIn) -> None:
    def act(wire: Wire) -> None:
        began = server.zxid

        def change() -> None:
            server.write("/early", b"")
            assert server.zxid == began + 1
            wire.tell_change(WatchKind.CREATED, "/early")

        asyncio.get_running_loop().call_soon(change)

    server.before = once(Op.ADD_WATCH, act)
    before = server.zxid
    store = await opened(server)
    events = [event async for event in store.changed_since(revision_of(before))]
    assert [(event.kind, event.path) for event in events] == [(EventKind.CREATED, "/early")]
    await store.close()


async def test_server_that_refuses_watches_is_left_for_another(
    server: StandIn, store: ZooKeeperStore
) -> None:
    watch = store.watch()
    server.errors[Op.SET_WATCHES2] = Code.UNIMPLEMENTED
    server.connections[-1].abort()
    async with asyncio.timeout(10):
        assert (await anext(watch)).kind is EventKind.GAP
        await store.sync()
    assert len(server.connections) == 3, "the first, the one that refused, and the next"
    assert server.requests.count(Op.SET_WATCHES2) == 2


async def test_close_that_is_given_up_lets_go_of_everything(server: StandIn) -> None:
    store = await opened(server)
    server.before = lambda wire, code: "lost"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.close()
    assert server.connections[-1].cut
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if "ZooKeeper" in name], "nobody keeps the session alive"


async def test_close_while_connecting_lets_go_of_the_connection(server: StandIn) -> None:
    store = await opened(server)
    asked = asyncio.Event()
    server.before = once(Op.AUTH, lambda wire: asked.set() or "lost")  # type: ignore[func-returns-value]
    server.connections[-1].abort()
    async with asyncio.timeout(10):
        await asked.wait()
        await store.close()
    assert server.connections[-1].cut, "the one that was to be the next"


async def test_who_is_no_zookeeper_is_told_with_the_reason(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 0)  # that of the session is longer, then
    server.greeting = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(Unreachable, match="announces a reply of"):
        await opened(server)
