"""The log of a topic: properties, trimming, reading, the end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    NotFound,
    Terminated,
)
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, Retention

NAME = "t/ns/persistent/topic"
SMALL = ManagedLedgerConfig(ledger_entries_max=10)
World = Any
Append = Callable[[ManagedLedger, bytes], "asyncio.Future[Position]"]
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it has not happened within 10 s")


async def read_all(ledger: ManagedLedger, start: Position = EARLIEST) -> list[Entry]:
    found: list[Entry] = []
    while batch := await ledger.read(start, 7, 1 << 20):
        found += batch
        start = Position(batch[-1].ledger_id, batch[-1].entry_id + 1)
    return found


@pytest.mark.goal("core.L6", part="delete", broken_by="deleted_log_keeps_its_ledgers")
async def test_absent_and_deleted(world: World, append_all: AppendAll) -> None:
    broker = world.broker(SMALL)
    with pytest.raises(NotFound):
        await broker.open(NAME, create=False)
    assert not await broker.exists(NAME)
    ledger = await broker.open(NAME)
    await append_all(ledger, 25)
    await ledger.open_cursor("s")
    assert await broker.list("t/ns/persistent") == [NAME]
    await broker.delete(NAME)
    assert not await broker.exists(NAME)
    assert world.ledgers.ledgers == {}
    with pytest.raises(NotFound):
        await broker.delete(NAME)
    assert (await broker.open(NAME)).cursors == {}


async def test_reading_what_is_being_deleted_is_refused_in_words(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open(ManagedLedgerConfig(entry_cache_bytes_max=0))
    await append_all(ledger, 3)
    await ledger.open_cursor("s")
    begun, go_on = asyncio.Event(), asyncio.Event()
    delete = world.metadata.delete

    async def slow(*arguments: Any) -> None:
        begun.set()
        await go_on.wait()
        await delete(*arguments)

    monkeypatch.setattr(world.metadata, "delete", slow)
    deleting = asyncio.create_task(ledger.delete())
    await begun.wait()
    try:
        with pytest.raises(AlreadyClosed):
            await ledger.read(EARLIEST, 7, 1 << 20)
    finally:
        go_on.set()
        await deleting


@pytest.mark.goal("core.L6", part="properties", broken_by="properties_are_replaced")
async def test_properties_are_kept(world: World) -> None:
    ledger = await world.open()
    await ledger.set_properties({"a": "1", "b": "2"})
    await ledger.set_properties({"a": None, "c": "3"})
    assert ledger.properties == {"b": "2", "c": "3"}
    assert (await world.open()).properties == {"b": "2", "c": "3"}


@pytest.mark.goal("core.L6", part="terminate", broken_by="termination_is_not_stored")
async def test_terminate_is_durable_and_idempotent(
    world: World, append: Append, append_all: AppendAll
) -> None:
    ledger = await world.open()
    world.ledgers.held = True
    future = append_all(ledger, 3)
    ending = asyncio.ensure_future(ledger.terminate())
    await asyncio.sleep(0.01)
    late = append(ledger, b"late")
    world.ledgers.release()
    position = await ending
    assert position == (await future)[-1], "what was in flight is part of the log"
    with pytest.raises(Terminated):
        await late
    assert await ledger.terminate() == position
    again = await world.open()
    assert again.terminated == again.last_confirmed == position
    assert await again.terminate() == position
    with pytest.raises(Terminated):
        await append(again, b"x")
    assert len(await read_all(again)) == 3
    assert again.is_usable


@pytest.mark.goal("core.L6", part="migrated", broken_by="migration_is_not_marked")
async def test_migrated_log_has_ended_and_says_that_it_goes_on(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    await ledger.set_properties({"k": "v"})
    positions = await append_all(ledger, 3)
    assert not ledger.is_migrated
    assert await ledger.migrate() == positions[-1]
    assert await ledger.migrate() == positions[-1]
    again = await world.open()
    for found in (ledger, again):
        assert found.is_migrated
        assert found.terminated == positions[-1]
        assert found.properties == {"k": "v", "migrated": "true"}
    await again.set_properties({"migrated": None})
    assert not again.is_migrated, "it ended, and that is all"
    assert await again.migrate() == positions[-1], "marked though it had ended before"
    assert (await world.open()).is_migrated


async def test_terminated_while_empty(world: World) -> None:
    ledger = await world.open()
    position = await ledger.terminate()
    assert position.entry_id == -1
    again = await world.open()
    assert again.terminated == position
    assert await again.read(EARLIEST, 1, 1) == []


@pytest.mark.goal("core.L6", part="trim by cursors", broken_by="trim_follows_the_fastest")
async def test_trim_removes_what_every_cursor_has_passed(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    fast = await ledger.open_cursor("fast", initial="earliest")
    slow = await ledger.open_cursor("slow", initial="earliest")
    positions = await append_all(ledger, 45)
    fast.acknowledge_cumulative(positions[-1])
    assert await ledger.trim() == 0
    slow.acknowledge_cumulative(positions[24])
    await ledger.trim()
    assert [span.entries for span in ledger.ledgers] == [10, 10, 5]
    slow.acknowledge_cumulative(positions[29])
    await ledger.trim()
    assert [span.entries for span in ledger.ledgers] == [10, 5], "a full ledger that was consumed"
    assert len(world.ledgers.ledgers) == 2
    assert slow.backlog() == 15
    again = await world.open(SMALL)
    assert [span.entries for span in again.ledgers] == [10, 5, 0]
    assert again.cursors["slow"].backlog() == 15
    assert [e.entry_id for e in await read_all(ledger)] == [*range(10), *range(5)]


async def test_mark_passing_a_ledger_trims_by_itself(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 25)
    cursor.acknowledge_cumulative(positions[10])
    await cursor.flushed()
    await asyncio.sleep(0.01)
    assert len(ledger.ledgers) == 2


async def test_everything_trimmed_moves_the_end_up(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 10)
    await asyncio.sleep(0.01)
    assert len(ledger.ledgers) == 2, "the roll is done"
    cursor.acknowledge_cumulative(positions[-1])
    await ledger.trim()
    assert len(ledger.ledgers) == 1
    assert ledger.last_confirmed == Position(ledger.ledgers[0].ledger_id, -1)
    assert cursor.backlog() == 0
    more = await append_all(ledger, 2)
    assert cursor.backlog() == 2
    assert cursor.next_unacknowledged(EARLIEST) == more[0]


@pytest.mark.goal("core.L6", part="trim by retention", broken_by="retention_is_ignored")
async def test_retention_keeps_what_was_acknowledged(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    ledger.retention = Retention(time_ms=-1, size_bytes=-1)
    await append_all(ledger, 45)
    assert await ledger.trim() == 0
    ledger.retention = Retention(time_ms=-1, size_bytes=ledger.size_bytes // 2)
    await ledger.trim()
    assert [span.entries for span in ledger.ledgers] == [10, 10, 5]
    ledger.retention = Retention()
    await ledger.trim()
    assert [span.entries for span in ledger.ledgers] == [5]


@pytest.mark.goal("core.L6", part="trim by retention", broken_by="retention_time_is_forever")
async def test_retention_ends_with_time(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    ledger.retention = Retention(time_ms=60_000, size_bytes=-1)
    await append_all(ledger, 25)
    assert await ledger.trim() == 0
    ledger.retention = Retention(time_ms=1, size_bytes=-1)
    await asyncio.sleep(0.01)
    ledger.tend()
    await eventually(lambda: len(ledger.ledgers) == 1)
    assert [span.entries for span in ledger.ledgers] == [5]


@pytest.mark.goal("core.L6", part="roll by time", broken_by="idle_ledger_stays")
async def test_ledger_that_nobody_writes_to_ends_and_goes(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MANAGED_LEDGERS_TEND_INTERVAL_S", 0.02)
    ledger = await world.open(ManagedLedgerConfig(ledger_age_s_max=0.1))
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    (only,) = ledger.ledgers
    await eventually(lambda: len(ledger.ledgers) > 1)
    await asyncio.sleep(0.25)
    assert [span.entries for span in ledger.ledgers] == [3, 0], "an empty one does not roll"
    cursor.acknowledge_cumulative(positions[-1])
    await eventually(lambda: only.ledger_id not in world.ledgers.ledgers)
    assert [span.entries for span in ledger.ledgers] == [0]
    await ledger.close()
    ledger.tend()


async def test_reader_of_a_trimmed_ledger_goes_on_behind_it(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_entries_max=10, entry_cache_bytes_max=0))
    positions = await append_all(ledger, 25)
    await ledger.trim()
    entries = await ledger.read(positions[3], 10, 1 << 20)
    assert Position(entries[0].ledger_id, entries[0].entry_id) == positions[20]


@pytest.mark.goal("core.L10", part="tail reads do not touch storage", broken_by="nothing_is_cached")
async def test_tail_reads_do_not_touch_storage(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 45)
    assert len(await read_all(ledger)) == 45
    assert world.ledgers.reads == 0
    cached = ledger.read_cached(positions[12], 3, 1 << 20)
    assert cached is not None
    assert [e.entry_id for e in cached] == [2, 3, 4]
    again = await world.open(SMALL)
    assert again.read_cached(positions[12], 3, 1 << 20) is None
    assert len(await read_all(again)) == 45
    assert world.ledgers.reads > 0


async def test_close_finishes_what_is_in_flight(
    world: World, append: Append, append_all: AppendAll
) -> None:
    ledger = await world.open()
    world.ledgers.held = True
    future = append_all(ledger, 3)
    closing = asyncio.ensure_future(ledger.close())
    await asyncio.sleep(0)
    late = append(ledger, b"late")
    await asyncio.sleep(0)
    assert not late.done(), "results come in order"
    world.ledgers.release()
    await closing
    assert len(await future) == 3
    with pytest.raises(AlreadyClosed):
        await late
    with pytest.raises(AlreadyClosed):
        await append(ledger, b"x")
    with pytest.raises(AlreadyClosed):
        await ledger.read(EARLIEST, 1, 1)
    with pytest.raises(AlreadyClosed):
        await ledger.open_cursor("s")
    await ledger.close()
