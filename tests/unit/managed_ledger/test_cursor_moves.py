"""Cursors that are moved by hand, never by accident; what is left of a damaged cursor ledger."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    Corruption,
    EntryLost,
    Fenced,
    FormatError,
    InputError,
    Unreachable,
)
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry, LedgerReader
from anabranch.managed_ledger import Cursor, ManagedLedger, ManagedLedgerConfig

SMALL = ManagedLedgerConfig(ledger_entries_max=10)
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


def pending(cursor: Cursor, positions: list[Position]) -> list[int]:
    return [n for n, position in enumerate(positions) if not cursor.is_acknowledged(position)]


@pytest.mark.goal("core.L7", part="skip and clear", broken_by="skip_counts_acknowledged_entries")
async def test_skip_passes_over_pending_entries_only(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 35)
    cursor.acknowledge([positions[n] for n in (1, 2, 9, 10, 11, 34)])
    assert cursor.skip(2) == 2
    assert cursor.mark_delete == positions[3]
    assert cursor.skip(5) == 5
    assert cursor.mark_delete == positions[11], "8, and then what was acknowledged"
    assert pending(cursor, positions) == list(range(12, 34))
    assert cursor.skip(1) == 1
    assert cursor.skip(1000) == 21
    assert cursor.mark_delete == positions[-1]
    assert cursor.skip(1) == 0
    for count in (0, -1):
        with pytest.raises(InputError, match=f"skip {count} entries"):
            cursor.skip(count)
    await cursor.flushed()
    assert (await world.open(SMALL)).cursors["s"].backlog() == 0


@pytest.mark.goal("core.L7", part="skip and clear", broken_by="clear_stops_at_the_last_ack")
async def test_clear_passes_over_everything(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    assert cursor.clear() == 0
    positions = await append_all(ledger, 25)
    cursor.acknowledge([positions[3], positions[20]])
    cursor.acknowledge_batch(positions[5], [0b10])
    assert cursor.clear() == 23
    assert (cursor.mark_delete, cursor.backlog()) == (positions[-1], 0)
    assert cursor.pending_bits(positions[5]) is None
    more = await append_all(ledger, 1)
    assert cursor.next_unacknowledged(EARLIEST) == more[0]
    await cursor.flushed()
    assert (await world.open(SMALL)).cursors["s"].next_unacknowledged(EARLIEST) == more[0]


@pytest.mark.goal("core.L7", part="reset", broken_by="reset_keeps_what_was_acknowledged")
async def test_reset_is_durable_and_forgets_what_was_above(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 25)
    cursor.acknowledge_cumulative(positions[12])
    cursor.acknowledge([positions[20]])
    await cursor.flushed()
    await cursor.move(positions[10], [0b110])
    again = (await world.open(SMALL)).cursors["s"]
    for found in (cursor, again):
        assert pending(found, positions) == list(range(10, 25))
        assert found.pending_bits(positions[10]) == (0b110,)


@pytest.mark.goal(
    "core.L7", part="position never goes back", broken_by="old_cumulative_ack_moves_the_mark_back"
)
async def test_mark_never_goes_back_by_itself(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 35)
    cursor.acknowledge_cumulative(positions[20])
    for late in (positions[3], positions[19], positions[20]):
        cursor.acknowledge_cumulative(late)
        cursor.acknowledge_cumulative(late, [0b1])
        cursor.acknowledge([late])
        cursor.acknowledge_batch(late, [0b1])
        assert cursor.mark_delete == positions[20]
    await cursor.flushed()
    second = await world.open(SMALL)
    moved = second.cursors["s"]
    assert moved.mark_delete == positions[20]
    moved.acknowledge_cumulative(positions[30])
    await moved.flushed()
    # The owner before knows an older place; it must not be what a third one finds.
    cursor.acknowledge_cumulative(positions[25])
    with pytest.raises(Fenced):
        await cursor.flushed()
    third = (await world.open(SMALL)).cursors["s"]
    assert third.mark_delete == positions[30]
    assert third.backlog() == 4


@pytest.fixture
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 100)


DAMAGED = Corruption("a.journal", 100, "checksum")


async def damaged_cursor(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    damaged: int,
    error: AnabranchError = DAMAGED,
) -> list[Position]:
    """Three writes to a cursor ledger, of which the last `damaged` cannot be read."""
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest", properties={"p": 7})
    positions = await append_all(ledger, 60)
    for upper in (20, 40, 60):
        cursor.acknowledge(positions[1:upper:2])
        await cursor.flushed()
    (held,) = (x for x in world.ledgers.ledgers.values() if "pulsar/cursor" in x.custom_metadata)
    assert len(held.durable) == 3
    real = held.read

    async def read(first: int, last: int, *, max_bytes: int) -> list[Entry]:
        if first >= 3 - damaged:
            raise error
        found: list[Entry] = await real(first, last, max_bytes=max_bytes)
        return found

    monkeypatch.setattr(held, "read", read)
    return positions


@pytest.mark.goal(
    "core.L7", part="damaged cursor ledger", broken_by="damaged_cursor_ledger_is_given_up"
)
@pytest.mark.parametrize(("damaged", "acked"), [(1, 40), (2, 20)])
@pytest.mark.usefixtures("small_nodes")
async def test_damaged_last_entry_falls_back_to_the_one_before(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    damaged: int,
    acked: int,
) -> None:
    positions = await damaged_cursor(world, append_all, monkeypatch, damaged)
    cursor = (await world.open()).cursors["s"]
    assert [n for n in range(60) if n not in pending(cursor, positions)] == [*range(1, acked, 2)]
    assert cursor.properties == {"p": 7}
    cursor.acknowledge(positions[1::2])
    await cursor.flushed()
    again = (await world.open()).cursors["s"]
    assert pending(again, positions) == [*range(0, 60, 2)], "it goes on in another ledger"


@pytest.mark.parametrize("error", [DAMAGED, EntryLost("entry 2 is on no bookie")])
@pytest.mark.usefixtures("small_nodes")
async def test_wholly_damaged_cursor_ledger_falls_back_to_the_node(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    error: AnabranchError,
) -> None:
    positions = await damaged_cursor(world, append_all, monkeypatch, 3, error)
    cursor = (await world.open()).cursors["s"]
    assert pending(cursor, positions) == [*range(60)], "everything again, nothing lost"


@pytest.mark.usefixtures("small_nodes")
async def test_cursor_ledger_without_an_end_falls_back_to_the_node(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions = await damaged_cursor(world, append_all, monkeypatch, 0)
    (held,) = (x for x in world.ledgers.ledgers.values() if "pulsar/cursor" in x.custom_metadata)
    real = world.ledgers.open

    async def open_but(ledger_id: int) -> LedgerReader:
        if ledger_id == held.ledger_id:
            raise EntryLost("its last entry is on no bookie")
        reader: LedgerReader = await real(ledger_id)
        return reader

    monkeypatch.setattr(world.ledgers, "open", open_but)
    cursor = (await world.open()).cursors["s"]
    assert pending(cursor, positions) == [*range(60)], "everything again, nothing lost"


@pytest.mark.usefixtures("small_nodes")
async def test_cursor_ledger_that_cannot_be_asked_for_now_is_waited_for(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        positions = await damaged_cursor(world, append_all, away, 3, Unreachable("no bookie"))
        with pytest.raises(Unreachable):
            await world.open()
    cursor = (await world.open()).cursors["s"]
    assert pending(cursor, positions) == [*range(0, 60, 2)], "nothing was given up"


@pytest.mark.usefixtures("small_nodes")
async def test_entry_of_an_unknown_form_is_refused_and_kept(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    await damaged_cursor(world, append_all, monkeypatch, 0)
    (held,) = (x for x in world.ledgers.ledgers.values() if "pulsar/cursor" in x.custom_metadata)
    held.durable[-1] = b"\x47\x78\x00\x00\x00\x04"
    with pytest.raises(FormatError, match="position of cursor s is not a PositionInfo"):
        await world.open()
    assert held.ledger_id in world.ledgers.ledgers
