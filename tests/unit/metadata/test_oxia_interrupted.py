"""An Oxia whose servers leave, move, hang or lose the thread: what callers are told."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from oxia_stand_in import URL, Shard, StandIn

from anabranch import limits
from anabranch.errors import AnabranchError, OutcomeUnknown, Unreachable
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.routing import key_hash
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.store import ABSENT, EventKind, Node, Record, SessionEvent
from anabranch.runtime.channels import CallFailed
from anabranch.testing.contracts.metadata_sessions import gone


@pytest.fixture
def cluster() -> StandIn:
    return StandIn(("a:1", "b:1"))


async def opened(cluster: StandIn) -> OxiaStore:
    return await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=6)


@pytest.fixture
async def store(cluster: StandIn) -> AsyncIterator[OxiaStore]:
    store = await opened(cluster)
    yield store
    cluster.down.clear()
    cluster.unanswered.clear()
    cluster.notify()
    await store.close()


async def node_at(store: OxiaStore, path: str) -> Node:
    node = await store.get(path)
    assert node is not None
    return node


async def test_stand_in_serves_a_store(store: OxiaStore) -> None:
    watch = store.watch()
    made = await store.put("/a/b", b"1", ABSENT, ephemeral=True)
    again = await store.put("/a/b", b"2", made.version)
    node = await node_at(store, "/a/b")
    assert (node.value, node.stat.version) == (b"2", again.version)
    assert node.stat.created_by_self
    assert await store.children("/a") == ["b"]
    await store.delete("/a/b", again.version)
    assert not await store.exists("/a/b")
    told = [await anext(watch) for _ in range(4)]
    assert [event.kind.value for event in told] == ["created", "created", "modified", "deleted"]


def name_on(cluster: StandIn, shard: int) -> str:
    """A path whose key lies on a shard."""
    there = cluster.shards[shard]
    return next(
        path
        for path in (f"/n{number}" for number in range(100))
        if there.first <= key_hash(path) <= there.last
    )


def oxia_tasks() -> list[str]:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("oxia")]


# --- what became of a write -----------------------------------------------------------------------


@pytest.mark.goal("core.M2", part="oxia", broken_by="oxia_waits_for_ever")
async def test_write_that_nobody_answers_is_unknown_in_time(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a", b"1")
    monkeypatch.setattr(limits, "OXIA_CALL_S_MAX", 0.3)
    cluster.unanswered.add("WriteStream")
    async with asyncio.timeout(20):
        with pytest.raises(OutcomeUnknown):
            await store.put("/a", b"2")
    cluster.unanswered.clear()
    cluster.notify()
    assert (await store.put("/a", b"3")).version.native > 0


async def test_delete_that_was_answered_is_done_whatever_follows(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a/b", b"")
    await store.delete("/a/b")
    write = Shard.write

    def then_silent(shard: Shard, request: pb.WriteRequest) -> pb.WriteResponse:
        cluster.unanswered |= {"List", "GetNotifications"}
        return write(shard, request)

    monkeypatch.setattr(Shard, "write", then_silent)
    monkeypatch.setattr(limits, "OXIA_CALL_S_MAX", 0.3)
    async with asyncio.timeout(20):
        await store.delete("/a")
    monkeypatch.undo()
    assert not [shard for shard in cluster.shards.values() if "/a" in shard.records]
    # Before the notification can come:
    writing = asyncio.ensure_future(store.put("/a/c", b""))
    await asyncio.sleep(0.1)
    cluster.unanswered.clear()
    cluster.notify()
    await writing
    assert await store.exists("/a"), "the parent is made again"


# --- restoring ------------------------------------------------------------------------------------


async def each(*records: Record) -> AsyncIterator[Record]:
    for record in records:
        yield record


@pytest.mark.goal("core.M8", part="oxia", broken_by="restore_lowers_counts")
async def test_restored_count_is_never_lower_than_one_that_is_there(store: OxiaStore) -> None:
    made = [(await store.put("/q/n-", b"", sequential=True)).path for _ in range(6)]
    for path in (*made, "/q"):
        await store.delete(path)
    assert await store.children("/") == []
    await store.restore(each(Record("/q", b"x", 0, 0, 0, 3), Record("/r", b"x", 0, 0, 0, 9)))
    assert (await store.put("/q/n-", b"", sequential=True)).path == "/q/n-0000000006"
    assert (await store.put("/r/n-", b"", sequential=True)).path == "/r/n-0000000009"


@pytest.mark.goal("core.M8", part="oxia", broken_by="restore_pushes_nothing")
async def test_no_number_is_set_before_the_shard_has_passed_it(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Shard.write
    late: list[str] = []

    def looking(shard: Shard, request: pb.WriteRequest) -> pb.WriteResponse:
        numbered = [put for put in request.puts if put.HasField("override_version_id")]
        late.extend(put.key for put in numbered if put.override_version_id >= shard.version)
        return write(shard, request)

    monkeypatch.setattr(Shard, "write", looking)
    records = [Record(f"/p{n}/c", b"x", 30 * n, 0, 0) for n in range(12)]
    assert await store.restore(each(*records)) == 12
    assert late == [], "a copy that ends here would leave numbers to be given again"
    assert (await node_at(store, "/p11/c")).stat.version.life == 330


# --- leaders --------------------------------------------------------------------------------------


@pytest.mark.goal("core.M5", part="oxia", broken_by="moved_shard_is_asked_for_at_its_old_place")
async def test_everything_goes_on_with_another_leader(cluster: StandIn, store: OxiaStore) -> None:
    path = name_on(cluster, 1)
    first = await store.put(path, b"1")
    watch = store.watch(path)
    cluster.down.add("b:1")
    reading = asyncio.ensure_future(store.get(path))
    writing = asyncio.ensure_future(store.put(path, b"2", ABSENT))
    await asyncio.sleep(0.1)
    assert not reading.done(), "nobody answers"
    cluster.move(1, "c:1")
    async with asyncio.timeout(8):
        assert await reading is not None
        with pytest.raises(OutcomeUnknown):
            await writing
        await store.put(path, b"3", first.version)
        await store.delete(path)
        told = [(await anext(watch)).kind for _ in range(2)]
    assert told == [EventKind.MODIFIED, EventKind.DELETED], "and nothing was missed"


@pytest.mark.goal("core.M5", part="oxia", broken_by="split_shard_goes_unnoticed")
async def test_everything_goes_on_when_a_shard_is_split(cluster: StandIn, store: OxiaStore) -> None:
    paths = [f"/n{number}" for number in range(20)]
    made = {path: await store.put(path, b"1") for path in paths}
    await store.put("/mine", b"", ephemeral=True)
    session, news, watch = store.session, store.session_events(), store.watch()
    before = await store.revision()
    cluster.unanswered.add("Read")
    reading = asyncio.ensure_future(store.get("/n3"))
    await asyncio.sleep(0.05)
    cluster.unanswered.clear()
    cluster.split(1)
    async with asyncio.timeout(30):
        assert [await anext(news), await anext(news)] == [
            SessionEvent.SESSION_LOST,
            SessionEvent.SESSION_REESTABLISHED,
        ]
        node = await reading
        assert node is not None, "asked again"
        gap = await anext(watch)
        assert gap.kind is EventKind.GAP
        assert gap.revision > before, "later, though the offsets are others"
        for path in paths:
            stat = await store.put(path, b"2", made[path].version)
            assert stat.version.native == 1
            assert stat.revision > gap.revision
        told: list[str] = []
        while len(told) < len(paths):
            path = (await anext(watch)).path
            told += [path] * (path != "/mine")
        assert told == paths
    await gone(store, "/mine")  # its session is over on the new shards, too
    assert store.session != session
    assert (await store.put("/mine", b"", ABSENT, ephemeral=True)).created_by_self
    assert [event.kind async for event in store.changed_since(before)] == [EventKind.GAP]
    assert len(oxia_tasks()) == 3 * 4 + 2, "those of the shards that are gone have ended"


async def test_write_under_way_when_its_shard_is_split_has_an_unknown_outcome(
    cluster: StandIn, store: OxiaStore
) -> None:
    path = name_on(cluster, 1)
    await store.put(path, b"1")
    cluster.unanswered.add("WriteStream")
    writing = asyncio.ensure_future(store.put(path, b"2"))
    await asyncio.sleep(0.05)
    cluster.split(1)
    async with asyncio.timeout(10):
        with pytest.raises(OutcomeUnknown, match="has other shards now"):
            await writing
        cluster.unanswered.clear()
        cluster.notify()
        assert (await store.put(path, b"3")).version.native == 1


@pytest.mark.goal("core.M4", part="oxia", broken_by="written_is_written_again")
async def test_write_answered_when_its_shard_is_split_is_not_repeated(
    cluster: StandIn, store: OxiaStore
) -> None:
    await store.put("/q/n-", b"", sequential=True)
    cluster.unanswered.add("GetNotifications")
    writing = asyncio.ensure_future(store.put("/q/n-", b"", sequential=True))
    await asyncio.sleep(0.1)
    for shard in list(cluster.shards):
        cluster.split(shard)
    cluster.unanswered.clear()
    cluster.notify()
    async with asyncio.timeout(10):
        with pytest.raises(OutcomeUnknown, match="was written"):
            await writing
        assert await store.children("/q") == ["n-0000000000", "n-0000000001"]


# --- opening and closing --------------------------------------------------------------------------


async def test_shard_that_tells_nothing_is_named(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 0.3)
    cluster.refused["GetNotifications"] = CallFailed("FAILED_PRECONDITION", "not enabled")
    async with asyncio.timeout(20):
        with pytest.raises(Unreachable, match=r"shard 0 tells nothing.*not enabled"):
            await opened(cluster)
    assert oxia_tasks() == []


async def test_who_does_not_answer_is_told_with_the_reason(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 0.3)
    cluster.refused["GetShardAssignments"] = CallFailed("UNAVAILABLE", "handshake failed")
    with pytest.raises(Unreachable, match="a:1: UNAVAILABLE: handshake failed"):
        await opened(cluster)


@pytest.mark.parametrize("method", ["GetShardAssignments", "GetNotifications", "CreateSession"])
async def test_open_that_is_given_up_leaves_nothing(cluster: StandIn, method: str) -> None:
    cluster.unanswered.add(method)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await opened(cluster)
    assert oxia_tasks() == []
    assert all(channel.closed for channel in cluster.channels)


@pytest.mark.parametrize("method", ["CloseSession", "WriteStream"])
async def test_close_that_is_given_up_leaves_nothing(cluster: StandIn, method: str) -> None:
    store = await opened(cluster)
    cluster.unanswered.add(method)
    writing = asyncio.ensure_future(store.put("/a", b""))
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.close()
    await asyncio.wait([writing], timeout=5)
    assert writing.done()
    assert writing.exception() is None or isinstance(writing.exception(), OutcomeUnknown)
    assert oxia_tasks() == []
    assert all(channel.closed for channel in cluster.channels)


async def test_nobody_waits_for_a_closed_store(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 0.2)
    store = await opened(cluster)
    await store.put("/a", b"")
    cluster.unanswered |= {"List", "Read"}
    calls = [store.delete("/a"), store.sync(), store.get("/a"), store.revision()]
    waiting = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    await store.close()
    done, late = await asyncio.wait(waiting, timeout=5)
    assert not late
    assert all(isinstance(call.exception(), AnabranchError) for call in done)
