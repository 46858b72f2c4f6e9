"""A large restore into ZooKeeper does without the watch, unless somebody reads along."""

import asyncio
import contextvars
import random
from collections.abc import AsyncIterator

import pytest

from anabranch.metadata.factory import open_store
from anabranch.metadata.store import EventKind, MetadataStore, Record, Revision
from anabranch.metadata.zookeeper.limits import WATCHED_RESTORE_NODES_MAX
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import RealNetwork, real_runtime
from anabranch.testing.made_trees import each
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.quorum import Nature, Quorum
from anabranch.testing.zookeeper_model.server import ModelServer

NODES = WATCHED_RESTORE_NODES_MAX + 1000


@pytest.fixture
async def store() -> AsyncIterator[MetadataStore]:
    loop, runtime = asyncio.get_running_loop(), real_runtime()
    quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), Nature(members=1))
    server = ModelServer(quorum, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    store = await open_store(f"zk:127.0.0.1:{listener.port}/here", runtime)
    yield store
    await store.close()
    await listener.close()
    server.stop()


async def restored(store: MetadataStore, name: str) -> list[str]:
    paths = [f"/{name}", *(f"/{name}/{number:05}" for number in range(NODES - 1))]
    assert await store.restore(each(Record(path, b"v", 0, 0, 0) for path in paths)) == NODES
    return paths


async def test_who_asks_later_finds_a_gap_and_who_watches_then_is_told(
    store: MetadataStore,
) -> None:
    since = await store.revision()
    await restored(store, "a")
    assert [event.kind async for event in store.changed_since(since)] == [EventKind.GAP]
    now = await store.revision()
    assert now > since
    watch = store.watch("/")
    put = await store.put("/b", b"")
    event = await anext(watch)
    assert (event.kind, event.path, event.revision) == (EventKind.CREATED, "/b", put.revision)
    assert [found.path async for found in store.changed_since(now)] == ["/b"]


async def test_who_reads_along_is_told_of_every_node(store: MetadataStore) -> None:
    watch = store.watch("/")
    paths = await restored(store, "a")
    assert [(await anext(watch)).path for _ in paths] == paths


async def test_restores_at_the_same_time_are_watched_again_behind_the_last(
    store: MetadataStore,
) -> None:
    since = await store.revision()
    await asyncio.gather(restored(store, "a"), restored(store, "b"))
    assert [event.kind async for event in store.changed_since(since)] == [EventKind.GAP]
    watch = store.watch("/")
    await store.put("/c", b"")
    assert (await anext(watch)).path == "/c"


async def test_a_restore_that_fails_is_followed_by_a_watch(store: MetadataStore) -> None:
    async def broken() -> AsyncIterator[Record]:
        yield Record("/a", b"", 0, 0, 0)
        for number in range(NODES):
            yield Record(f"/a/{number:05}", b"", 0, 0, 0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.restore(broken())
    watch = store.watch("/")
    await store.put("/c", b"")
    assert (await anext(watch)).path == "/c"


async def records_with(pause: asyncio.Event, reached: asyncio.Event) -> AsyncIterator[Record]:
    """Many nodes, and a rest behind a pause."""
    yield Record("/a", b"", 0, 0, 0)
    for number in range(NODES):
        yield Record(f"/a/{number:05}", b"", 0, 0, 0)
    reached.set()
    await pause.wait()
    yield Record("/z", b"", 0, 0, 0)


async def test_who_comes_while_nothing_is_told_finds_a_gap_and_is_told_the_rest(
    store: MetadataStore,
) -> None:
    since = await store.revision()
    pause, reached = asyncio.Event(), asyncio.Event()
    restoring = asyncio.ensure_future(store.restore(records_with(pause, reached)))
    await reached.wait()
    put = await store.put("/x", b"")
    assert await store.revision() >= put.revision
    assert [event.kind async for event in store.changed_since(since)] == [EventKind.GAP]
    watch = store.watch("/")
    assert (await anext(watch)).kind is EventKind.GAP
    await store.put("/y", b"")
    assert (await anext(watch)).path == "/y"
    pause.set()
    await restoring
    while (event := await anext(watch)).path.startswith("/a/"):
        """What was not sent yet."""
    assert event.path == "/z"


async def test_a_restore_that_is_cancelled_is_followed_by_a_watch(store: MetadataStore) -> None:
    reached = asyncio.Event()
    restoring = asyncio.ensure_future(store.restore(records_with(asyncio.Event(), reached)))
    await reached.wait()
    restoring.cancel()
    await asyncio.sleep(0)
    restoring.cancel()  # while it waits to be told again
    with pytest.raises(asyncio.CancelledError):
        await restoring
    watch = store.watch("/")
    await store.put("/b", b"")
    assert (await anext(watch)).kind in (EventKind.GAP, EventKind.CREATED)
    await store.put("/c", b"")
    while (event := await anext(watch)).path != "/c":
        """Of the time before."""
    assert event.kind is EventKind.CREATED


async def test_a_server_lost_for_long_is_watched_again_when_it_is_back() -> None:
    loop, runtime = asyncio.get_running_loop(), real_runtime()
    quorum = Quorum(Surroundings(loop, runtime.clock, random.Random(1)), Nature(members=1))
    server = ModelServer(quorum, contextvars.copy_context())
    listener = await server.start(RealNetwork(), "127.0.0.1", 0)
    port = listener.port
    store = await open_store(f"zk:127.0.0.1:{port}/here", runtime, session_timeout_s=2)
    assert isinstance(store, ZooKeeperStore)
    reached = asyncio.Event()
    restoring = asyncio.ensure_future(store.restore(records_with(asyncio.Event(), reached)))
    await reached.wait()
    await listener.close()
    connection = store.client.link._connection
    assert connection is not None
    connection.abort()
    restoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await restoring
    assert [event.kind async for event in store.changed_since(Revision(0, 0))] == [EventKind.GAP]
    listener = await server.start(RealNetwork(), "127.0.0.1", port)
    watch = store.watch("/")
    assert (await anext(watch)).kind is EventKind.GAP
    await store.put("/c", b"")
    while (event := await anext(watch)).path != "/c":
        """Told twice: by the connection that is new, and by the answer that was waited for."""
    assert event.kind is EventKind.CREATED
    await store.close()
    await listener.close()
    server.stop()
