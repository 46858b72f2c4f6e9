"""The store on a real Oxia that dies, stands still, comes back, or was never there."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConfigError,
    NotFound,
    OutcomeUnknown,
    Unreachable,
)
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import ABSENT, EventKind, MetadataStore, Put, Revision, SessionEvent
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.metadata import node_at
from anabranch.testing.contracts.metadata_sessions import news_until
from anabranch.testing.contracts.metadata_trees import take, told
from anabranch.testing.servers.oxia import Oxia, oxia
from anabranch.testing.servers.process import free_port

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]
TIMEOUT_S = 4.0


@pytest.fixture(scope="module", params=[1, 3], ids=["1-shard", "3-shards"])
def server(request: pytest.FixtureRequest) -> Iterator[Oxia]:
    with oxia(request.param) as server:
        yield server


async def connect(server: Oxia) -> MetadataStore:
    return await open_store(server.url, real_runtime(), session_timeout_s=TIMEOUT_S)


@pytest_asyncio.fixture(loop_scope="module")
async def store(server: Oxia) -> AsyncIterator[MetadataStore]:
    store = await connect(server)
    yield store
    await store.close()


async def restart(server: Oxia, *, away_s: float = 0.0) -> None:
    server.server.kill()
    await asyncio.sleep(away_s)
    await asyncio.to_thread(server.server.start)


async def test_killed_server_comes_back_with_everything(server: Oxia, store: MetadataStore) -> None:
    news = store.session_events()
    session = store.session
    watch = store.watch("/kill")
    mine = await store.put("/kill/mine", b"", ABSENT, ephemeral=True)
    await take(watch, 2)
    acknowledged: list[str] = []
    unknown: list[str] = []

    async def write(number: int) -> None:
        path = f"/kill/n-{number:03}"
        try:
            await store.put(path, b"x", ABSENT)
            acknowledged.append(path)
        except OutcomeUnknown:
            unknown.append(path)
        except Unreachable:
            pass

    writers = []
    for number in range(60):
        writers.append(asyncio.ensure_future(write(number)))
        await asyncio.sleep(0.005)
        if number == 30:
            writers.append(asyncio.ensure_future(restart(server, away_s=0.3)))
    async with asyncio.timeout(40):
        await asyncio.gather(*writers)
    there = [f"/kill/{name}" for name in await store.children("/kill")]
    assert set(acknowledged) <= set(there)
    assert set(there) <= {*acknowledged, *unknown, "/kill/mine"}, "a refusal left something"
    await store.put("/kill/last", b"")
    events = []
    async with asyncio.timeout(20):
        while not events or events[-1].path != "/kill/last":
            events.append(await anext(watch))
    assert EventKind.GAP not in {event.kind for event in events}
    created = [event.path for event in events]
    assert sorted(created) == sorted({*there, "/kill/last"} - {"/kill/mine"}), "each once"
    await news_until(news, SessionEvent.RECONNECTED)
    assert store.session == session
    assert (await node_at(store, "/kill/mine")).stat.version == mine.version
    assert (await node_at(store, "/kill/mine")).stat.created_by_self


async def test_server_that_stands_still_loses_the_session(
    server: Oxia, store: MetadataStore
) -> None:
    news = store.session_events()
    session = store.session
    await store.put("/pause", b"", ephemeral=True)
    clock = real_runtime().clock
    server.server.pause()
    try:
        heard = await news_until(news, SessionEvent.SESSION_LOST)
        assert heard[0] is SessionEvent.CONNECTION_LOST
        assert store.session_valid_until < clock.monotonic_s()
    finally:
        server.server.resume()
    assert SessionEvent.SESSION_REESTABLISHED in await news_until(
        news, SessionEvent.SESSION_REESTABLISHED
    )
    assert store.session != session
    again = await store.put("/pause-again", b"", ABSENT, ephemeral=True)
    assert again.created_by_self


async def test_nodes_of_a_client_that_died_vanish(server: Oxia, store: MetadataStore) -> None:
    victim = await connect(server)
    await victim.put("/died", b"", ephemeral=True)
    await victim._shards.present.client.tasks.close()  # type: ignore[attr-defined]
    watch = store.watch("/died")
    async with asyncio.timeout(3 * TIMEOUT_S):
        while (event := await anext(watch)).kind is not EventKind.DELETED:
            pass  # that it was made may be news
    assert event.path == "/died"
    assert not await store.exists("/died")
    await victim.close()


async def test_another_process_goes_on_where_one_stopped(
    server: Oxia, store: MetadataStore
) -> None:
    await store.put("/resume/a", b"")
    since = await store.revision()
    await store.batch([Put(f"/resume/{i}", b"") for i in range(5)])
    await store.put("/resume/a", b"2")
    await store.delete("/resume/3")
    later = await connect(server)
    try:
        resumed = later.watch("/resume", since=since)
        await later.put("/resume/own", b"")
        events = await take(resumed, 8)
        assert sorted(told(events), key=str) == sorted(
            [
                *((EventKind.CREATED, f"/resume/{i}") for i in range(5)),
                (EventKind.MODIFIED, "/resume/a"),
                (EventKind.DELETED, "/resume/3"),
                (EventKind.CREATED, "/resume/own"),
            ],
            key=str,
        )
        assert events[-1].path == "/resume/own"
        revisions = [event.revision for event in events]
        assert revisions == sorted(set(revisions))
        for number in range(7):
            again = later.watch("/resume", since=revisions[number])
            assert told(await take(again, 7 - number)) == told(events[number + 1 :])
        changed = [event async for event in later.changed_since(since, "/resume")]
        assert len(changed) == 7
        gap = later.watch("/", since=Revision(since.epoch, since.index + 1))
        assert told(await take(gap, 1)) == [(EventKind.GAP, "/")]
    finally:
        await later.close()


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("127.0.0.1:{port}", Unreachable),
        ("{server}/nowhere", NotFound),
        ("{server}/a/b", ConfigError),
        ("", ConfigError),
        ("127.0.0.1:x", ConfigError),
        ("127.0.0.1:1,127.0.0.1:2", ConfigError),
    ],
)
async def test_wrong_address(
    server: Oxia, rest: str, kind: type[AnabranchError], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind is Unreachable:
        monkeypatch.setattr(limits, "OXIA_OPEN_S_MAX", 1.0)
    url = f"oxia://{rest.format(port=free_port(), server=server.address)}"
    with pytest.raises(kind) as refused:
        await open_store(url, real_runtime())
    assert rest.format(port="127", server="nowhere").split(":")[0].split("/")[-1] in str(
        refused.value
    )


async def test_wrong_timeout(server: Oxia) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        await open_store(server.url, real_runtime(), session_timeout_s=0.5)
