"""An ensemble of three loses its leader under load: no acknowledged write is lost or done twice."""

import asyncio
import time

import pytest

from anabranch.errors import AnabranchError, BadVersion, OutcomeUnknown
from anabranch.metadata.store import EventKind, SessionEvent
from anabranch.metadata.zookeeper.store import ZooKeeperStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.servers import ZooKeeper, zookeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]
WRITERS = 4
SESSION_S = 20.0


class Writer:
    """Appends numbers of its own to one shared node, and knows which of them must be there."""

    def __init__(self, store: ZooKeeperStore, name: int) -> None:
        self.store = store
        self.name = name
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.refusals = 0

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            token = f"{self.name}-{number}"
            try:
                await self.append(token)
                number += 1
            except OutcomeUnknown:
                self.unknown.append(token)
                number += 1
            except AnabranchError:
                self.refusals += 1
                await asyncio.sleep(0.05)

    async def append(self, token: str) -> None:
        while True:
            node = await self.store.get("/list")
            assert node is not None
            value = node.value + f"{token}\n".encode()
            try:
                await self.store.put("/list", value, node.stat.version)
            except BadVersion:
                continue
            self.acknowledged.append(token)
            return


async def listen(store: ZooKeeperStore) -> list[SessionEvent]:
    return [event async for event in store.session_events()]


async def lead(ensemble: ZooKeeper, deadline_s: float) -> None:
    while ensemble.leader() is None:
        assert time.monotonic() < deadline_s, "nobody leads"
        await asyncio.sleep(0.2)


async def test_leader_killed_under_load() -> None:
    with zookeeper(3, memory=("-Xmx256m",)) as ensemble:
        url = f"{ensemble.url}/load"
        stores = [
            await ZooKeeperStore.open(real_runtime(), url, session_timeout_s=SESSION_S)
            for _ in range(WRITERS)
        ]
        await stores[0].put("/list", b"")
        mine = [await s.put(f"/e/{i}", b"", ephemeral=True) for i, s in enumerate(stores)]
        news = [asyncio.gather(listen(store)) for store in stores]
        watch = stores[0].watch("/list")
        writers = [Writer(store, name) for name, store in enumerate(stores)]
        stop = asyncio.Event()
        runs = asyncio.gather(*(writer.run(stop) for writer in writers))
        await asyncio.sleep(1)
        leader = ensemble.leader()
        assert leader is not None
        leader.kill()
        await lead(ensemble, time.monotonic() + 60)
        before = [len(writer.acknowledged) for writer in writers]
        for _ in range(300):
            if all(len(w.acknowledged) > n for w, n in zip(writers, before, strict=True)):
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("not every writer goes on")
        stop.set()
        await runs

        reader = stores[1]
        await reader.sync()
        node = await reader.get("/list")
        assert node is not None
        found = node.value.decode().split()
        assert len(found) == len(set(found)), "nothing was done twice"
        acknowledged = {token for writer in writers for token in writer.acknowledged}
        unknown = {token for writer in writers for token in writer.unknown}
        assert acknowledged <= set(found) <= acknowledged | unknown
        for writer in writers:
            own = [token for token in found if token.startswith(f"{writer.name}-")]
            assert own == sorted(own, key=lambda token: int(token.split("-")[1]))

        for number, stat in enumerate(mine):
            again = await reader.get(f"/e/{number}")
            assert again is not None, "the sessions went on"
            assert again.stat.version == stat.version
        last = await reader.put("/list", b"end")
        async with asyncio.timeout(10):
            async for event in watch:
                assert event.kind in (EventKind.MODIFIED, EventKind.GAP)
                if event.revision >= last.revision:
                    break
        for store in stores:
            await store.close()
        for (told,) in await asyncio.gather(*news):
            assert SessionEvent.SESSION_LOST not in told
