"""Cursors on a log: where they begin, what is durable when, who may write them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AlreadyClosed,
    Fenced,
    FormatError,
    InputError,
    InvalidName,
    NotFound,
    OutcomeUnknown,
    StorageError,
)
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import EARLIEST, Position, encode_segment
from anabranch.managed_ledger import Cursor, ManagedLedger, ManagedLedgerConfig
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


@pytest.mark.goal("core.L7", part="persisted in metadata, read back equal")
async def test_new_owner_reads_back_every_kind_of_acknowledgement(
    world: World, append_all: AppendAll
) -> None:
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
    assert await world.metadata.get(f"/managed-ledgers/{NAME}/{encode_segment(name)}")
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


class CountedWrites:
    """Counts and delays the writes below one path of a metadata store."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        real = world.metadata.put

        async def put(path: str, value: bytes, *expected: Any) -> Stat:
            if path.startswith(f"/managed-ledgers/{NAME}/"):
                self.count += 1
                await self.gate.wait()
                if self.error is not None:
                    raise self.error
            return await real(path, value, *expected)

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
    reader.forget_trimmed()
    assert reader.backlog() == 5
    assert (await world.open(SMALL)).cursors == {}


# --- foreign and damaged nodes --------------------------------------------------------------------


async def store_cursor_ledger(world: World, ledger_id: int, *positions: pb.PositionInfo) -> None:
    writer = await world.ledgers.create(ledger_id)
    for position in positions:
        writer.append(position.SerializeToString(), lambda _entry_id, _error: None)
    await writer.close()


async def test_position_in_a_cursor_ledger_is_read_and_moved_into_the_node(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open(SMALL)
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 25)
    first_id, second_id = positions[0].ledger_id, positions[10].ledger_id
    old = pb.PositionInfo(ledgerId=first_id, entryId=0)
    new = pb.PositionInfo(ledgerId=first_id, entryId=2)
    joined = new.individualDeletedMessages.add()
    joined.lowerEndpoint.ledgerId, joined.lowerEndpoint.entryId = first_id, 7
    joined.upperEndpoint.ledgerId, joined.upperEndpoint.entryId = second_id, 1
    new.individualDeletedMessageRanges.add(key=second_id, values=[0b110000])
    batch = new.batchedEntryDeletionIndexInfo.add(deleteSet=[6])
    batch.position.ledgerId, batch.position.entryId = first_id, 4
    new.properties.add(name="p", value=3)
    await store_cursor_ledger(world, 500, old, new)
    info = pb.ManagedCursorInfo(cursorsLedgerId=500, markDeleteLedgerId=1, markDeleteEntryId=-1)
    info.cursorProperties.add(name="k", value="v")
    path = f"/managed-ledgers/{NAME}/s"
    await world.metadata.put(path, info.SerializeToString())
    cursor = (await world.open(SMALL)).cursors["s"]
    assert pending(cursor, positions) == [3, 4, 5, 6, 7, 12, 13, *range(16, 25)]
    assert cursor.pending_bits(positions[4]) == (6,)
    assert (cursor.properties, cursor.cursor_properties) == ({"p": 3}, {"k": "v"})
    assert 500 not in world.ledgers.ledgers
    node = await world.metadata.get(path)
    assert pb.ManagedCursorInfo.FromString(node.value).cursorsLedgerId == -1


async def test_lost_cursor_ledger_falls_back_to_the_node(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    positions = await append_all(ledger, 5)
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=500,
        markDeleteLedgerId=positions[1].ledger_id,
        markDeleteEntryId=positions[1].entry_id,
    )
    await world.metadata.put(f"/managed-ledgers/{NAME}/known", info.SerializeToString())
    bare = pb.ManagedCursorInfo(cursorsLedgerId=501)
    await store_cursor_ledger(world, 501)
    await world.metadata.put(f"/managed-ledgers/{NAME}/bare", bare.SerializeToString())
    cursors = (await world.open()).cursors
    assert cursors["known"].mark_delete == positions[1]
    assert cursors["bare"].backlog() == 5


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"\x47\x78\x00\x00", "compressed"),
        (b"\xff\xff", "ManagedCursorInfo"),
        (b"", "required field"),
        (pb.ManagedCursorInfo(cursorsLedgerId=-1).SerializeToString(), "neither a position"),
    ],
)
async def test_unreadable_cursor_is_refused_by_name(world: World, value: bytes, named: str) -> None:
    await (await world.open()).close()
    await world.metadata.put(f"/managed-ledgers/{NAME}/broken", value)
    with pytest.raises(FormatError, match=f"broken.*{named}"):
        await world.open()
    node = await world.metadata.get(f"/managed-ledgers/{NAME}/broken")
    assert node.value == value


async def test_too_many_ranges_are_delivered_again_from_the_highest(
    world: World,
    append_all: AppendAll,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 100)
    monkeypatch.setattr(limits, "CURSOR_BATCHES_BYTES_MAX", 50)
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 40)
    cursor.acknowledge(positions[1:20:2])
    for position in positions[21::2]:
        cursor.acknowledge_batch(position, [1])
    await cursor.flushed()
    assert "would be delivered again" in caplog.text
    again = (await world.open()).cursors["s"]
    kept = [n for n in range(40) if again.is_acknowledged(positions[n])]
    assert kept
    assert kept == list(range(1, 20, 2))[: len(kept)]
    assert len(kept) < 10
    partial = [n for n in range(40) if again.pending_bits(positions[n])]
    assert 0 < len(partial) < 10
    assert partial == list(range(21, 40, 2))[: len(partial)]
