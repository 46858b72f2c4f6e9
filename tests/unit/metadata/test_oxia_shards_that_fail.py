"""One of several shards fails while all are read: one clear error, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from oxia_stand_in import URL, StandIn, StandInChannel, StandInReplies

from anabranch.errors import Unreachable
from anabranch.metadata.oxia.store import OxiaStore
from anabranch.metadata.store import IndexKey
from anabranch.runtime.channels import CallFailed


@pytest.fixture
def cluster() -> StandIn:
    return StandIn(("a:1", "b:1"))


@pytest.fixture
async def store(cluster: StandIn) -> AsyncIterator[OxiaStore]:
    store = await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=6)
    yield store
    await store.close()


def fail_one(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Streams of a kind: one server refuses them, the other takes its time."""
    stream = StandInChannel.stream

    async def never(channel: StandInChannel) -> AsyncIterator[bytes]:
        if channel.address == "b:1":
            raise CallFailed("UNAVAILABLE", "this one is away")
        await asyncio.sleep(0.5)
        yield b""

    def some(self: StandInChannel, method: str, message: bytes) -> StandInReplies:
        if method.endswith(wanted):
            return StandInReplies(never(self))
        return stream(self, method, message)

    monkeypatch.setattr(StandInChannel, "stream", some)


@pytest.mark.goal("core.M8", part="oxia", broken_by="oxia_first_failure_leaves_the_rest")
async def test_export_says_that_a_shard_is_away(
    store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a", b"1")
    fail_one(monkeypatch, "/RangeScan")
    with pytest.raises((Unreachable, RuntimeError)) as told:
        _ = [record async for record in store.export()]
    assert told.type is Unreachable, "nobody can do anything with the other"
    assert "this one is away" in str(told.value)


async def test_search_by_index_says_that_a_shard_is_away(
    store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("/a", b"1", indexes=(IndexKey("i", "k"),))
    fail_one(monkeypatch, "/List")
    with pytest.raises(Unreachable, match="this one is away"):
        _ = [node async for node in store.scan_index("i")]


async def test_changes_that_end_too_early_are_not_all(
    cluster: StandIn, store: OxiaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that goes may end what it tells of changes without an error."""
    began = await store.revision()
    for number in range(4):
        await store.put(f"/n{number}", b"")
    later = await OxiaStore.open(cluster.runtime(), URL, session_timeout_s=6)
    stream = StandInChannel.stream

    async def nothing() -> AsyncIterator[bytes]:
        for data in ():
            yield data

    def ended(self: StandInChannel, method: str, message: bytes) -> StandInReplies:
        if method.endswith("/GetNotifications"):
            return StandInReplies(nothing())
        return stream(self, method, message)

    monkeypatch.setattr(StandInChannel, "stream", ended)
    with pytest.raises(Unreachable, match="broke off"):
        _ = [event async for event in later.changed_since(began)]
    monkeypatch.undo()
    found = {event.path async for event in later.changed_since(began)}
    assert found == {f"/n{number}" for number in range(4)}
    await later.close()
