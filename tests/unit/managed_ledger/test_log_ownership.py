"""Taking over a log: fencing, recovery, orphans, ledger ids."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch.errors import (
    ConflictError,
    Fenced,
    StorageError,
)
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.store import Entry
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig
from anabranch.managed_ledger.formats import decode_chain, encode_chain

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


@pytest.mark.goal(
    "core.L6", part="offset-free reopen after crash", broken_by="recovery_misses_the_last_entry"
)
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


async def test_old_owner_that_still_sets_properties_does_not_stop_a_new_one(
    world: World, append: Append
) -> None:
    old = await world.open()
    await append(old, b"old")
    gate = world.ledgers.create_gate = asyncio.Event()
    opening = asyncio.ensure_future(world.open())
    await asyncio.sleep(0.01)
    await old.set_properties({"k": "v"})
    gate.set()
    new = await opening
    assert new.properties == {"k": "v"}
    assert [span.entries for span in new.ledgers] == [1, 0]
    assert len(world.ledgers.ledgers) == 2
    with pytest.raises(Fenced):
        await old.set_properties({"k": "w"})


async def test_topic_terminated_while_it_is_taken_over_stays_terminated(
    world: World, append: Append
) -> None:
    old = await world.open()
    position = await append(old, b"old")
    node = await world.metadata.get(f"/managed-ledgers/{NAME}")
    gate = world.ledgers.create_gate = asyncio.Event()
    opening = asyncio.ensure_future(world.open())
    await asyncio.sleep(0.01)
    document = decode_chain(node.value, NAME)
    ended = encode_chain(replace(document, terminated=position))
    await world.metadata.put(f"/managed-ledgers/{NAME}", ended)
    gate.set()
    new = await opening
    assert new.terminated == position
    assert len(world.ledgers.ledgers) == 1, "the ledger that was begun is removed"


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


@pytest.mark.goal("core.L13", part="chain", broken_by="id_below_the_chain_is_taken")
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


@pytest.mark.goal(
    "core.L7", part="acknowledgements survive crashes", broken_by="later_owners_cursors_are_adopted"
)
async def test_old_owner_leaves_cursors_of_the_new_one_alone(
    world: World, append_all: AppendAll
) -> None:
    old = await world.open()
    new = await world.open()
    cursor = await new.open_cursor("first", initial="earliest")
    positions = await append_all(new, 5)
    cursor.acknowledge([positions[1], positions[3]])
    await cursor.flushed()
    with pytest.raises(Fenced):
        await old.open_cursor("first")
    latest = await world.open()
    kept = await latest.open_cursor("first")
    assert [kept.is_acknowledged(p) for p in positions] == [False, True, False, True, False]
    cursor.acknowledge([positions[0]])
    with pytest.raises(Fenced):
        await cursor.flushed()
