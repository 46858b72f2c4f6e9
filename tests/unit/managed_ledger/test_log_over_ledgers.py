"""The log of a topic: appending, rolling, reading, trimming, ending."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    ConflictError,
    Fenced,
    NotFound,
    StorageError,
    StoreFailed,
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


async def read_all(ledger: ManagedLedger, start: Position = EARLIEST) -> list[Entry]:
    found: list[Entry] = []
    while batch := await ledger.read(start, 7, 1 << 20):
        found += batch
        start = Position(batch[-1].ledger_id, batch[-1].entry_id + 1)
    return found


async def test_empty_log(world: World) -> None:
    ledger = await world.open()
    first = ledger.first_position()
    assert first.entry_id == 0
    assert ledger.last_confirmed == Position(first.ledger_id, -1)
    assert ledger.read_cached(EARLIEST, 1, 1) == []
    assert await ledger.read(EARLIEST, 1, 1) == []
    assert ledger.entries_between(EARLIEST, ledger.last_confirmed) == 0


async def test_results_come_in_order_and_wake_once_per_turn(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    wakes = 0

    def wake() -> None:
        nonlocal wakes
        wakes += 1

    ledger.on_durable = wake
    positions = await append_all(ledger, 50)
    await asyncio.sleep(0)
    ledger_id = positions[0].ledger_id
    assert positions == [Position(ledger_id, n) for n in range(50)]
    assert ledger.last_confirmed == positions[-1]
    assert ledger.pending_bytes == 0
    assert wakes == 1


async def test_changing_the_buffer_after_append_does_not_change_the_entry(
    world: World, append: Append
) -> None:
    ledger = await world.open()
    buffer = bytearray(b"before")
    future = append(ledger, memoryview(buffer))  # type: ignore[arg-type]
    buffer[:] = b"after!"
    await future
    assert [e.payload for e in await read_all(ledger)] == [b"before"]


@pytest.mark.goal("core.L6", part="roll by entries")
async def test_roll_keeps_order_and_ledgers_within_their_bound(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 95)
    assert positions == sorted(positions)
    sizes = [len(held.durable) for _, held in sorted(world.ledgers.ledgers.items())]
    assert sizes == [10] * 9 + [5]
    entries = await read_all(ledger)
    assert [e.payload for e in entries] == [b"entry-%d" % n for n in range(95)]
    assert [Position(e.ledger_id, e.entry_id) for e in entries] == positions
    assert [span.entries for span in ledger.ledgers] == sizes


@pytest.mark.goal("core.L6", part="roll by size")
async def test_roll_by_bytes(world: World, append: Append) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_bytes_max=1000))
    await ledger.open_cursor("keep", initial="earliest")
    for _ in range(25):
        await append(ledger, bytes(100))
    assert [span.entries for span in ledger.ledgers] == [10, 10, 5]


@pytest.mark.goal("core.L6", part="roll by time")
async def test_roll_by_age_after_a_completed_append(world: World, append: Append) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_age_s_max=0.05))
    await ledger.open_cursor("keep", initial="earliest")
    await append(ledger, b"young")
    await asyncio.sleep(0.06)
    await append(ledger, b"old")
    await append(ledger, b"next")
    assert [span.entries for span in ledger.ledgers] == [2, 1]


async def test_appends_wait_while_a_ledger_is_created(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    gate = world.ledgers.create_gate = asyncio.Event()
    future = append_all(ledger, 25)
    await asyncio.sleep(0.01)
    assert ledger.last_confirmed.entry_id == 9
    assert ledger.pending_bytes == sum(len(b"entry-%d" % n) for n in range(10, 25))
    world.ledgers.create_gate = None
    gate.set()
    positions = await future
    assert positions == sorted(positions)
    assert ledger.pending_bytes == 0


async def test_too_many_waiting_bytes_end_the_log_in_order(
    world: World, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "APPENDS_WAITING_BYTES_MAX", 100)
    ledger = await world.open(SMALL)
    world.ledgers.create_gate = asyncio.Event()
    failures: list[Exception] = []
    ledger.on_failure = failures.append
    results = [append(ledger, bytes(30)) for _ in range(16)]
    outcomes = await asyncio.gather(*results, return_exceptions=True)
    assert [type(o) for o in outcomes] == [Position] * 10 + [StorageError] * 6
    assert len(failures) == 1
    assert ledger.pending_bytes == 0
    world.ledgers.create_gate.set()


async def test_failed_append_fails_all_later_ones_in_order(
    world: World, append: Append, append_all: AppendAll
) -> None:
    ledger = await world.open()
    failures: list[Exception] = []
    ledger.on_failure = failures.append
    await append_all(ledger, 3)
    world.ledgers.appends_fail = True
    order: list[int] = []
    for n in range(5):
        ledger.append(b"x", lambda _position, _error, n=n: order.append(n))
    with pytest.raises(StoreFailed):
        await append(ledger, b"y")
    assert order == [0, 1, 2, 3, 4]
    world.ledgers.appends_fail = False
    with pytest.raises(StoreFailed):
        await append(ledger, b"z")
    assert len(failures) == 1
    assert not ledger.is_usable
    assert ledger.pending_bytes == 0


async def test_failed_log_is_opened_anew_with_what_was_durable(
    world: World, append: Append, append_all: AppendAll
) -> None:
    broker = world.broker()
    ledger = await broker.open(NAME)
    await append_all(ledger, 3)
    world.ledgers.appends_fail = True
    with pytest.raises(StoreFailed):
        await append(ledger, b"lost")
    world.ledgers.appends_fail = False
    again = await broker.open(NAME)
    assert again is not ledger
    await append(again, b"after")
    assert [e.payload for e in await read_all(again)] == [
        b"entry-0",
        b"entry-1",
        b"entry-2",
        b"after",
    ]


async def test_failed_roll_fails_what_waits(world: World, append: Append) -> None:
    ledger = await world.open(SMALL)
    world.ledgers.creates_fail = True
    outcomes = await asyncio.gather(
        *(append(ledger, b"x") for _ in range(12)), return_exceptions=True
    )
    assert [type(o) for o in outcomes] == [Position] * 10 + [StoreFailed] * 2


# --- owners -------------------------------------------------------------------------------------


@pytest.mark.goal("core.L6", part="offset-free reopen after crash")
async def test_new_owner_finds_everything_acknowledged(world: World, append_all: AppendAll) -> None:
    first = await world.open(SMALL)
    await first.open_cursor("keep", initial="earliest")
    positions = await append_all(first, 25)
    second = await world.open(SMALL)
    assert second.last_confirmed == positions[-1]
    assert [e.payload for e in await read_all(second)] == [b"entry-%d" % n for n in range(25)]
    assert second.entries_between(EARLIEST, second.last_confirmed) == 25
    more = await append_all(second, 1)
    assert more[0] > positions[-1]


async def test_old_owner_is_fenced_by_a_new_one(world: World, append: Append) -> None:
    old = await world.open()
    await append(old, b"old")
    new = await world.open()
    with pytest.raises(Fenced):
        await append(old, b"too late")
    with pytest.raises(Fenced):
        await append(old, b"and later")
    await append(new, b"new")
    assert [e.payload for e in await read_all(new)] == [b"old", b"new"]


async def test_old_owner_cannot_change_the_chain(world: World, append: Append) -> None:
    old = await world.open()
    await append(old, b"old")
    await world.open()
    with pytest.raises(Fenced):
        await old.set_properties({"a": "b"})
    with pytest.raises(Fenced):
        await append(old, b"too late")


async def test_of_two_takers_at_once_one_stays(world: World, append: Append) -> None:
    gate = world.ledgers.create_gate = asyncio.Event()
    both = asyncio.gather(world.open(), world.open(), return_exceptions=True)
    await asyncio.sleep(0.01)
    gate.set()
    outcomes = await both
    winners = [o for o in outcomes if isinstance(o, ManagedLedger)]
    assert len(winners) == 1
    assert sum(isinstance(o, Fenced) for o in outcomes) == 1
    assert len(world.ledgers.ledgers) == 1, "the loser's ledger is removed"
    await append(winners[0], b"x")


async def test_orphan_of_a_crash_is_harmless_and_its_id_is_not_used_again(
    world: World, append: Append
) -> None:
    ledger = await world.open()
    position = await append(ledger, b"x")
    orphan = await world.broker().ids.next()
    await world.ledgers.create(orphan)
    again = await world.open()
    assert [e.payload for e in await read_all(again)] == [b"x"]
    assert [s.ledger_id for s in again.ledgers] == [position.ledger_id, again.ledgers[-1].ledger_id]
    assert again.ledgers[-1].ledger_id > orphan


async def test_empty_ledgers_of_reopening_are_removed(world: World, append: Append) -> None:
    ledger = await world.open()
    await append(ledger, b"x")
    for _ in range(5):
        ledger = await world.open()
    assert [span.entries for span in ledger.ledgers] == [1, 0]
    assert len(world.ledgers.ledgers) == 2


@pytest.mark.goal("core.L13", part="refuses an id that is not above its chain")
async def test_ledger_id_below_the_chain_is_refused(world: World, append: Append) -> None:
    broker = world.broker()
    ledger = await broker.open(NAME)
    await append(ledger, b"x")
    await ledger.close()
    await world.metadata.put(
        "/anabranch/ledger-ids", b'{"format": "anabranch.ledger-ids", "version": 1, "next": 0}'
    )
    before = await world.metadata.get(f"/managed-ledgers/{NAME}")
    with pytest.raises(ConflictError, match="is not above"):
        await world.open()
    assert await world.metadata.get(f"/managed-ledgers/{NAME}") == before


async def test_opening_twice_gives_the_same_object(world: World) -> None:
    broker = world.broker()
    one, other = await asyncio.gather(broker.open(NAME), broker.open(NAME))
    assert one is other
    await one.close()
    assert await broker.open(NAME) is not one


async def test_chain_naming_a_lost_ledger_is_refused(world: World, append: Append) -> None:
    ledger = await world.open()
    position = await append(ledger, b"x")
    await ledger.close()
    await world.ledgers.delete(position.ledger_id)
    with pytest.raises(StorageError, match=f"ledger {position.ledger_id} of managed ledger"):
        await world.open()


# --- the rest of its life -------------------------------------------------------------------------


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


@pytest.mark.goal("core.L6", part="properties")
async def test_properties_are_kept(world: World) -> None:
    ledger = await world.open()
    await ledger.set_properties({"a": "1", "b": "2"})
    await ledger.set_properties({"a": None, "c": "3"})
    assert ledger.properties == {"b": "2", "c": "3"}
    assert (await world.open()).properties == {"b": "2", "c": "3"}


@pytest.mark.goal("core.L6", part="terminate")
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


async def test_terminated_while_empty(world: World) -> None:
    ledger = await world.open()
    position = await ledger.terminate()
    assert position.entry_id == -1
    again = await world.open()
    assert again.terminated == position
    assert await again.read(EARLIEST, 1, 1) == []


@pytest.mark.goal("core.L6", part="trim by cursors")
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


@pytest.mark.goal("core.L6", part="trim by retention")
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


async def test_reader_of_a_trimmed_ledger_goes_on_behind_it(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_entries_max=10, entry_cache_bytes_max=0))
    positions = await append_all(ledger, 25)
    await ledger.trim()
    entries = await ledger.read(positions[3], 10, 1 << 20)
    assert Position(entries[0].ledger_id, entries[0].entry_id) == positions[20]


@pytest.mark.goal("core.L10", part="tail reads do not touch storage")
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
    world.ledgers.release()
    await closing
    assert len(await future) == 3
    with pytest.raises(AlreadyClosed):
        await append(ledger, b"x")
    with pytest.raises(AlreadyClosed):
        await ledger.read(EARLIEST, 1, 1)
    with pytest.raises(AlreadyClosed):
        await ledger.open_cursor("s")
    await ledger.close()
