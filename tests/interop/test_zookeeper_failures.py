"""A ZooKeeper that is cut off, silent, killed or locked: what callers learn, and what they keep."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConfigError,
    InputError,
    OutcomeUnknown,
    SessionExpired,
    Unreachable,
)
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, EventKind, Guard, IndexKey, Put, SessionEvent
from anabranch.metadata.zookeeper.replies import Acl
from anabranch.metadata.zookeeper.requests import Flag
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.network import Connection, ConnectionHandler, Tls
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.contracts.metadata_copies import each
from anabranch.testing.contracts.metadata_sessions import gone
from anabranch.testing.servers import ZooKeeper, free_port, zookeeper
from anabranch.testing.zookeeper_sessions import end_session

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
_places = count(1)


class Deafened:
    """A handler that may stop hearing its peer."""

    def __init__(self, network: "CutNetwork", inner: ConnectionHandler) -> None:
        self._network = network
        self._inner = inner
        self.transport: Connection | None = None

    def connection_made(self, transport: Connection, /) -> None:
        self.transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes, /) -> None:
        if not self._network.deaf:
            self._inner.data_received(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class CutNetwork:
    """The real network, whose connections can be cut, made deaf or forbidden."""

    def __init__(self) -> None:
        self.deaf = False
        self.forbidden = False
        self.connections: list[Deafened] = []

    async def connect(
        self,
        host: str,
        port: int,
        handler_factory: Callable[[], ConnectionHandler],
        *,
        tls: Tls | None = None,
    ) -> ConnectionHandler:
        if self.forbidden:
            raise OSError("cut")

        def deafened() -> ConnectionHandler:
            self.connections.append(Deafened(self, handler_factory()))
            return self.connections[-1]

        return await RealNetwork().connect(host, port, deafened, tls=tls)

    def cut(self) -> None:
        for connection in self.connections:
            assert connection.transport is not None
            connection.transport.abort()
        self.connections.clear()

    async def listen(self, *_: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeper]:
    with zookeeper() as ensemble:
        yield ensemble


@pytest.fixture
def network() -> CutNetwork:
    return CutNetwork()


@pytest.fixture
def url(ensemble: ZooKeeper) -> str:
    return f"{ensemble.url}/failures/{next(_places)}"


@pytest.fixture
async def store(url: str, network: CutNetwork) -> AsyncIterator[ZooKeeperStore]:
    runtime = replace(real_runtime(), network=network)
    store = await ZooKeeperStore.open(runtime, url, session_timeout_s=3)
    yield store
    network.deaf = network.forbidden = False
    await store.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[ZooKeeperStore]:
    other = await ZooKeeperStore.open(real_runtime(), url)
    yield other
    await other.close()


async def heard(events: AsyncIterator[SessionEvent], wanted: int) -> list[SessionEvent]:
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(wanted)]


@pytest.mark.goal("core.M3", part="zookeeper")
async def test_session_goes_on_over_a_lost_connection(
    store: ZooKeeperStore, other: ZooKeeperStore, network: CutNetwork
) -> None:
    mine = await store.put("/e", b"", ephemeral=True)
    session, news = store.session, store.session_events()
    network.cut()
    assert await heard(news, 2) == [SessionEvent.CONNECTION_LOST, SessionEvent.RECONNECTED]
    assert store.session == session
    node = await other.get("/e")
    assert node is not None
    assert node.stat.version == mine.version
    assert (await store.put("/e", b"2", mine.version)).created_by_self


async def test_reads_are_asked_again_and_queued_writes_are_sent(
    store: ZooKeeperStore, network: CutNetwork
) -> None:
    await store.put("/a", b"1")
    reads = asyncio.gather(*(store.get("/a") for _ in range(100)))
    await asyncio.sleep(0)
    network.cut()
    assert {node.value for node in await reads if node is not None} == {b"1"}
    network.forbidden = True
    network.cut()
    await asyncio.sleep(0.05)
    write = asyncio.gather(store.put("/a", b"2"))
    await asyncio.sleep(0.1)
    network.forbidden = False
    await write
    node = await store.get("/a")
    assert node is not None
    assert node.value == b"2"


@pytest.mark.goal("core.M2", part="zookeeper")
async def test_write_whose_answer_is_lost_has_an_unknown_outcome(
    store: ZooKeeperStore, other: ZooKeeperStore, network: CutNetwork
) -> None:
    before = await store.put("/a", b"1")
    carried_out = other.watch("/new")
    network.deaf = True
    write = asyncio.gather(
        store.put("/new", b"", ABSENT),
        store.put("/s/n-", b"", sequential=True),
        return_exceptions=True,
    )
    async with asyncio.timeout(10):
        await anext(carried_out)
    network.cut()
    network.deaf = False
    outcomes = await write
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, OutcomeUnknown]
    await store.put("/a", b"2", before.version)


@pytest.mark.goal("core.M5", part="zookeeper")
async def test_what_happened_between_two_connections_is_a_gap(
    store: ZooKeeperStore, other: ZooKeeperStore, network: CutNetwork
) -> None:
    watch = store.watch("/")
    await store.put("/a", b"1")
    assert (await anext(watch)).kind is EventKind.CREATED
    since = await store.revision()
    network.forbidden = True
    network.cut()
    await asyncio.sleep(0.05)
    await other.put("/a", b"2")
    network.forbidden = False
    async with asyncio.timeout(10):
        gap = await anext(watch)
        assert gap.kind is EventKind.GAP
        assert gap.revision > since
        changes = [event.kind async for event in store.changed_since(since)]
        assert changes == [EventKind.GAP]
        await other.put("/b", b"")
        assert (await anext(watch)).path == "/b", "the watch is in place again"


async def test_quiet_reconnection_is_no_gap(store: ZooKeeperStore, network: CutNetwork) -> None:
    watch = store.watch("/")
    await store.put("/a", b"1")
    news = store.session_events()
    network.cut()
    await heard(news, 2)
    await store.put("/a", b"2")
    kinds = [(await anext(watch)).kind for _ in range(2)]
    assert kinds == [EventKind.CREATED, EventKind.MODIFIED]


@pytest.mark.goal("core.M3", part="zookeeper")
async def test_silent_server_is_noticed_and_the_session_given_up_in_time(
    store: ZooKeeperStore, other: ZooKeeperStore, network: CutNetwork
) -> None:
    await store.put("/e", b"", ephemeral=True)
    news, clock = store.session_events(), real_runtime().clock
    network.deaf = True
    lost = await heard(news, 2)
    assert lost == [SessionEvent.CONNECTION_LOST, SessionEvent.SESSION_LOST]
    assert await other.exists("/e"), "the client gives up before the server does"
    assert store.session_valid_until < clock.monotonic_s()
    network.deaf = False
    assert await heard(news, 1) == [SessionEvent.SESSION_REESTABLISHED]
    await gone(other, "/e")


async def test_lease_is_renewed_while_the_server_answers(store: ZooKeeperStore) -> None:
    clock = real_runtime().clock
    for _ in range(8):
        await asyncio.sleep(store.session_timeout_s / 4)
        assert store.session_valid_until > clock.monotonic_s() + store.session_timeout_s / 3


async def test_ephemeral_write_waits_for_no_other_session(
    store: ZooKeeperStore, network: CutNetwork
) -> None:
    news = store.session_events()
    network.forbidden = True
    network.cut()
    await asyncio.sleep(0.05)
    write = asyncio.gather(store.put("/e", b"", ephemeral=True), return_exceptions=True)
    await asyncio.sleep(0)
    await heard(news, 2)
    network.forbidden = False
    (outcome,) = await write
    assert isinstance(outcome, SessionExpired | Unreachable)
    await heard(news, 1)
    assert not await store.exists("/e")


async def test_guarded_write_of_a_session_that_was_replaced_is_not_carried_out(
    store: ZooKeeperStore, other: ZooKeeperStore
) -> None:
    lock = await store.put("/lock", b"me", ABSENT, ephemeral=True)
    news = store.session_events()
    await end_session(store)
    await other.put("/lock", b"other", ABSENT, ephemeral=True)
    writes = await asyncio.gather(
        *(store.put("/a", b"", guard=Guard("/lock", lock.version)) for _ in range(20)),
        return_exceptions=True,
    )
    assert not any(isinstance(outcome, type(lock)) for outcome in writes), writes
    assert not await other.exists("/a")
    await heard(news, 2)


async def test_nobody_there_is_said_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 0)  # that of the session is longer, then
    port = free_port()
    with pytest.raises(Unreachable, match=str(port)):
        await open_store(f"zk:127.0.0.1:{port}", real_runtime(), session_timeout_s=2)


@pytest.mark.goal("core.M13", part="zookeeper")
async def test_locked_nodes_need_the_password(url: str, ensemble: ZooKeeper) -> None:
    runtime, secret = real_runtime(), b"me:hunter2"
    owner = await ZooKeeperStore.open(runtime, url, identities=[("digest", secret)])
    await owner.client.create("/locked", b"x", acl=[Acl(31, "auth", "")])
    (entry,), _ = await owner.client.get_acl("/locked")
    assert (entry.scheme, entry.permissions) == ("digest", 31)
    stranger = await ZooKeeperStore.open(runtime, url, identities=[("digest", b"me:wrong")])
    for call in (
        stranger.get("/locked"),
        stranger.put("/locked", b""),
        stranger.put("/locked/child", b""),
    ):
        with pytest.raises(InputError, match=r"/locked.*ACL") as refused:
            await call
        assert "hunter2" not in str(refused.value)
    await owner.client.set_acl("/locked", [Acl(1, "world", "anyone"), entry])
    node = await stranger.get("/locked")
    assert node is not None
    assert node.value == b"x"
    await stranger.close()
    await owner.close()


@pytest.mark.goal("core.M13", part="zookeeper")
async def test_who_owns_a_part_of_the_tree_needs_no_rights_above_it(
    store: ZooKeeperStore, url: str
) -> None:
    closed, ours = [Acl(1, "world", "anyone")], [Acl(31, "world", "anyone")]
    await store.client.create("/closed", b"", acl=closed)
    for path in ("/part", "/part/there"):
        await store.client.create(path, b"", acl=ours)
    await store.client.set_acl("/", closed)
    await store.put("/part/a/b/c", b"1")
    await store.client.set_acl("/part", closed)
    (outcome,) = await store.batch([Put("/part/there", b"1")])
    assert not isinstance(outcome, AnabranchError)
    assert await store.children("/part") == ["a", "there"]
    with pytest.raises(InputError, match=r"/closed/a: .*ACL"):
        await store.put("/closed/a", b"1")
    below = await open_store(f"{url}/part/a/new", real_runtime())
    await below.put("/x", b"1")
    await below.close()
    assert await store.exists("/part/a/new/x")


@pytest.mark.goal("core.M13", part="zookeeper")
async def test_access_rights_are_set_exported_and_restored(url: str) -> None:
    runtime, me = real_runtime(), [("digest", b"me:hunter2")]
    closed = await ZooKeeperStore.open(runtime, f"{url}/from?acl=creator", identities=me)
    await closed.put("/a/b", b"x", indexes=(IndexKey("i", "k"),))
    await closed.put("/a/b", b"y")
    await closed.client.create("/open", b"")
    records = [record async for record in closed.export()]
    rights = {record.path: [right.scheme for right in record.access] for record in records}
    assert rights == {"/": ["digest"], "/a": ["digest"], "/a/b": ["digest"], "/open": []}

    target = await ZooKeeperStore.open(runtime, f"{url}/to", identities=me)
    assert await target.restore(each(records)) == 4
    restored = [record async for record in target.export()]
    assert [record.access for record in restored] == [record.access for record in records]
    assert [record.native_version for record in restored] == [0, 0, 1, 0]

    unaware = await open_store("memory:", runtime)
    with pytest.raises(InputError, match=r"^/ has access rights"):
        await unaware.restore(each(records))
    quick = await ZooKeeperStore.open(runtime, f"{url}/from?export.acl=skip", identities=me)
    assert {record.access async for record in quick.export()} == {()}
    for store in (closed, target, unaware, quick):
        await store.close()


async def test_unknown_kind_of_credentials_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="credentials"):
        await ZooKeeperStore.open(real_runtime(), url, identities=[("no-such-scheme", b"x")])


async def test_containers_and_nodes_with_a_time_to_live(store: ZooKeeperStore) -> None:
    client = store.client
    _, container = await client.create("/container", b"", Flag.CONTAINER)
    path, mortal = await client.create("/mortal", b"", Flag.TTL, ttl_ms=600_000)
    assert path == "/mortal"
    assert not container.ephemeral
    assert not mortal.ephemeral
    for path in ("/container", "/mortal"):
        node = await store.get(path)
        assert node is not None
        assert not node.stat.ephemeral
    assert [record.session async for record in store.export("/")] == [None] * 3
