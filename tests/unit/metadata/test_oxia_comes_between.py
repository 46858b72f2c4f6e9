"""What somebody else, a break or an unreadable answer does in the middle of our work on Oxia."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from oxia_stand_in import URL, Shard, StandIn, StandInChannel

from anabranch import limits
from anabranch.generated import oxia_client_pb2 as pb
from anabranch.metadata.oxia.keys import notifications_at, sequence_key
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.store import EventKind, Record, SessionEvent
from anabranch.runtime.channels import CallFailed
from anabranch.testing.made_trees import each


@pytest.fixture
def cluster() -> StandIn:
    return StandIn()


@pytest.fixture
async def store(cluster: StandIn) -> AsyncIterator[OxiaStore]:
    store = await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=6)
    yield store
    cluster.unanswered.clear()
    cluster.refused.clear()
    cluster.notify()
    await store.close()


# --- restoring ------------------------------------------------------------------------------------


def draws(shard: Shard, times: int) -> None:
    """Another client draws numbers below /q."""
    put = pb.PutRequest(key=sequence_key("/q"))
    shard.write(pb.WriteRequest(shard=shard.number, puts=[put] * times))


async def test_count_drawn_upon_after_it_was_read_is_not_lowered(
    store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/other", b"")
    get = Shard.get
    left = [5, 5]

    def drawn_upon(shard: Shard, key: str) -> pb.GetResponse:
        found = get(shard, key)
        if key == sequence_key("/q") and left:
            draws(shard, left.pop())
        return found

    monkeypatch.setattr(Shard, "get", drawn_upon)
    await store.restore(each(iter([Record("/q", b"x", 0, 0, 0, 7)])))
    assert not left
    assert (await store.put("/q/n-", b"", sequential=True)).path == "/q/n-0000000010"


async def test_count_drawn_upon_in_an_empty_store_is_raised_all_the_same(
    cluster: StandIn, store: OxiaStore
) -> None:
    async def records() -> AsyncIterator[Record]:
        draws(cluster.shards[0], 5)
        yield Record("/q", b"x", 0, 0, 0, 3)
        draws_of_r = [pb.PutRequest(key=sequence_key("/r"))] * 2
        cluster.shards[0].write(pb.WriteRequest(shard=0, puts=draws_of_r))
        yield Record("/r", b"x", 0, 0, 0, 9)

    await store.restore(records())
    assert (await store.put("/q/n-", b"", sequential=True)).path == "/q/n-0000000005"
    assert (await store.put("/r/n-", b"", sequential=True)).path == "/r/n-0000000009"


# --- following ------------------------------------------------------------------------------------


def forgotten(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shard keep nothing of what it has told so far."""
    offsets = [batch.offset for batch in shard.batches]
    names = [notifications_at(offset)[0] for offset in offsets]
    for batch in shard.batches:
        batch.ClearField("notifications")
    listed = Shard.listed

    def kept(shard: Shard, request: pb.RangeRequest) -> list[str]:
        return [name for name in listed(shard, request) if name not in names]

    monkeypatch.setattr(Shard, "listed", kept)


async def test_changes_forgotten_while_nobody_could_look_for_them_are_a_gap(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OXIA_CALL_S_MAX", 0.1)
    monkeypatch.setattr(limits, "METADATA_RECONNECT_DELAY_S_MIN", 0.02)
    await store.put("/a", b"")
    watch = store.watch("/")
    away = CallFailed("UNAVAILABLE", "away")
    cluster.refused = {"GetNotifications": away, "List": away}
    cluster.notify()
    shard = cluster.shards[0]
    shard.write(pb.WriteRequest(shard=0, puts=[pb.PutRequest(key="/unseen")]))
    forgotten(shard, monkeypatch)
    await asyncio.sleep(0.5)
    del cluster.refused["GetNotifications"]
    await asyncio.sleep(0.5)
    del cluster.refused["List"]
    async with asyncio.timeout(5):
        assert (await anext(watch)).kind is EventKind.GAP
        await store.put("/b", b"")
        assert (await anext(watch)).path == "/b"


async def test_unreadable_answer_after_a_break_does_not_end_the_feed(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a", b"")
    watch = store.watch("/")
    replies = StandInChannel._replies
    sent = asyncio.Event()

    async def unreadable(
        channel: StandInChannel, name: str, message: bytes
    ) -> AsyncIterator[bytes]:
        if name == "List" and not sent.is_set():
            sent.set()
            yield b"\xff"
            return
        async for reply in replies(channel, name, message):
            yield reply

    monkeypatch.setattr(StandInChannel, "_replies", unreadable)
    cluster.refused["GetNotifications"] = CallFailed("UNAVAILABLE", "a moment")
    cluster.notify()
    await asyncio.sleep(0)
    cluster.shards[0].write(pb.WriteRequest(shard=0, puts=[pb.PutRequest(key="/b")]))
    async with asyncio.timeout(5):
        await sent.wait()
        cluster.refused.clear()
        assert (await anext(watch)).path == "/b"


# --- sessions -------------------------------------------------------------------------------------


async def test_unreadable_answer_does_not_end_the_search_for_a_session(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = store.session_events()
    ask = StandInChannel.ask
    left = [b"\xff"]

    async def unreadable(
        channel: StandInChannel, method: str, message: bytes, *, timeout_s: float
    ) -> bytes:
        if method.endswith("/CreateSession") and left:
            return left.pop()
        return await ask(channel, method, message, timeout_s=timeout_s)

    monkeypatch.setattr(StandInChannel, "ask", unreadable)
    cluster.shards[0].sessions.clear()
    async with asyncio.timeout(10):
        told = [await anext(news), await anext(news)]
    assert told == [SessionEvent.SESSION_LOST, SessionEvent.SESSION_REESTABLISHED]
    assert not left
    assert (await store.put("/mine", b"", ephemeral=True)).created_by_self


# --- other shards ---------------------------------------------------------------------------------


async def test_close_while_the_old_session_is_ended_leaves_nothing_of_the_old_shards(
    cluster: StandIn,
) -> None:
    store = await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=6)
    news = store.session_events()
    cluster.unanswered.add("List")
    cluster.split(0)
    async with asyncio.timeout(10):
        assert await anext(news) is SessionEvent.SESSION_LOST
        assert await anext(news) is SessionEvent.SESSION_REESTABLISHED
        await store.close()
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert [name for name in names if name.startswith("oxia")] == []
    assert all(channel.closed for channel in cluster.channels)
