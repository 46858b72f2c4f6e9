"""The log of a topic: appending, rolling, failing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    InputError,
    StoreBusy,
    StoreFailed,
)
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig

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


async def test_entry_that_is_too_large_changes_nothing(world: World, append: Append) -> None:
    ledger = await world.open()
    with pytest.raises(InputError, match="too large"):
        append(ledger, bytes(limits.ENTRY_BYTES_MAX + 1))
    assert ledger.pending_bytes == 0
    assert (await append(ledger, b"x")).entry_id == 0


@pytest.mark.goal("core.L6", part="roll by entries", broken_by="roll_one_entry_late")
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


@pytest.mark.goal("core.L6", part="roll by size", broken_by="roll_ignores_bytes")
async def test_roll_by_bytes(world: World, append: Append) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_bytes_max=1000))
    await ledger.open_cursor("keep", initial="earliest")
    for _ in range(25):
        await append(ledger, bytes(100))
    assert [span.entries for span in ledger.ledgers] == [10, 10, 5]


@pytest.mark.goal("core.L6", part="roll by time", broken_by="roll_ignores_age")
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


async def test_appends_that_wait_for_a_ledger_press_on_the_store(
    world: World, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_HIGH", 400)
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_LOW", 100)
    pressure = world.ledgers.pressure
    ledger = await world.open(SMALL)
    gate = world.ledgers.create_gate = asyncio.Event()
    results = [append(ledger, bytes(100)) for _ in range(15)]
    await asyncio.sleep(0.01)
    waiting = pressure.pending_bytes, pressure.is_high
    told: list[bool] = []
    pressure.when_low(lambda: told.append(True))
    pressure.settle(0)
    told_too_early = list(told)
    world.ledgers.create_gate = None
    gate.set()
    positions = await asyncio.gather(*results)
    assert (waiting, told_too_early) == ((500, True), [])
    assert positions == sorted(positions)
    assert (pressure.pending_bytes, told) == (0, [True])


async def test_who_is_told_of_low_pressure_may_append_behind_those_who_waited(
    world: World, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.journal.pressure.STORE_PENDING_BYTES_LOW", 250)
    ledger = await world.open(SMALL)
    gate = world.ledgers.create_gate = asyncio.Event()
    results = [append(ledger, bytes(100)) for _ in range(15)]
    await asyncio.sleep(0.01)
    late: list[asyncio.Future[Position]] = []
    world.ledgers.pressure.when_low(lambda: late.append(append(ledger, b"late")))
    world.ledgers.create_gate = None
    gate.set()
    positions = await asyncio.gather(*results)
    assert await late[0] > positions[-1]


async def test_waiting_bytes_count_towards_what_all_logs_may_have(
    world: World, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STORE_PENDING_BYTES_MAX", 1000)
    ledger = await world.open(SMALL)
    gate = world.ledgers.create_gate = asyncio.Event()
    await asyncio.gather(*(append(ledger, bytes(10)) for _ in range(10)))
    world.ledgers.pressure.pending_bytes += 950
    asyncio.get_running_loop().call_later(1, gate.set)  # whoever is not refused gets through
    outcomes = await asyncio.gather(
        *(append(ledger, bytes(30)) for _ in range(4)), return_exceptions=True
    )
    gate.set()
    assert [type(outcome) for outcome in outcomes] == [StoreBusy] * 4
    assert world.ledgers.pressure.pending_bytes == 950


async def test_a_failed_store_forgets_only_what_it_had_itself(world: World, append: Append) -> None:
    ledger = await world.open(SMALL)
    gate = world.ledgers.create_gate = asyncio.Event()
    results = [append(ledger, bytes(100)) for _ in range(15)]
    await asyncio.sleep(0.01)
    world.ledgers.creates_fail = True
    world.ledgers.pressure.clear()
    gate.set()
    outcomes = await asyncio.gather(*results, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Position] * 10 + [StoreFailed] * 5
    assert world.ledgers.pressure.pending_bytes == 0


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
    assert [type(o) for o in outcomes] == [Position] * 10 + [StoreBusy] * 6
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


async def test_an_entry_that_is_too_large_for_the_store_alone_is_refused(
    world: World, append: Append
) -> None:
    ledger = await world.open()
    world.ledgers.entry_bytes_max = 100
    first = await append(ledger, b"x" * 100)
    with pytest.raises(InputError, match="101 bytes is too large"):
        append(ledger, b"x" * 101)
    assert (ledger.is_usable, ledger.pending_bytes) == (True, 0)
    after = await append(ledger, b"y")
    assert after == Position(first.ledger_id, 1), "nothing was changed"
