"""Counters, shown on every store that needs no foreign server."""

import asyncio
from pathlib import Path

import pytest

from anabranch.errors import Fenced
from anabranch.metadata.counters import BlockCounter, SequentialCounter
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.coordination import LOCK, Place

WRITERS = 8


async def drawn(counters: list[SequentialCounter] | list[BlockCounter]) -> list[list[int]]:
    """What each of several writers draws at the same time."""

    async def draw(counter: SequentialCounter | BlockCounter) -> list[int]:
        return [await counter.next() for _ in range(25)]

    return await asyncio.gather(*map(draw, counters))


def check_unique_and_rising(lists: list[list[int]]) -> int:
    """The largest number."""
    everything = [number for numbers in lists for number in numbers]
    assert len(set(everything)) == len(everything)
    assert all(numbers == sorted(numbers) for numbers in lists)
    return max(everything)


@pytest.mark.goal("core.M4", part="counters", broken_by="tickets_are_counted")
async def test_tickets_of_eight_writers_are_unique_and_rise(place: Place) -> None:
    stores = [(await place.join()).store for _ in range(WRITERS)]
    largest = check_unique_and_rising(
        await drawn([SequentialCounter(store, "/tickets") for store in stores])
    )
    assert await SequentialCounter(stores[0], "/tickets").next() > largest, "after all were deleted"
    assert await stores[0].children("/tickets") == []


def blocks(store: MetadataStore) -> BlockCounter:
    return BlockCounter(
        store, real_runtime(), "/ids", document_format="anabranch.test-ids", block=10, first=1
    )


@pytest.mark.goal("core.M4", part="counters", broken_by="block_is_not_reserved")
async def test_numbers_of_eight_writers_are_unique_and_rise(place: Place) -> None:
    stores = [(await place.join()).store for _ in range(WRITERS)]
    largest = check_unique_and_rising(await drawn([blocks(store) for store in stores]))
    assert await blocks(stores[0]).next() > largest, "another process goes on above"


@pytest.mark.goal("core.M4", part="counters", broken_by="block_is_not_reserved")
async def test_numbers_go_on_above_after_a_restart(tmp_path: Path) -> None:
    largest = 0
    for _ in range(3):
        store = await open_store(f"embedded:{tmp_path}/store", real_runtime())
        lists = await drawn([blocks(store), blocks(store)])
        assert min(map(min, lists)) > largest
        largest = check_unique_and_rising(lists)
        await store.close()


@pytest.mark.goal("core.M4", part="counters", broken_by="tickets_are_counted")
async def test_tickets_go_on_above_after_a_restart(tmp_path: Path) -> None:
    largest = -1
    for _ in range(3):
        store = await open_store(f"embedded:{tmp_path}/store", real_runtime())
        lists = await drawn([SequentialCounter(store, "/tickets") for _ in range(2)])
        assert min(map(min, lists)) > largest
        largest = check_unique_and_rising(lists)
        await store.close()


async def test_a_guarded_counter_stops_with_its_lock(place: Place) -> None:
    ash, birch = await place.join(), await place.join()
    lock = await ash.locks.acquire(LOCK, b"ash")
    guarded = BlockCounter(
        ash.store, real_runtime(), "/ids", document_format="ids", block=1, guard=lock.guard
    )
    assert await guarded.next() == 0
    await birch.store.delete(LOCK)
    with pytest.raises(Fenced):
        await guarded.next()
    free = BlockCounter(birch.store, real_runtime(), "/ids", document_format="ids", block=1)
    assert await free.next() == 1
