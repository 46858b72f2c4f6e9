"""An open ledger that is opened by somebody who does not go on with the topic, or who does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import AlreadyClosed, Fenced, StorageError, Terminated
from anabranch.ids import EARLIEST, Position
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig

World = Any
Append = Callable[[ManagedLedger, bytes], "asyncio.Future[Position]"]
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FENCED_PATIENCE_S", 0.01)


async def opened(world: World) -> ManagedLedger:
    ledger: ManagedLedger = await world.open()
    await ledger.open_cursor("keep", initial="earliest")
    return ledger


async def read_all(ledger: ManagedLedger) -> list[bytes]:
    found: list[bytes] = []
    start = EARLIEST
    while batch := await ledger.read(start, 7, 1 << 20):
        found += [bytes(entry.payload) for entry in batch]
        start = Position(batch[-1].ledger_id, batch[-1].entry_id + 1)
    return found


async def take(world: World, ledger: ManagedLedger, *, durable: int = 0) -> None:
    """Open the log's ledger as a repair does, when so many of the appends under way are stored."""
    held = world.ledgers.ledgers[ledger.ledgers[-1].ledger_id]
    stored, held.in_flight = held.in_flight[:durable], held.in_flight[durable:]
    held.durable += [payload for payload, _ in stored]
    failed = held.in_flight
    held.in_flight = []
    await world.ledgers.open(held.ledger_id)
    for _, done in [*stored, *failed]:
        done(-1, Fenced("opened by another"))
    held.idle.set()


@pytest.mark.goal("core.L3", part="taken by a repair", broken_by="a_taken_ledger_ends_the_topic")
async def test_an_idle_log_goes_on_in_a_new_ledger(
    world: World, append: Append, append_all: AppendAll
) -> None:
    ledger = await opened(world)
    failures: list[Exception] = []
    ledger.on_failure = failures.append
    before = await append_all(ledger, 3)
    await take(world, ledger)
    after = await append_all(ledger, 4)
    assert after[0].ledger_id > before[0].ledger_id
    assert [position.entry_id for position in after] == [0, 1, 2, 3]
    assert (failures, ledger.is_usable, ledger.pending_bytes) == ([], True, 0)
    assert world.ledgers.pressure.pending_bytes == 0
    assert [span.entries for span in ledger.ledgers] == [3, 4]
    again = await world.open()
    assert await read_all(again) == [
        *(b"entry-%d" % number for number in range(3)),
        *(b"entry-%d" % number for number in range(4)),
    ]


@pytest.mark.parametrize("durable", [0, 1, 4, 6])
@pytest.mark.goal(
    "core.L3", part="taken by a repair", broken_by="what_a_taken_ledger_has_is_written_again"
)
@pytest.mark.goal(
    "core.L3", part="taken by a repair", broken_by="what_was_under_way_counts_as_stored"
)
async def test_appends_under_way_are_stored_once_wherever_the_ledger_ends(
    world: World, append_all: AppendAll, durable: int
) -> None:
    ledger = await opened(world)
    await append_all(ledger, 3)
    world.ledgers.held = True
    under_way = append_all(ledger, 6)
    await asyncio.sleep(0)
    world.ledgers.held = False
    first = ledger.ledgers[-1].ledger_id
    await take(world, ledger, durable=durable)
    later = append_all(ledger, 2)
    positions = [*await under_way, *await later]
    assert positions == sorted(positions), "answered in order"
    assert [p for p in positions if p.ledger_id == first] == [
        Position(first, 3 + number) for number in range(durable)
    ]
    assert [span.entries for span in ledger.ledgers] == [3 + durable, 8 - durable]
    assert (ledger.pending_bytes, world.ledgers.pressure.pending_bytes) == (0, 0)
    expected = [b"entry-%d" % number for number in (*range(3), *range(6), *range(2))]
    assert await read_all(ledger) == expected
    assert await read_all(await world.open()) == expected


async def test_entries_that_follow_one_refused_at_once_keep_their_order(
    world: World, append_all: AppendAll
) -> None:
    """The writer may refuse a call while entries before it are under way yet."""
    ledger = await opened(world)
    world.ledgers.held = True
    under_way = append_all(ledger, 3)
    await asyncio.sleep(0)
    held = world.ledgers.ledgers[ledger.ledgers[-1].ledger_id]
    held.fenced = True
    later = append_all(ledger, 3)
    await asyncio.sleep(0.05)
    assert not later.done()
    world.ledgers.release()
    positions = [*await under_way, *await later]
    assert positions == sorted(positions)
    assert [position.entry_id for position in positions] == list(range(6))
    assert await read_all(ledger) == [b"entry-%d" % number for number in (0, 1, 2, 0, 1, 2)]


@pytest.mark.goal("core.L4", part="fencing", broken_by="who_lost_its_ledgers_goes_on_for_ever")
async def test_a_log_whose_ledgers_are_taken_again_gives_up(
    world: World, append: Append, append_all: AppendAll
) -> None:
    """Another owner may be slower than this one; it must get the topic all the same."""
    ledger = await opened(world)
    failures: list[Exception] = []
    ledger.on_failure = failures.append
    await append(ledger, b"first")
    await take(world, ledger)
    await append(ledger, b"second")
    await take(world, ledger)
    outcomes = await asyncio.gather(
        *(append(ledger, b"x") for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Fenced] * 3
    await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [Fenced]
    assert await read_all(await world.open()) == [b"first", b"second"]


async def test_another_owner_that_has_begun_wins(world: World, append: Append) -> None:
    old = await opened(world)
    await append(old, b"old")
    gate = world.ledgers.create_gate = asyncio.Event()
    opening = asyncio.ensure_future(world.open())
    await asyncio.sleep(0.01)
    late = append(old, b"late")
    await asyncio.sleep(0)
    world.ledgers.create_gate = None
    gate.set()
    new = await opening
    with pytest.raises(Fenced):
        await late
    await append(new, b"new")
    assert await read_all(await world.open()) == [b"old", b"new"]
    assert not old.is_usable


async def test_of_an_owner_and_its_successor_the_chain_takes_one(
    world: World, append: Append
) -> None:
    """The old one was quicker; the new one, told so, comes again, and has it."""
    old = await opened(world)
    await append(old, b"old")
    gate = world.ledgers.create_gate = asyncio.Event()
    opening = asyncio.ensure_future(world.open())
    await asyncio.sleep(0.01)
    world.ledgers.create_gate = None
    await append(old, b"quick")
    gate.set()
    with pytest.raises(Fenced):
        await opening
    new = await world.open()
    with pytest.raises(Fenced):
        await append(old, b"late")
    await append(new, b"new")
    assert await read_all(await world.open()) == [b"old", b"quick", b"new"]


async def test_a_ledger_that_lost_acknowledged_entries_ends_the_log(
    world: World, append: Append, append_all: AppendAll
) -> None:
    ledger = await opened(world)
    await append_all(ledger, 3)
    world.ledgers.ledgers[ledger.ledgers[-1].ledger_id].durable.pop()
    await take(world, ledger)
    with pytest.raises(StorageError, match="ends at entry 1, but 3 entries were durable"):
        await append(ledger, b"x")
    assert not ledger.is_usable


async def test_a_log_that_is_closed_meanwhile_answers_everybody(
    world: World, append_all: AppendAll
) -> None:
    ledger = await opened(world)
    world.ledgers.held = True
    under_way = [asyncio.ensure_future(append_all(ledger, 1)) for _ in range(3)]
    await asyncio.sleep(0)
    world.ledgers.held = False
    await take(world, ledger, durable=1)
    await ledger.close()
    outcomes = await asyncio.gather(*under_way, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [AlreadyClosed] * 3
    assert (ledger.pending_bytes, world.ledgers.pressure.pending_bytes) == (0, 0)


async def test_a_log_is_terminated_behind_what_a_taken_ledger_has(
    world: World, append_all: AppendAll
) -> None:
    ledger = await opened(world)
    await append_all(ledger, 2)
    world.ledgers.held = True
    under_way = [asyncio.ensure_future(append_all(ledger, 1)) for _ in range(3)]
    ending = asyncio.ensure_future(ledger.terminate())
    await asyncio.sleep(0.01)
    world.ledgers.held = False
    await take(world, ledger, durable=1)
    end = await ending
    assert end.entry_id == 2
    outcomes = await asyncio.gather(*under_way, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [list, Terminated, Terminated]
    assert len(await read_all(await world.open())) == 3


async def test_a_roll_that_finds_its_ledger_taken_goes_on(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(ManagedLedgerConfig(ledger_entries_max=5))
    await ledger.open_cursor("keep", initial="earliest")
    await append_all(ledger, 4)
    held = world.ledgers.ledgers[ledger.ledgers[-1].ledger_id]
    world.ledgers.held = True
    under_way = append_all(ledger, 3)  # the first fills the ledger
    await asyncio.sleep(0)
    world.ledgers.held = False
    held.fenced = True
    held.settle()
    positions = await under_way
    assert [span.entries for span in ledger.ledgers] == [4, 3]
    assert {position.ledger_id for position in positions} == {ledger.ledgers[-1].ledger_id}


async def test_a_cursor_whose_ledger_was_taken_goes_on_in_another(
    world: World, append_all: AppendAll
) -> None:
    ledger = await opened(world)
    positions = await append_all(ledger, 5)
    cursor = ledger.cursors["keep"]
    cursor.acknowledge_batch(positions[1], [0b01])
    await cursor.flushed()
    (taken,) = [key for key in world.ledgers.ledgers if key != positions[0].ledger_id]
    await world.ledgers.open(taken)
    cursor.acknowledge_batch(positions[3], [0b10])
    await cursor.flushed()
    assert ledger.is_usable
    assert taken not in world.ledgers.ledgers, "what nothing names is removed"
    kept = (await world.open()).cursors["keep"]
    assert [kept.pending_bits(position) for position in positions] == [
        None, (0b01,), None, (0b10,), None,
    ]  # fmt: skip
