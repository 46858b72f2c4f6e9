"""Writes that a client sends again over another connection: the server knows them."""

import asyncio
from typing import Any

import pytest

from anabranch.metadata.commands import Command, Write
from anabranch.metadata.local_handle import Answer
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import ABSENT, SessionEvent


class SlowLog:
    """Takes writes in and lets them take effect when it is told to."""

    def __init__(self, base: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[int] = []
        self.held: list[tuple[Command, Answer]] = []
        self._propose = base.backing.propose
        monkeypatch.setattr(base.backing, "propose", self.propose)

    async def propose(self, command: Command) -> Any:
        if not isinstance(command, Write):
            return await self._propose(command)
        self.numbers.append(command.request)
        answer: Answer = asyncio.get_running_loop().create_future()
        self.held.append((command, answer))
        return answer

    async def let_go(self) -> None:
        while self.held:
            command, answer = self.held.pop(0)
            answer.set_result(await (await self._propose(command)))


async def reconnect(server: MetadataServer, store: ServedStore) -> None:
    events = store.session_events()
    for connection in list(server.connections):
        connection.hang_up("a test")
    async with asyncio.timeout(5):
        assert await anext(events) is SessionEvent.CONNECTION_LOST
        assert await anext(events) is SessionEvent.RECONNECTED
    await store.sync()


async def test_what_is_on_its_way_into_the_log_is_not_put_there_again(
    server: MetadataServer, store: ServedStore, base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SlowLog(base, monkeypatch)
    writing = []
    for i in range(3):
        writing.append(asyncio.get_running_loop().create_task(store.put(f"/n/{i}", b"", ABSENT)))
        await store.sync()
    assert log.numbers == [1, 2, 3]
    for _ in range(3):
        await reconnect(server, store)
    assert log.numbers == [1, 2, 3]
    await log.let_go()
    async with asyncio.timeout(5):
        stats = await asyncio.gather(*writing)
    assert [stat.path for stat in stats] == ["/n/0", "/n/1", "/n/2"]


async def test_what_took_effect_is_answered_at_once_and_without_the_log(
    server: MetadataServer, store: ServedStore, base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SlowLog(base, monkeypatch)
    first = asyncio.get_running_loop().create_task(store.put("/first", b"", ABSENT))
    await store.sync()
    second = asyncio.get_running_loop().create_task(store.put("/second", b"", ABSENT))
    await store.sync()
    command, _ = log.held.pop(0)
    base.backing.apply(command, 1)  # its answer gets lost
    await reconnect(server, store)
    async with asyncio.timeout(5):
        stat = await first
    assert stat.path == "/first"
    assert log.numbers == [1, 2], "the log was not asked again"
    assert not second.done()
    await log.let_go()
    await second


async def test_renewal_does_not_wait_behind_writes(
    store: ServedStore, base: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.limits.METADATA_UNANSWERED_WRITES_MAX", 1)
    log = SlowLog(base, monkeypatch)
    writing = asyncio.get_running_loop().create_task(store.put("/first", b""))
    await store.sync()
    waiting = asyncio.get_running_loop().create_task(store.put("/second", b""))
    await asyncio.sleep(0)
    valid_until = store.session_valid_until
    events = store.session_events()
    await asyncio.sleep(store.session_timeout_s * 0.6)
    assert store.session_valid_until > valid_until
    assert log.numbers == [1]
    assert not waiting.done()
    for _ in range(2):
        await log.let_go()
        await store.sync()
    await asyncio.gather(writing, waiting)
    await store.close()
    assert [event async for event in events] == []
