"""The stored form of cursors: Pulsar's cursor ledgers, damage."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import FormatError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.managed_ledger import Cursor, ManagedLedger, ManagedLedgerConfig

NAME = "t/ns/persistent/topic"
SMALL = ManagedLedgerConfig(ledger_entries_max=10)
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


def pending(cursor: Cursor, positions: list[Position]) -> list[int]:
    return [n for n, position in enumerate(positions) if not cursor.is_acknowledged(position)]


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
    new.properties.add(name="p", value=3)
    await store_cursor_ledger(world, 500, old, new)
    info = pb.ManagedCursorInfo(cursorsLedgerId=500, markDeleteLedgerId=1, markDeleteEntryId=-1)
    info.cursorProperties.add(name="k", value="v")
    path = f"/managed-ledgers/{NAME}/s"
    await world.metadata.put(path, info.SerializeToString())
    cursor = (await world.open(SMALL)).cursors["s"]
    assert pending(cursor, positions) == [3, 4, 5, 6, 7, 12, 13, *range(16, 25)]
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
