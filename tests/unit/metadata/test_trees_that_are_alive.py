"""Comparing trees that are written to: what changes meanwhile is looked at again, not reported."""

import asyncio

import pytest

from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import Record
from anabranch.migrations.engine import bulk_settling
from anabranch.migrations.engine.bulk import Mismatch, StorePlace, TreeMismatch
from anabranch.migrations.engine.bulk_local import LocalBulk
from anabranch.migrations.engine.limits import LOOK_AGAIN_S
from anabranch.runtime.real import real_runtime


class Busy(MemoryStore):
    """A store in which something is written after it was read, and whenever it is looked at."""

    def __init__(self, clock):
        super().__init__(clock)
        self.restless = False

    async def export(self, prefix="/", *, access=True, values=True):
        async for record in super().export(prefix, access=access, values=values):
            yield record
        if prefix == "/":
            await self.put("/late", b"now")
            await self.delete("/gone")

    async def record(self, path) -> Record | None:
        if self.restless and path == "/busy":
            await self.put(path, b"again")
        return await super().record(path)


@pytest.fixture
async def pair():
    clock = real_runtime().clock
    left, right = MemoryStore(clock), Busy(clock)
    for path in ("/late", "/same", "/lost", "/other", "/busy"):
        await left.put(path, b"now")
    for path in ("/same", "/gone", "/extra"):
        await right.put(path, b"now")
    await right.put("/other", b"then")
    await right.put("/busy", b"now")
    yield left, right
    await left.close()
    await right.close()


async def compared(pair):
    left, right = pair
    places = StorePlace("memory:", left), StorePlace("memory:", right)
    return await LocalBulk(real_runtime()).compare(*places)


@pytest.mark.goal("spark.B2", part="alive", broken_by="trees_are_judged_at_first_sight")
async def test_what_was_on_its_way_is_no_difference(pair):
    found = await compared(pair)
    assert found.mismatches == (
        TreeMismatch("/extra", Mismatch.EXTRA),
        TreeMismatch("/lost", Mismatch.MISSING),
        TreeMismatch("/other", Mismatch.DIFFERS, ("value",)),
    )
    assert found.settled == 2, "one had come meanwhile, the other gone"


class Following(MemoryStore):
    """A copy that has what was written a moment later, not yet when it was read."""

    async def export(self, prefix="/", *, access=True, values=True):
        async for record in super().export(prefix, access=access, values=values):
            yield record
        self.follower = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self):
        await asyncio.sleep(LOOK_AGAIN_S / 5)
        await self.put("/late", b"now")


@pytest.mark.goal("spark.B2", part="alive", broken_by="trees_are_looked_at_twice_at_once")
async def test_a_copy_that_follows_a_moment_later_is_no_difference():
    clock = real_runtime().clock
    left, right = MemoryStore(clock), Following(clock)
    await left.put("/late", b"now")
    found = await compared((left, right))
    await right.follower
    assert (found.mismatches, found.settled) == ((), 1)
    await left.close()
    await right.close()


async def test_what_never_stands_still_is_said_to_be_so(pair, monkeypatch):
    monkeypatch.setattr(bulk_settling, "LOOK_AGAIN_S", LOOK_AGAIN_S / 5)
    await pair[1].put("/busy", b"another")
    pair[1].restless = True
    found = await compared(pair)
    assert TreeMismatch("/busy", Mismatch.CHANGED) in found.mismatches
    assert found.counts[Mismatch.CHANGED] == 1
