"""Cursors on a log: where they begin, what is durable when, who may write them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    Fenced,
    InputError,
    InvalidName,
    NotFound,
    OutcomeUnknown,
    SessionExpired,
    StorageError,
    Unreachable,
)
from anabranch.ids import EARLIEST, Position, encode_segment
from anabranch.managed_ledger import Cursor, ManagedLedger, ManagedLedgerConfig
from anabranch.managed_ledger.formats import decode_cursor
from anabranch.metadata.store import Stat

NAME = "t/ns/persistent/topic"
SMALL = ManagedLedgerConfig(ledger_entries_max=10)
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


def pending(cursor: Cursor, positions: list[Position]) -> list[int]:
    return [n for n, position in enumerate(positions) if not cursor.is_acknowledged(position)]


async def test_where_a_cursor_begins(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 25)
    latest = await ledger.open_cursor("latest")
    earliest = await ledger.open_cursor("earliest", initial="earliest")
    middle = await ledger.open_cursor("middle", initial=positions[10])
    assert (latest.backlog(), earliest.backlog(), middle.backlog()) == (0, 25, 15)
    assert middle.next_unacknowledged(EARLIEST) == positions[10]
    more = await append_all(ledger, 1)
    assert latest.next_unacknowledged(EARLIEST) == more[0]


@pytest.mark.goal(
    "core.L7", part="read back equal from the node", broken_by="ranges_in_the_node_are_dropped"
)
async def test_new_owner_reads_back_acknowledgements_from_the_node(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor(
        "s", initial="earliest", properties={"p": -5}, cursor_properties={"k": "v"}
    )
    positions = await append_all(ledger, 35)
    cursor.acknowledge_cumulative(positions[3])
    cursor.acknowledge([positions[n] for n in (5, 6, 9, 10, 11, 30)])
    await cursor.flushed()
    node = await world.metadata.get(f"/managed-ledgers/{NAME}/s")
    document = decode_cursor(node.value, "s")
    assert document.cursor_ledger_id == -1
    # Each without its lower end; within one ledger, of which there are ten entries in each.
    assert [(lower.entry_id, upper.entry_id) for lower, upper in document.ranges] == [
        *[(4, 6), (8, 9)],
        (-1, 1),
        (-1, 0),
    ]
    assert (document.mark_delete, document.batches) == (positions[3], ())
    again = (await world.open(SMALL)).cursors["s"]
    assert again.mark_delete == positions[3]
    acknowledged = (*range(4), 5, 6, 9, 10, 11, 30)
    assert pending(again, positions) == [n for n in range(35) if n not in acknowledged]
    assert again.backlog() == 25
    assert (again.properties, again.cursor_properties) == ({"p": -5}, {"k": "v"})


@pytest.mark.goal(
    "core.L7", part="read back equal from a ledger", broken_by="batch_acks_are_not_stored"
)
async def test_new_owner_reads_back_every_kind_of_acknowledgement_from_a_ledger(
    world: World, append_all: AppendAll
) -> None:
    """Pulsar looks for parts of batches nowhere else."""
    ledger = await world.open(SMALL)
    name = "a / b?*ü"
    cursor = await ledger.open_cursor(
        name, initial="earliest", properties={"p": -5}, cursor_properties={"k": "v"}
    )
    positions = await append_all(ledger, 35)
    cursor.acknowledge_cumulative(positions[3])
    cursor.acknowledge([positions[n] for n in (5, 6, 9, 10, 11, 30)])
    assert not cursor.acknowledge_batch(positions[7], [0b1010])
    assert not cursor.acknowledge_batch(positions[20], [-1, 1 << 62])
    await cursor.flushed()
    node = await world.metadata.get(f"/managed-ledgers/{NAME}/{encode_segment(name)}")
    assert decode_cursor(node.value, name).cursor_ledger_id > positions[0].ledger_id
    again = (await world.open(SMALL)).cursors[name]
    assert again.mark_delete == cursor.mark_delete == positions[3]
    assert pending(again, positions) == pending(cursor, positions)
    assert again.pending_bits(positions[7]) == (0b1010,)
    assert again.pending_bits(positions[20]) == (-1, 1 << 62)
    assert again.pending_bits(positions[8]) is None
    assert again.backlog() == cursor.backlog() == 25
    assert (again.properties, again.cursor_properties) == ({"p": -5}, {"k": "v"})


async def test_batch_is_acknowledged_bit_by_bit(world: World, append_all: AppendAll) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    assert not cursor.acknowledge_batch(positions[0], [0b110])
    assert not cursor.acknowledge_batch(positions[0], [0b011])
    assert cursor.pending_bits(positions[0]) == (0b010,)
    assert cursor.acknowledge_batch(positions[0], [0b101])
    assert cursor.mark_delete == positions[0]
    assert cursor.acknowledge_batch(positions[0], [0b1]), "it stays acknowledged"
    cursor.acknowledge_cumulative(positions[2], [0b100])
    assert cursor.mark_delete == positions[1]
    assert cursor.pending_bits(positions[2]) == (0b100,)
    cursor.acknowledge_cumulative(positions[2], [])
    assert cursor.mark_delete == positions[2]


async def test_bad_acknowledgements_change_nothing(world: World, append_all: AppendAll) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    end = positions[-1]
    cursor.acknowledge([Position(end.ledger_id, 3), Position(99, 0), Position(-1, -1)])
    assert not cursor.acknowledge_batch(Position(end.ledger_id, 3), [1])
    with pytest.raises(InputError, match="cannot acknowledge up to"):
        cursor.acknowledge_cumulative(Position(end.ledger_id, 3))
    with pytest.raises(InputError, match="words"):
        cursor.acknowledge_batch(end, [1] * (limits.ACK_SET_WORDS_MAX + 1))
    with pytest.raises(InputError, match="properties"):
        cursor.set_properties({"x" * limits.CURSOR_PROPERTIES_BYTES_MAX: 1})
    with pytest.raises(InvalidName):
        await ledger.open_cursor("")
    assert cursor.backlog() == 3
    cursor.acknowledge_cumulative(positions[1])
    cursor.acknowledge_cumulative(positions[0])
    assert cursor.mark_delete == positions[1], "the mark never goes back by acknowledging"


async def test_reset_goes_anywhere(world: World, append_all: AppendAll) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 25)
    cursor.acknowledge_cumulative(positions[12])
    cursor.acknowledge([positions[20]])
    cursor.reset(positions[10])
    assert cursor.mark_delete == positions[9]
    assert cursor.backlog() == 15
    await cursor.flushed()
    assert (await world.open(SMALL)).cursors["s"].mark_delete == positions[9]
    cursor.reset(EARLIEST)
    assert cursor.backlog() == 25
    cursor.reset(Position(1 << 40, 0))
    assert cursor.mark_delete == positions[-1]


async def test_reset_holds_ledgers_back_before_it_is_durable(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    ledger.retention = type(ledger.retention)(-1, -1)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 25)
    cursor.acknowledge_cumulative(positions[-1])
    await cursor.flushed()
    ledger.retention = type(ledger.retention)()
    writes = world.metadata.put

    async def slow_put(path: str, *rest: Any, **guarded: Any) -> Stat:
        if path.endswith("/s"):
            await asyncio.sleep(0.02)
        return await writes(path, *rest, **guarded)

    world.metadata.put = slow_put
    cursor.reset(positions[12])
    await ledger.open_cursor("other")
    await ledger.delete_cursor("other")
    await asyncio.sleep(0.01)
    assert ledger.first_position() == positions[10], "its ledger is still there"
    world.metadata.put = writes
    await cursor.flushed()
    assert cursor.backlog() == 13


class CountedWrites:
    """Counts and delays the writes below one path of a metadata store."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        real = world.metadata.put

        async def put(path: str, value: bytes, *expected: Any, **guarded: Any) -> Stat:
            if path.startswith(f"/managed-ledgers/{NAME}/"):
                self.count += 1
                await self.gate.wait()
                if self.error is not None:
                    raise self.error
            return await real(path, value, *expected, **guarded)

        monkeypatch.setattr(world.metadata, "put", put)


async def test_flushes_share_writes(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 30)
    writes = CountedWrites(world, monkeypatch)
    writes.gate.clear()
    done: list[int] = []
    for n, position in enumerate(positions):
        cursor.acknowledge([position])
        cursor.flush(lambda error, n=n: done.append(n))  # type: ignore[misc]
        await asyncio.sleep(0)
    assert done == []
    writes.gate.set()
    await cursor.flushed()
    assert done == list(range(30))
    assert writes.count == 2
    await cursor.flushed()
    assert writes.count == 2, "nothing new, nothing written"


async def test_acknowledgement_without_flush_is_durable_in_time(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    cursor.acknowledge(positions[:2])
    assert cursor.durable_mark_delete < positions[0]
    await asyncio.sleep(limits.CURSOR_FLUSH_INTERVAL_S)
    assert cursor.durable_mark_delete == positions[1]


async def test_close_stores_acknowledgements(world: World, append_all: AppendAll) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    cursor.acknowledge([positions[0], positions[2]])
    await ledger.close()
    again = (await world.open()).cursors["s"]
    assert pending(again, positions) == [1]
    with pytest.raises(AlreadyClosed):
        await cursor.flushed()


async def test_failed_write_is_reported_and_tried_again(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    writes = CountedWrites(world, monkeypatch)
    writes.error = StorageError("the store is away")
    cursor.acknowledge(positions[:1])
    with pytest.raises(StorageError, match="away"):
        await cursor.flushed()
    writes.error = None
    await cursor.flushed()
    assert cursor.durable_mark_delete == positions[0]
    assert ledger.is_usable


async def test_unknown_outcome_ends_the_owner(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker()
    ledger = await broker.open(NAME)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    writes = CountedWrites(world, monkeypatch)
    writes.error = OutcomeUnknown("no answer")
    cursor.acknowledge(positions[:1])
    with pytest.raises(OutcomeUnknown):
        await cursor.flushed()
    assert not ledger.is_usable
    writes.error = None
    assert (await broker.open(NAME)).cursors["s"].mark_delete < positions[0]


# --- owners -------------------------------------------------------------------------------------


async def test_old_owner_cannot_write_a_cursor_and_does_not_disturb_the_new_one(
    world: World, append_all: AppendAll
) -> None:
    old = await world.open()
    old_cursor = await old.open_cursor("s", initial="earliest")
    positions = await append_all(old, 5)
    old_cursor.acknowledge(positions[:1])
    await old_cursor.flushed()
    new_cursor = (await world.open()).cursors["s"]
    assert new_cursor.mark_delete == positions[0]
    old_cursor.acknowledge(positions[1:3])
    with pytest.raises(Fenced):
        await old_cursor.flushed()
    assert isinstance(old.error, Fenced)
    new_cursor.acknowledge([positions[4]])
    await new_cursor.flushed()
    assert pending(new_cursor, positions) == [1, 2, 3]


async def test_old_owner_cannot_create_or_delete_a_cursor(
    world: World, append_all: AppendAll
) -> None:
    old = await world.open()
    await old.open_cursor("there", initial="earliest")
    positions = await append_all(old, 5)
    new = await world.open()
    with pytest.raises(Fenced):
        await old.delete_cursor("there")
    with pytest.raises(Fenced):
        await old.open_cursor("late", initial="earliest")
    assert "late" not in new.cursors
    adopted = await new.open_cursor("late")
    adopted.acknowledge(positions[:1])
    await adopted.flushed()
    assert new.is_usable


async def test_delete_cursor_is_durable_and_frees_ledgers(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 25)
    cursor.acknowledge(positions[:1])
    cursor.flush(lambda _error: None)
    await asyncio.sleep(0)
    await ledger.delete_cursor("s")
    assert ledger.cursors == {}
    with pytest.raises(NotFound):
        await ledger.delete_cursor("s")
    with pytest.raises(AlreadyClosed):
        await cursor.flushed()
    await asyncio.sleep(0.01)
    assert len(ledger.ledgers) == 1
    assert (await world.open(SMALL)).cursors == {}


@pytest.mark.parametrize("why", [StorageError, Unreachable, SessionExpired])
async def test_cursor_that_could_not_be_deleted_goes_on(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    why: type[AnabranchError],
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    cursor.acknowledge(positions[:1])

    async def delete(path: str, expected: Any) -> None:
        raise why("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.metadata, "delete", delete)
        with pytest.raises(why, match="away"):
            await ledger.delete_cursor("s")
    assert await ledger.open_cursor("s") is cursor
    await cursor.flushed()
    assert (await world.open()).cursors["s"].mark_delete == positions[0]


async def test_transient_cursor_is_not_stored_and_holds_nothing_back(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    ledger.retention = type(ledger.retention)(-1, -1)
    positions = await append_all(ledger, 25)
    reader = ledger.transient_cursor("r", initial="earliest")
    reader.acknowledge([positions[3]])
    await reader.flushed()
    assert reader.backlog() == 24
    ledger.retention = type(ledger.retention)()
    await ledger.trim()
    assert reader.next_unacknowledged(EARLIEST) == positions[20]
    assert reader.backlog() == 5
    ledger.release_cursor(reader)
    ledger.release_cursor(reader)
    assert (await world.open(SMALL)).cursors == {}
