"""Sessions that a metadata server ends while its store is slow to write it down."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.metadata.commands import Command, EndSessions
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.served.client import ServedStore
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import SessionEvent


class SlowEnds:
    """Holds back commands that end sessions."""

    def __init__(self, base: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        self.asked: list[int] = []
        self.asked_for_one = asyncio.Event()
        self.asked_for_two = asyncio.Event()
        self._propose = base.backing.propose
        monkeypatch.setattr(base.backing, "propose", self.propose)

    async def propose(self, command: Command) -> Any:
        if isinstance(command, EndSessions):
            self.asked += command.sessions
            self.asked_for_one.set()
            if len(self.asked) > 1:
                self.asked_for_two.set()
            await self.gate.wait()
        return await self._propose(command)


@pytest.fixture
async def slow_ends(base: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlowEnds]:
    slow = SlowEnds(base, monkeypatch)
    yield slow
    slow.gate.set()


def run_out(server: MetadataServer, session: int) -> None:
    server.clock.begin(session, 0.0, server.runtime.clock.monotonic_s())


async def test_one_end_that_takes_long_does_not_hold_up_the_next(
    server: MetadataServer, store: ServedStore, slow_ends: SlowEnds
) -> None:
    run_out(server, 1001)
    async with asyncio.timeout(5):
        await slow_ends.asked_for_one.wait()
        run_out(server, 1002)
        await slow_ends.asked_for_two.wait()
    assert slow_ends.asked == [1001, 1002]
    assert store.session in server.clock


async def test_who_was_given_up_cannot_renew_until_it_is_written_down(
    server: MetadataServer, store: ServedStore, base: MemoryStore, slow_ends: SlowEnds
) -> None:
    """Else the client would believe in its session for longer than the server."""
    events, session = store.session_events(), store.session
    await store.put("/e", b"", ephemeral=True)
    run_out(server, session)
    async with asyncio.timeout(5):
        assert await anext(events) is SessionEvent.CONNECTION_LOST
        assert await anext(events) is SessionEvent.SESSION_LOST
        assert store.session_valid_until == -math.inf
        assert session in base.backing.machine.sessions, "nothing was written yet"
        assert await anext(events) is SessionEvent.SESSION_REESTABLISHED
    assert store.session != session
    assert not await store.exists("/e"), "the new session has ended the old one"
    slow_ends.gate.set()
    await asyncio.sleep(0)
    await store.put("/e", b"", ephemeral=True)
    assert await base.exists("/e")
