"""Cursors that outgrow their nodes: into a ledger, to the next, back, and what cannot be kept."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import AlreadyClosed, CursorTooLarge, Fenced, StorageError, StoreFailed
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.ids import Position
from anabranch.managed_ledger import Cursor, ManagedLedger

NAME = "t/ns/persistent/topic"
PATH = f"/managed-ledgers/{NAME}/s"
World = Any
AppendAll = Callable[[ManagedLedger, int], "asyncio.Future[list[Position]]"]


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 100)


async def stored_node(world: World) -> pb.ManagedCursorInfo:
    node = await world.metadata.get(PATH)
    return pb.ManagedCursorInfo.FromString(node.value)


def pending(cursor: Cursor, positions: list[Position]) -> list[int]:
    return [n for n, position in enumerate(positions) if not cursor.is_acknowledged(position)]


def cursor_ledgers(world: World) -> list[int]:
    ledgers = world.ledgers.ledgers.values()
    return [x.ledger_id for x in ledgers if "pulsar/cursor" in x.custom_metadata]


async def large_cursor(
    world: World, append_all: AppendAll
) -> tuple[ManagedLedger, Cursor, list[Position]]:
    ledger = await world.open()
    cursor = await ledger.open_cursor(
        "s", initial="earliest", properties={"p": -5}, cursor_properties={"k": "v"}
    )
    positions = await append_all(ledger, 60)
    cursor.acknowledge(positions[1:40:2])
    await cursor.flushed()
    return ledger, cursor, positions


@pytest.mark.goal("core.L7", part="large cursor in a ledger", broken_by="cursor_ledger_is_not_read")
async def test_large_state_is_stored_in_a_ledger_and_taken_over(
    world: World, append_all: AppendAll
) -> None:
    ledger, cursor, positions = await large_cursor(world, append_all)
    for position in positions[41::2]:
        cursor.acknowledge_batch(position, [1])
    await cursor.flushed()
    node = await stored_node(world)
    (ledger_id,) = cursor_ledgers(world)
    assert node.cursorsLedgerId == ledger_id
    assert not node.individualDeletedMessages
    stored = world.ledgers.ledgers[ledger_id]
    assert len(stored.durable) == 2, "the second write is another entry of the same ledger"
    assert stored.custom_metadata == {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": NAME.encode(),
        "pulsar/cursor": b"s",
    }
    again = (await world.open()).cursors["s"]
    assert pending(again, positions) == pending(cursor, positions)
    assert [n for n in range(60) if again.pending_bits(positions[n])] == list(range(41, 60, 2))
    assert (again.properties, again.cursor_properties) == ({"p": -5}, {"k": "v"})
    assert cursor_ledgers(world) == [ledger_id], "reading does not write it anew"
    cursor.acknowledge(positions[:1])
    with pytest.raises(Fenced):
        await cursor.flushed()
    assert isinstance(ledger.error, Fenced)
    again.acknowledge(positions[40:])
    await again.flushed()
    (after,) = cursor_ledgers(world)
    assert after > ledger_id, "the next owner writes to a ledger of its own"
    assert pending((await world.open()).cursors["s"], positions) == list(range(0, 40, 2))


@pytest.mark.goal(
    "core.L8", part="batch acks where Pulsar reads them", broken_by="batch_acks_stay_in_the_node"
)
@pytest.mark.parametrize("stop", ["crash", "close"])
async def test_parts_of_a_batch_are_in_a_ledger_where_pulsar_reads_them(
    world: World, append_all: AppendAll, stop: str
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 3)
    cursor.acknowledge_batch(positions[1], [6])
    await cursor.flushed()
    if stop == "close":
        await ledger.close()
    node = await stored_node(world)
    assert cursor_ledgers(world) == [node.cursorsLedgerId]
    assert not node.batchedEntryDeletionIndexInfo
    stored = world.ledgers.ledgers[node.cursorsLedgerId].durable
    entry = pb.PositionInfo.FromString(stored[-1])
    (batch,) = entry.batchedEntryDeletionIndexInfo
    assert (batch.position.ledgerId, batch.position.entryId) == positions[1]
    assert list(batch.deleteSet) == [6]
    ledger = await world.open()
    again = ledger.cursors["s"]
    assert again.pending_bits(positions[1]) == (6,)
    again.acknowledge([positions[1]])
    await ledger.close()
    assert (await stored_node(world)).cursorsLedgerId == -1, "whole entries fit the node"
    assert cursor_ledgers(world) == []


async def test_parts_of_a_batch_that_pulsar_left_in_the_node_go_to_a_ledger(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    await ledger.open_cursor("keep", initial="earliest")
    positions = await append_all(ledger, 3)
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=-1, markDeleteLedgerId=positions[0].ledger_id, markDeleteEntryId=0
    )
    batch = info.batchedEntryDeletionIndexInfo.add(deleteSet=[5])
    batch.position.ledgerId, batch.position.entryId = positions[2]
    await world.metadata.put(PATH, info.SerializeToString())
    ledger = await world.open()
    assert ledger.cursors["s"].pending_bits(positions[2]) == (5,)
    await ledger.close()
    (ledger_id,) = cursor_ledgers(world)
    assert (await stored_node(world)).cursorsLedgerId == ledger_id
    assert (await world.open()).cursors["s"].pending_bits(positions[2]) == (5,)


@pytest.mark.parametrize("bound", ["CURSOR_LEDGER_ENTRIES_MAX", "CURSOR_LEDGER_BYTES_MAX"])
async def test_full_cursor_ledger_is_replaced_and_deleted(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(limits, bound, 3 if "ENTRIES" in bound else 100)
    _, cursor, positions = await large_cursor(world, append_all)
    seen = set(cursor_ledgers(world))
    for position in positions[41::2]:
        cursor.acknowledge([position])
        await cursor.flushed()
        (present,) = cursor_ledgers(world)
        assert (await stored_node(world)).cursorsLedgerId == present
        assert len(world.ledgers.ledgers[present].durable) <= 3
        seen.add(present)
    assert len(seen) == 4, "11 writes, 3 to a ledger"
    cursor.acknowledge_cumulative(positions[56])
    await cursor.flushed()
    cursor.acknowledge([positions[58]])
    await cursor.flushed()
    assert cursor_ledgers(world) == []
    assert (await stored_node(world)).cursorsLedgerId == -1, "small again, it went back"
    assert pending((await world.open()).cursors["s"], positions) == []


async def test_clean_close_goes_back_to_the_node_if_it_fits(
    world: World, append_all: AppendAll
) -> None:
    ledger, cursor, positions = await large_cursor(world, append_all)
    await ledger.close()
    (ledger_id,) = cursor_ledgers(world)
    assert world.ledgers.ledgers[ledger_id].state.value == "closed"
    ledger = await world.open()
    cursor = ledger.cursors["s"]
    assert pending(cursor, positions) == [*range(0, 40, 2), *range(40, 60)]
    cursor.acknowledge_cumulative(positions[36])
    cursor.set_properties({"p": 6})
    await ledger.close()
    assert cursor_ledgers(world) == []
    assert (await stored_node(world)).cursorsLedgerId == -1
    cursor = (await world.open()).cursors["s"]
    assert pending(cursor, positions) == [38, *range(40, 60)]
    assert (cursor.properties, cursor.cursor_properties) == ({"p": 6}, {"k": "v"})


async def test_texts_of_a_large_cursor_are_durable(world: World, append_all: AppendAll) -> None:
    _, cursor, positions = await large_cursor(world, append_all)
    cursor.set_cursor_properties({"new": "text"})
    await cursor.flushed()
    again = (await world.open()).cursors["s"]
    assert again.cursor_properties == {"new": "text"}
    assert pending(again, positions) == pending(cursor, positions)


async def test_deleted_cursor_leaves_no_ledger(world: World, append_all: AppendAll) -> None:
    ledger, _, _ = await large_cursor(world, append_all)
    await ledger.delete_cursor("s")
    assert cursor_ledgers(world) == []
    # Also one that this owner has only read.
    await large_cursor(world, append_all)
    await (await world.open()).delete_cursor("s")
    assert cursor_ledgers(world) == []


async def test_state_too_large_for_an_entry_fails_and_loses_nothing(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, cursor, positions = await large_cursor(world, append_all)
    before = pending(cursor, positions)
    monkeypatch.setattr(limits, "CURSOR_ENTRY_BYTES_MAX", 100)
    for position in positions[41::2]:
        cursor.acknowledge_batch(position, [1])
    with pytest.raises(CursorTooLarge, match=r"cursor s above .* take .* of which 100"):
        await cursor.flushed()
    assert ledger.is_usable
    assert pending((await world.open()).cursors["s"], positions) == before
    # It goes on as soon as there are fewer gaps.
    cursor = (await world.open()).cursors["s"]
    for position in positions[41::2]:
        cursor.acknowledge_batch(position, [1])
    with pytest.raises(StorageError):
        await cursor.flushed()
    cursor.acknowledge_cumulative(positions[54])
    await cursor.flushed()
    again = (await world.open()).cursors["s"]
    assert again.mark_delete == positions[54]
    assert again.pending_bits(positions[55]) == (1,)


@pytest.mark.parametrize("has_ledger", [True, False])
async def test_state_too_large_for_the_ledger_store_is_not_tried_again(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch, has_ledger: bool
) -> None:
    monkeypatch.setattr("anabranch.managed_ledger.cursor._FLUSH_DELAY_S", 0.001)
    if has_ledger:
        ledger, cursor, positions = await large_cursor(world, append_all)
    else:
        ledger = await world.open()
        cursor = await ledger.open_cursor("s", initial="earliest")
        positions = await append_all(ledger, 60)
    before, stored = pending(cursor, positions), cursor_ledgers(world)
    world.ledgers.entry_bytes_max = 100
    for position in positions[41::2]:
        cursor.acknowledge_batch(position, [1])
    with pytest.raises(CursorTooLarge, match=r"cursor s above .* an entry of .* is too large"):
        await cursor.flushed()
    created = len(world.ledgers.used)
    await asyncio.sleep(0.05)
    assert len(world.ledgers.used) == created, "the same would only be refused again"
    assert ledger.is_usable
    assert cursor_ledgers(world) == stored
    assert pending((await world.open()).cursors["s"], positions) == before
    cursor = (await world.open()).cursors["s"]
    cursor.acknowledge_cumulative(positions[58])
    await cursor.flushed()
    assert (await world.open()).cursors["s"].mark_delete == positions[58]


async def test_failed_publication_is_tried_again_with_the_same_ledger(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 60)
    real = world.metadata.put

    async def put(path: str, *rest: Any, **guarded: Any) -> Any:
        if path == PATH:
            raise StorageError("the store is away")
        return await real(path, *rest, **guarded)

    cursor.acknowledge(positions[1::2])
    with monkeypatch.context() as patch:
        patch.setattr(world.metadata, "put", put)
        for _ in range(3):
            with pytest.raises(StorageError, match="away"):
                await cursor.flushed()
    assert (await stored_node(world)).cursorsLedgerId == -1
    assert len(cursor_ledgers(world)) == 1
    await cursor.flushed()
    assert [(await stored_node(world)).cursorsLedgerId] == cursor_ledgers(world)
    assert pending((await world.open()).cursors["s"], positions) == list(range(0, 60, 2))


async def test_publication_that_seemed_to_fail_keeps_its_ledger(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 60)
    real = world.metadata.put

    async def put(path: str, *rest: Any, **guarded: Any) -> Any:
        await real(path, *rest, **guarded)
        raise StorageError("the answer is lost")

    cursor.acknowledge(positions[1::2])
    with monkeypatch.context() as patch:
        patch.setattr(world.metadata, "put", put)
        with pytest.raises(StorageError, match="lost"):
            await cursor.flushed()
    with pytest.raises(Fenced):
        await cursor.flushed()
    assert [(await stored_node(world)).cursorsLedgerId] == cursor_ledgers(world)
    assert pending((await world.open()).cursors["s"], positions) == list(range(0, 60, 2))


async def test_overtaken_publication_removes_its_ledger(
    world: World, append_all: AppendAll
) -> None:
    old = await world.open()
    cursor = await old.open_cursor("s", initial="earliest")
    positions = await append_all(old, 60)
    await world.open()
    cursor.acknowledge(positions[1::2])
    with pytest.raises(Fenced):
        await cursor.flushed()
    assert cursor_ledgers(world) == []


async def test_failed_append_moves_on_to_another_ledger(
    world: World, append_all: AppendAll
) -> None:
    _, cursor, positions = await large_cursor(world, append_all)
    (first,) = cursor_ledgers(world)
    world.ledgers.appends_fail = True
    cursor.acknowledge(positions[41:50:2])
    with pytest.raises(StoreFailed):
        await cursor.flushed()
    assert cursor_ledgers(world) == [first]
    world.ledgers.appends_fail = False
    await cursor.flushed()
    (second,) = cursor_ledgers(world)
    assert second > first
    assert pending((await world.open()).cursors["s"], positions) == pending(cursor, positions)


async def test_a_ledger_that_no_node_ever_named_is_not_left_behind(
    world: World, append_all: AppendAll
) -> None:
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", initial="earliest")
    positions = await append_all(ledger, 60)
    world.ledgers.appends_fail = True
    cursor.acknowledge(positions[1::2])
    for _ in range(3):
        with pytest.raises(StoreFailed):
            await cursor.flushed()
    assert cursor_ledgers(world) == []
    world.ledgers.appends_fail = False
    await cursor.flushed()
    assert [(await stored_node(world)).cursorsLedgerId] == cursor_ledgers(world)


async def test_owner_that_goes_on_to_another_ledger_while_it_is_taken_over(
    world: World, append_all: AppendAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new owner has read the node, and its ledger is replaced before it is opened."""
    _, cursor, positions = await large_cursor(world, append_all)
    (first,) = cursor_ledgers(world)
    monkeypatch.setattr(limits, "CURSOR_LEDGER_ENTRIES_MAX", 1)
    real = world.ledgers.open

    async def open_late(ledger_id: int) -> Any:
        if ledger_id == first:
            cursor.acknowledge([positions[41]])
            await cursor.flushed()
        return await real(ledger_id)

    monkeypatch.setattr(world.ledgers, "open", open_late)
    again = (await world.open()).cursors["s"]
    assert first not in cursor_ledgers(world)
    assert again.is_acknowledged(positions[41])
    assert pending(again, positions) == pending(cursor, positions)


async def test_closed_cursor_writes_nothing_more(world: World, append_all: AppendAll) -> None:
    ledger, cursor, positions = await large_cursor(world, append_all)
    await ledger.close()
    cursor.acknowledge(positions[:1])
    with pytest.raises(AlreadyClosed):
        await cursor.flushed()
    assert pending((await world.open()).cursors["s"], positions)[0] == 0
