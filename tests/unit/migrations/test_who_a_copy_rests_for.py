"""A driver rests while it copies and compares, unless somebody waits for what it does."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import Event, EventKind, Revision
from anabranch.metadata.transfer.resting import Rests
from anabranch.migrations.freeze_copy.following import copied
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.tail import End, Tail, Wishes
from anabranch.runtime.real import real_runtime
from anabranch.testing.pass_through import PassThrough

NODES = 50


class Counted:
    """How many nodes were looked at by somebody who gives way."""

    def __init__(self) -> None:
        self.nodes = 0

    def since(self) -> int:
        found, self.nodes = self.nodes, 0
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, real = Counted(), Rests.take

    def take(self: Rests, now_s: float) -> float:
        counted.nodes += 1
        return real(self, now_s)

    monkeypatch.setattr(Rests, "take", take)
    return counted


class Forgetful(PassThrough):
    """Tells nobody what was changed while it is `away`."""

    away = False

    async def changed_since(self, revision: Revision) -> AsyncIterator[Event]:
        if self.away:
            yield Event(EventKind.GAP, "/", await self.revision())
            return
        async for event in super().changed_since(revision):
            yield event


@pytest.fixture
async def source() -> AsyncIterator[Forgetful]:
    store = Forgetful(MemoryStore(real_runtime().clock))
    for number in range(NODES):
        await store.put(f"/a/{number}", b"1")
    yield store
    await store.close()


@pytest.fixture
async def tail(source: Forgetful) -> AsyncIterator[Tail]:
    target = MemoryStore(real_runtime().clock)
    yield Tail(real_runtime(), End("memory:a", source), End("memory:b", target), Wishes())
    await target.close()


async def test_it_rests_unless_somebody_waits(tail: Tail, counted: Counted) -> None:
    async def looked_at_in(phase: str) -> int:
        turn: Any = SimpleNamespace(announced=SimpleNamespace(phase=phase), figures={})
        turn.progress = lambda progress: None
        tail.complete = False
        await copied(tail, turn)
        await tail.verify()
        return counted.since()

    for phase in ("halting", "reverifying"):
        assert phase in TABLE
        assert await looked_at_in(phase) == 0, "somebody stands still, or wants the way back"
    assert await looked_at_in("copying") > NODES
    assert await looked_at_in("switched") > NODES


async def test_changes_that_were_missed_are_looked_for_slowly_once(
    tail: Tail, source: Forgetful, counted: Counted
) -> None:
    await tail.copy(lambda nodes, size_bytes: None)
    source.away = True
    counted.since()
    await tail.catch_up(hurries=False)
    assert counted.since() > NODES
    await tail.catch_up(hurries=False)
    assert counted.since() == 0, "more is written than can be looked at with rests"
    source.away = False
    await tail.catch_up(hurries=False)
    source.away = True
    await tail.catch_up(hurries=False)
    assert counted.since() > NODES
    source.away = False
    await tail.catch_up(hurries=False)
    source.away = True
    await tail.catch_up()
    assert counted.since() == 0, "writes wait"
