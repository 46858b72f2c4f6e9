"""Real ZooKeeper, real Oxia and a store that a server of ours keeps replace each other, live.

Every ordered pair with a real server in it, each side a place of its own: there and back, and there
again for good, under two processes that write all the time.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path

import pytest

from anabranch.errors import BadVersion
from anabranch.metadata.factory import open_store
from anabranch.metadata.local_handle import LocalHandle
from anabranch.metadata.locks import Locks
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import ABSENT, IndexKey, MetadataStore, Version
from anabranch.metadata.switchable.succession import successor_of
from anabranch.migrations.engine.table import Verb
from anabranch.runtime.real import real_runtime
from anabranch.testing.live_writers import Writer, check
from anabranch.testing.replaced_stores import Member, Shelf
from anabranch.testing.servers import oxia, zookeeper
from anabranch.testing.staged_replacement import LONG_S, failed, until

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
SERVED = "served"
KINDS = ("zookeeper", "oxia", SERVED)
PAIRS = [pair for pair in product(KINDS, repeat=2) if set(pair) != {SERVED}]
PAUSE_S = 0.02
ONE_MB = 1 << 20
WIDER = {"zookeeper": "?jute.maxbuffer=4194304"}
"""As the server is started: with its path the value is more than it takes by default."""
DEEP = 60
"""Levels of a path."""
LONG = 200
"""Characters of a name."""
MANY = 100_000
"""Children of one node."""
AT_ONCE = 500
OFTEN = 7
"""So many versions are kept by all of them."""


@pytest.fixture(scope="module")
def ensemble_url() -> Iterator[str]:
    with zookeeper() as ensemble:
        yield ensemble.url


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    runtime = real_runtime()
    store = await open_store(f"embedded:{folder}", runtime)
    assert isinstance(store, LocalHandle)
    server = MetadataServer(runtime, store, on_failure=failed)
    await server.start("127.0.0.1", 0)
    try:
        yield f"anabranch://127.0.0.1:{server.port}"
    finally:
        await server.close()
        await store.close()


async def place(kind: str, name: str, url: str, folder: Path, held: AsyncExitStack) -> str:
    """The URL of a new and empty store of a kind."""
    if kind == "zookeeper":
        return f"{url}/{folder.name}-{name}"
    if kind == "oxia":
        return held.enter_context(oxia()).url
    return await held.enter_async_context(served(folder / name))


class Pair:
    """Two processes on a store, which write, and another store that it is replaced by."""

    def __init__(self, members: list[Member], target: str) -> None:
        self.members = members
        self.writers = [Writer(member, f"w{n}", PAUSE_S) for n, member in enumerate(members)]
        self._target = target
        self._running = [asyncio.ensure_future(writer.run()) for writer in self.writers]

    async def switch(self, attempt: str) -> None:
        await self.members[0].start(self._target, attempt)
        await self._come("switched", "target")

    async def go_back(self) -> None:
        await self.members[0].ask(Verb.ROLLBACK)
        await self._come("rolled back", "source")

    async def _come(self, phase: str, name: str) -> None:
        await self.members[0].until(phase, wait_s=LONG_S)
        stores = [member.store for member in self.members]
        await until(lambda: all(s.route.name == name and not s.gate.closed for s in stores))
        await self.write_on()

    async def write_on(self) -> None:
        """Wait until everybody has written a little more."""
        counts = [writer.count + 10 for writer in self.writers]
        await until(
            lambda: (
                all(w.count >= count for w, count in zip(self.writers, counts, strict=True))
                or any(task.done() for task in self._running)
            )
        )

    async def stop(self) -> None:
        for writer in self.writers:
            writer.stop()
        await asyncio.gather(*self._running)


async def token_of(store: MetadataStore, path: str) -> Version:
    node = await store.get(path)
    assert node is not None
    return node.stat.version


@pytest.mark.goal("454.A2", part="real servers")
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
async def test_a_real_store_is_replaced_there_and_back_and_for_good(
    source: str, target: str, ensemble_url: str, tmp_path: Path
) -> None:
    runtime = real_runtime()
    shelf = Shelf(runtime)
    async with AsyncExitStack() as held:
        urls = [
            await place(kind, name, ensemble_url, tmp_path, held)
            for kind, name in ((source, "source"), (target, "target"))
        ]
        held.push_async_callback(shelf.close)
        members = []
        for name in ("ash", "birch"):
            member = await Member.open(runtime, name, urls[0], shelf.open, failed, hold_s=LONG_S)
            held.push_async_callback(member.close)
            members.append(member)
        store, other = members[0].store, members[1].store
        locks = Locks(store, runtime.clock, members[0].tasks)
        locks.start()
        lock = await locks.acquire("/locks/one", b"me")
        await store.put("/unusual/\u00e9mpty", b"")
        await store.put("/unusual/large", bytes(range(256)) * 3000)
        await store.put("/indexed/a", b"1", indexes=(IndexKey("by", "one"),))
        for number in range(OFTEN + 1):
            await store.put("/often", b"%d" % number)
        stale = (await store.put("/stale", b"1")).version
        await store.put("/stale", b"2")
        before = await token_of(store, "/often")
        pair = Pair(members, urls[1])
        await pair.switch("there")
        await check_kept(store, stale)
        raw = await open_store(urls[1], runtime)
        held.push_async_callback(raw.close)
        assert (await token_of(raw, "/often")).native == OFTEN
        await store.put("/often", b"once", before)
        with pytest.raises(BadVersion):
            await other.put("/often", b"twice", before)
        node = await raw.get("/locks/one")
        assert node is not None
        assert node.stat.ephemeral
        assert lock.held
        with pytest.raises(BadVersion):
            await other.put("/locks/one", b"mine", ABSENT, ephemeral=True)
        on_target = await token_of(store, "/often")
        await pair.go_back()
        await check_kept(store, stale)
        assert lock.held
        await store.put("/often", b"back", on_target)
        with pytest.raises(BadVersion):
            await store.put("/often", b"no", on_target)
        await pair.switch("again")
        await members[0].ask(Verb.FINALIZE)
        await members[0].until("finalized", wait_s=LONG_S)
        await pair.write_on()
        await pair.stop()
        assert lock.held
        for reader in (store, other, raw):
            await check(pair.writers, reader)
        issued = [number for writer in pair.writers for number in writer.numbers]
        last = await store.put("/sequence/n-", b"", sequential=True)
        assert int(last.path[-10:]) > max(issued)
        left = await open_store(urls[0], runtime)
        held.push_async_callback(left.close)
        found = await successor_of(left, "metadata")
        assert found is not None
        assert found.url == urls[1]


async def check_kept(store: MetadataStore, stale: Version) -> None:
    large, empty = await store.get("/unusual/large"), await store.get("/unusual/\u00e9mpty")
    assert large is not None
    assert large.value == bytes(range(256)) * 3000
    assert empty is not None
    assert empty.value == b""
    found = [node.stat.path async for node in store.scan_index("by", "one")]
    assert found == ["/indexed/a"]
    with pytest.raises(BadVersion):
        await store.put("/stale", b"no", stale)


@pytest.mark.goal("454.A43", part="real servers")
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
async def test_unusual_nodes_arrive_byte_for_byte(
    source: str, target: str, ensemble_url: str, tmp_path: Path
) -> None:
    runtime = real_runtime()
    shelf = Shelf(runtime)
    unusual = {
        "/empty": b"",
        "/large": bytes(range(256)) * (ONE_MB // 256),
        "/every/byte": bytes(range(256)),
        "/spaces and/ \u2003": b"1",
        "/accents/e\u0301": b"two characters",
        "/accents/\u00e9": b"one character",
        "/writing/\u65e5\u672c\u8a9e": b"2",
        "/writing/\uffdc\ud7a3": b"3",
        "/signs/%2F+*?#&=:;@!~": b"4",
        "/".join(["", *(f"deep-{level}" for level in range(DEEP))]): b"5",
        f"/long/{'n' * LONG}": b"6",
    }
    if "zookeeper" not in (source, target):
        unusual["/writing/\U0001f986"] = b"above what ZooKeeper takes"
    many = MANY if {source, target} == {"zookeeper", "oxia"} else 0
    async with AsyncExitStack() as held:
        urls = [
            await place(kind, name, ensemble_url, tmp_path, held) + WIDER.get(kind, "")
            for kind, name in ((source, "source"), (target, "target"))
        ]
        held.push_async_callback(shelf.close)
        member = await Member.open(runtime, "ash", urls[0], shelf.open, failed, hold_s=LONG_S)
        held.push_async_callback(member.close)
        for path, value in unusual.items():
            await member.store.put(path, value)
        async for each in filled(member.store, many):
            unusual |= each
        await member.start(urls[1])
        await member.until("switched", wait_s=2 * LONG_S)
        await until(lambda: member.store.route.name == "target" and not member.store.gate.closed)
        left, used = [await open_store(url, runtime) for url in urls]
        held.push_async_callback(left.close)
        held.push_async_callback(used.close)
        assert sorted(await used.children("/many")) == [f"n-{n:06d}" for n in range(many)]
        for store in (left, used):
            found = {
                record.path: record.value
                async for record in store.export("/")
                if record.value or record.path in unusual
            }
            assert {path: found.get(path) for path in unusual} == unusual


async def filled(store: MetadataStore, count: int) -> AsyncIterator[dict[str, bytes]]:
    """Make so many children of one node, some at a time; tells what was made."""
    for first in range(0, count, AT_ONCE):
        some = {f"/many/n-{n:06d}": b"%d" % n for n in range(first, min(first + AT_ONCE, count))}
        await asyncio.gather(*(store.put(path, value) for path, value in some.items()))
        yield some
