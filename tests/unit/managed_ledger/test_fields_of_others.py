"""What newer writers, or Pulsar, keep in documents of cursors and schemas stays there."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.generated import schema_storage_format_pb2 as storage
from anabranch.ids import Position
from anabranch.managed_ledger import ManagedLedger
from anabranch.managed_ledger.formats import (
    decode_cursor,
    decode_position_entry,
    encode_position_entry,
)
from anabranch.managed_ledger.schema_formats import SchemaInfo, decode_locator

NAME = "t/ns/persistent/topic"
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]
NEWER = bytes([99 << 3 & 0x7F | 0x80 | 2, 99 << 3 >> 7, 5]) + b"newer"
"""Field 99, of five bytes."""


async def add_to_node(world: World, path: str, kind: Any, **known: int) -> None:
    """Write a node as somebody newer would."""
    node = await world.metadata.get(path)
    message = kind.FromString(node.value + NEWER)
    for name, value in known.items():
        setattr(message, name, value)
    await world.metadata.put(path, message.SerializeToString())


@pytest.mark.goal("core.L7", part="read by Pulsar", broken_by="cursors_lose_what_others_keep")
async def test_a_cursor_keeps_fields_of_others_wherever_its_state_goes(
    world: World, append_all: AppendAll
) -> None:
    path = f"/managed-ledgers/{NAME}/s"

    async def kept() -> tuple[int, bool]:
        node = await world.metadata.get(path)
        return pb.ManagedCursorInfo.FromString(node.value).lastActive, NEWER in node.value

    ledger = await world.open()
    await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 10)
    await ledger.close()
    await add_to_node(world, path, pb.ManagedCursorInfo, lastActive=1_700_000_000_000)
    ledger = await world.open()
    cursor = ledger.cursors["s"]
    assert await kept() == (1_700_000_000_000, True), "taken over"
    cursor.acknowledge([positions[4]])
    await cursor.flushed()
    assert await kept() == (1_700_000_000_000, True), "in the node"
    cursor.acknowledge_batch(positions[5], [0b10])
    await cursor.flushed()
    document = decode_cursor((await world.metadata.get(path)).value, "s")
    assert document.cursor_ledger_id >= 0
    assert await kept() == (1_700_000_000_000, True), "beside the name of a ledger"
    cursor.acknowledge_cumulative(positions[8])
    await ledger.close()
    document = decode_cursor((await world.metadata.get(path)).value, "s")
    assert (document.cursor_ledger_id, document.mark_delete) == (-1, positions[8])
    assert await kept() == (1_700_000_000_000, True), "in the node again"


@pytest.mark.goal("core.L7", part="read by Pulsar", broken_by="cursors_lose_what_others_keep")
async def test_a_position_in_a_ledger_keeps_fields_of_others(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 10)
    cursor.acknowledge_batch(positions[5], [0b10])
    await cursor.flushed()
    entry = encode_position_entry(cursor._state, {}, "s") + NEWER
    node = decode_cursor((await world.metadata.get(f"/managed-ledgers/{NAME}/s")).value, "s")
    found = decode_position_entry(entry, node, "s")
    again = encode_position_entry(cursor._state, {}, "s", found.entry_extra)
    assert NEWER in again
    assert decode_position_entry(again, node, "s") == found


@pytest.mark.goal("core.L9", part="Pulsar's format", broken_by="schemas_lose_what_others_keep")
async def test_a_schema_keeps_fields_of_others_when_a_version_is_added(world: World) -> None:
    schemas, path = world.broker().schemas, "/schemas/t/ns/topic"
    await schemas.put_if_absent("t/ns/topic", SchemaInfo("t/ns/topic", 1, b"one"), b"hash-1")
    node = await world.metadata.get(path)
    locator = storage.SchemaLocator.FromString(node.value + NEWER)
    locator.index[0].MergeFromString(NEWER)
    locator.index[0].position.properties.add(key="theirs", value="kept")
    await world.metadata.put(path, locator.SerializeToString())
    await schemas.put_if_absent("t/ns/topic", SchemaInfo("t/ns/topic", 1, b"two"), b"hash-2")
    written = (await world.metadata.get(path)).value
    found = storage.SchemaLocator.FromString(written)
    assert found.SerializeToString().count(NEWER) == 2
    assert found.index[0] == locator.index[0]
    assert [entry.version for entry in decode_locator(written, "s")] == [0, 1]
    assert found.info == found.index[1]
    assert not found.info.position.properties
    first = await schemas.get("t/ns/topic", 0)
    assert first is not None
    assert first.info.schema == b"one"
