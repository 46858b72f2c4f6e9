"""What has changed while a store is followed is written side by side: a sync takes its time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.errors import Unreachable
from anabranch.limits import METADATA_COPY_READS_MAX
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import MetadataStore, Stat
from anabranch.migrations.freeze_copy.tail import End, Tail, Wishes
from anabranch.runtime.real import real_runtime
from anabranch.testing.pass_through import PassThrough

CHANGED = 100


class Syncing(PassThrough):
    """Each write takes a while, as where it is synced."""

    under_way = most = 0
    deletes = fails_at = 0

    async def delete(self, path: str, *rest: object, **more: object) -> None:
        self.deletes += 1
        failing = self.deletes == self.fails_at
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(0.01 * (self.deletes % 3))
            if failing:
                raise Unreachable("the connection broke")
            await super().delete(path, *rest, **more)  # type: ignore[arg-type]
        finally:
            self.under_way -= 1

    put_under_way = put_most = 0

    async def put(self, path: str, *rest: object, **more: object) -> Stat:
        self.put_under_way += 1
        self.put_most = max(self.put_most, self.put_under_way)
        try:
            await asyncio.sleep(0.005)
            return await super().put(path, *rest, **more)  # type: ignore[arg-type]
        finally:
            self.put_under_way -= 1


Stores = tuple[MemoryStore, Syncing]


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    clock = real_runtime().clock
    source, behind = MemoryStore(clock), MemoryStore(clock)
    yield source, Syncing(behind)
    await source.close()
    await behind.close()


async def values(store: MetadataStore) -> dict[str, tuple[bytes, int]]:
    found = {}
    async for record in store.export("/"):
        if not record.path.startswith("/anabranch"):
            found[record.path] = (record.value, record.native_version)
    return found


@pytest.mark.goal("454.A13", part="side by side", broken_by="changes_follow_one_by_one")
async def test_what_has_changed_is_written_side_by_side(
    stores: Stores,
) -> None:
    """The last of it while writes wait."""
    source, target = stores
    for number in range(CHANGED):
        await source.put(f"/leaf/{number}", b"1")
        await source.put(f"/gone/{number}/below", b"1")
        await source.put(f"/above/{number}/below", b"1")
    tail = Tail(real_runtime(), End("memory:a", source), End("memory:b", target), Wishes())
    await tail.copy(lambda nodes, size_bytes: None)
    for number in range(CHANGED):
        await source.put(f"/leaf/{number}", b"2")
        await source.delete(f"/gone/{number}/below")
        await source.delete(f"/gone/{number}")
        await source.put(f"/above/{number}", b"2")
    await tail.catch_up()
    assert await values(target) == await values(source)
    assert target.most == METADATA_COPY_READS_MAX, "never more"
    assert target.put_most == METADATA_COPY_READS_MAX


async def test_a_write_that_fails_leaves_none_under_way(
    stores: Stores,
) -> None:
    source, target = stores
    for number in range(CHANGED):
        await source.put(f"/leaf/{number}", b"1")
    tail = Tail(real_runtime(), End("memory:a", source), End("memory:b", target), Wishes())
    await tail.copy(lambda nodes, size_bytes: None)
    for number in range(CHANGED):
        await source.put(f"/leaf/{number}", b"2")
    target.fails_at = 7
    with pytest.raises(Unreachable):
        await tail.catch_up()
    assert target.under_way == 0
    assert target.deletes == METADATA_COPY_READS_MAX, "what had not begun is left"
    await tail.catch_up()
    assert await values(target) == await values(source)
