"""Ledgers, bookies and ledger ids of BookKeeper, on every store that needs no foreign server."""

import asyncio
from dataclasses import replace

import pytest

from anabranch.errors import BadVersion, ConflictError, FormatError, NotFound
from anabranch.ledgers.bookkeeper.bookies import Bookies
from anabranch.ledgers.bookkeeper.digests import DigestType
from anabranch.ledgers.bookkeeper.id_generation import SharedLedgerIds
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, LedgerMetadata, State
from anabranch.ledgers.bookkeeper.ledger_paths import Layout, LedgerPaths, encode_layout
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.metadata.counters import Numbering
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.contracts.coordination import WAIT_S_MAX, Place, until

PATHS = LedgerPaths()
IDS = [0, 1, 9_999, 10_000, 2**31 - 2, 2**31 - 1, 2**32 + 5, 2**63 - 1]


def ledger(ledger_id: int, token: int = 1) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        state=State.OPEN,
        last_entry_id=-1,
        length=0,
        digest=DigestType.CRC32C,
        password=b"",
        segments=(EnsembleSegment(0, ("bookie:3181",)),),
        ctoken=token,
    )


async def joined(place: Place) -> MetadataStore:
    return (await place.join()).store


# --- ledgers ------------------------------------------------------------------------------------


async def test_a_ledger_is_made_changed_and_deleted(place: Place) -> None:
    registry = await LedgerRegistry.open(await joined(place), real_runtime())
    made = await registry.create(ledger(7))
    assert await registry.read(7) == made
    closed = replace(made.metadata, state=State.CLOSED, last_entry_id=4, length=10)
    changed = await registry.replace(closed, made.version)
    assert changed.metadata == closed
    assert await registry.read(7) == changed
    await registry.delete(7, changed.version)
    with pytest.raises(NotFound, match="ledger 7"):
        await registry.read(7)


async def test_of_two_who_change_or_make_a_ledger_one_succeeds(place: Place) -> None:
    first = await LedgerRegistry.open(await joined(place), real_runtime())
    second = await LedgerRegistry.open(await joined(place), real_runtime())
    made = await first.create(ledger(7, token=1))
    with pytest.raises(ConflictError, match="ledger 7 exists"):
        await second.create(ledger(7, token=2))
    changed = await first.replace(replace(made.metadata, state=State.IN_RECOVERY), made.version)
    with pytest.raises(BadVersion):
        await second.replace(replace(made.metadata, state=State.CLOSED), made.version)
    with pytest.raises(BadVersion):
        await second.delete(7, made.version)
    assert await second.read(7) == changed


async def test_what_is_not_there_is_neither_changed_nor_deleted(place: Place) -> None:
    registry = await LedgerRegistry.open(await joined(place), real_runtime())
    made = await registry.create(ledger(7))
    await registry.delete(7)
    with pytest.raises(NotFound, match="ledger 7 was deleted"):
        await registry.replace(made.metadata, made.version)
    with pytest.raises(NotFound, match="no ledger 7"):
        await registry.delete(7)


@pytest.mark.parametrize("layout", list(Layout))
async def test_ledgers_are_listed_in_order_and_nothing_else_is(
    place: Place, layout: Layout
) -> None:
    store = await joined(place)
    await store.put(PATHS.layout_document, encode_layout(layout))
    for path in ("available/readonly", "cookies/b", "idgen/ID-0000000000", "INSTANCEID", "77/x"):
        await store.put(f"/ledgers/{path}", b"")
    registry = await LedgerRegistry.open(store, real_runtime())
    assert registry.paths.layout is layout
    assert [found async for found in registry.list()] == []
    for ledger_id in reversed(IDS):
        await registry.create(ledger(ledger_id))
    assert [found async for found in registry.list()] == IDS


async def test_a_damaged_ledger_or_layout_is_named_and_left_alone(place: Place) -> None:
    store = await joined(place)
    registry = await LedgerRegistry.open(store, real_runtime())
    await store.put(PATHS.ledger(7), b"damaged")
    with pytest.raises(FormatError, match="ledger 7"):
        await registry.read(7)
    node = await store.get(PATHS.ledger(7))
    assert node is not None
    assert node.value == b"damaged"
    await store.put(PATHS.layout_document, b"9\nsomething")
    with pytest.raises(FormatError, match="LAYOUT"):
        await LedgerRegistry.open(store, real_runtime())


async def test_who_watches_a_ledger_sees_its_life(place: Place) -> None:
    registry = await LedgerRegistry.open(await joined(place), real_runtime())
    other = await LedgerRegistry.open(await joined(place), real_runtime())
    made = await registry.create(ledger(7))
    async with asyncio.timeout(WAIT_S_MAX):
        watch = registry.watch(7)
        assert await anext(watch) == made
        await other.create(ledger(8))
        recovering = replace(made.metadata, state=State.IN_RECOVERY)
        changed = await other.replace(recovering, made.version)
        assert await anext(watch) == changed
        await other.delete(7)
        assert await anext(watch) is None
        assert [found async for found in watch] == []
        assert [found async for found in registry.watch(9)] == [None]


# --- bookies ------------------------------------------------------------------------------------


async def test_bookies_come_turn_read_only_and_go(place: Place) -> None:
    watcher, owner = await place.join(), await joined(place)
    await owner.put(f"{PATHS.available}/a:3181", b"", ephemeral=True)
    bookies = Bookies(watcher.store, real_runtime(), PATHS)
    await bookies.start(watcher.tasks)
    assert bookies.writable() == ("a:3181",)
    assert bookies.address("a:3181") == ("a", 3181)

    told: list[tuple[str, ...]] = []
    bookies.listen(lambda: told.append(bookies.writable()))
    await owner.put(f"{PATHS.available}/b:3181", b"", ephemeral=True)
    await until(lambda: bookies.writable() == ("a:3181", "b:3181"))
    assert told == [("a:3181", "b:3181")]

    await owner.put(f"{PATHS.read_only}/a:3181", b"", ephemeral=True)
    await owner.delete(f"{PATHS.available}/a:3181")
    await until(lambda: bookies.writable() == ("b:3181",))
    assert bookies.read_only() == ("a:3181",)

    await owner.delete(f"{PATHS.read_only}/a:3181")
    await until(lambda: bookies.read_only() == ())
    assert bookies.address("a:3181") == ("a", 3181), "old segments may still name it"


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.goal("core.L13", part="shared with Pulsar", broken_by="ids_are_drawn_twice")
@pytest.mark.parametrize("numbering", list(Numbering))
async def test_ids_of_eight_who_draw_are_unique_and_rise(
    place: Place, numbering: Numbering
) -> None:
    sources = [
        SharedLedgerIds(await joined(place), real_runtime(), numbering=numbering) for _ in range(8)
    ]

    async def draw(source: SharedLedgerIds) -> list[int]:
        return [await source.next() for _ in range(10)]

    drawn = await asyncio.gather(*map(draw, sources))
    everything = [ledger_id for each in drawn for ledger_id in each]
    assert len(set(everything)) == 80
    assert all(each == sorted(each) for each in drawn)
    assert await sources[0].issued_below() == max(everything) + 1


@pytest.mark.goal("core.L13", part="shared with Pulsar", broken_by="far_floor_is_not_raised")
@pytest.mark.parametrize("numbering", list(Numbering))
async def test_ids_go_on_above_a_floor_near_or_far(place: Place, numbering: Numbering) -> None:
    ids = SharedLedgerIds(await joined(place), real_runtime(), numbering=numbering)
    other = SharedLedgerIds(await joined(place), real_runtime(), numbering=numbering)
    await ids.raise_floor(50)
    assert await other.next() == 50
    await ids.raise_floor(40)
    assert await other.next() == 51
    await ids.raise_floor(5_000_000_000)
    first = await other.next()
    assert first >= 2 << 32 > 5_000_000_000
    assert await ids.next() == first + 1
    assert await ids.issued_below() == first + 2
    await ids.raise_floor(first + 10)
    assert await other.next() == first + 10
