"""Fencing, recovering and reading ledgers on bookies that fail, with model bookies."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from anabranch.errors import ConfigError, Corruption, Fenced, StorageError, Unreachable
from anabranch.ledgers.bookkeeper import transitions
from anabranch.ledgers.bookkeeper.ledger_metadata import State
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster, until
from anabranch.testing.contracts.ledgers import append, payloads_of

PATIENT = replace(SETTINGS, request_timeout_s=30.0)
"""For bookies that answer or are gone: only on a busy machine does anybody wait for so long."""


@pytest.fixture
async def bench() -> AsyncIterator[LoopbackCluster]:
    bench = LoopbackCluster()
    await bench.more_bookies(3)
    yield bench
    await bench.end()


@pytest.mark.goal("core.L4", part="fencing", broken_by="a_fence_is_taken_for_a_failure")
async def test_a_writer_in_another_process_is_fenced(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a", b"b")
    reader = await (await bench.store()).open(1)
    assert await payloads_of(reader) == [b"a", b"b"]
    with pytest.raises(Fenced):
        await append(writer, b"c")
    with pytest.raises(Fenced):
        writer.append(b"d", lambda *_: None)
    with pytest.raises(Fenced):
        await writer.close()
    assert (await bench.ledger(1)).last_entry_id == 1


async def test_a_writer_that_was_idle_cannot_close_over_a_recovery(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    await (await bench.store()).open(1)
    with pytest.raises(Fenced):
        await writer.close()


async def test_an_ensemble_change_after_a_recovery_fences(bench: LoopbackCluster) -> None:
    await bench.more_bookies(1)
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    metadata = await bench.ledger(1)
    registry = await LedgerRegistry.open(bench.metadata, bench.runtime)
    found = await registry.read(1)
    await registry.replace(replace(found.metadata, state=State.IN_RECOVERY), found.version)
    await (await bench.bookie_of(1, 0)).stop()
    results: list[Exception | None] = []
    writer.append(b"b", lambda _, error: results.append(error))
    await until(lambda: results)
    assert isinstance(results[0], Fenced)
    assert (await bench.ledger(1)).segments == metadata.segments


@pytest.mark.goal("core.L4", part="two recoveries", broken_by="recovery_closes_over_another")
async def test_of_two_recoveries_the_first_says_where_the_ledger_ends(
    bench: LoopbackCluster,
) -> None:
    """What was never confirmed one may find, and the other not; both are right."""
    await append(await (await bench.store()).create(1), b"a", b"b")
    registry = await LedgerRegistry.open(bench.metadata, bench.runtime)
    begun = await transitions.begin_recovery(registry, await registry.read(1))
    await (await bench.store()).open(1)
    first = await registry.read(1)
    assert (first.metadata.state, first.metadata.last_entry_id) == (State.CLOSED, 1)
    for last_entry_id in (0, 1, 2):
        segments = begun.metadata.segments
        found = await transitions.close_recovered(registry, begun, last_entry_id, 9, segments)
        assert found == first
        assert await registry.read(1) == first, "it is written once"


async def test_a_deleted_ledger_fences_a_writer_in_another_process(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    await (await bench.store()).delete(1)
    with pytest.raises(Fenced):
        await append(writer, b"b")


async def test_recovery_without_one_bookie_moves_what_it_writes(bench: LoopbackCluster) -> None:
    await bench.more_bookies(1)
    writer = await (await bench.store(PATIENT)).create(1)
    await append(writer, *(b"%d" % number for number in range(10)))
    await (await bench.bookie_of(1, 1)).stop()
    reader = await (await bench.store(PATIENT)).open(1)
    assert await payloads_of(reader) == [b"%d" % number for number in range(10)]


async def test_recovery_with_too_few_bookies_waits_for_better_days(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a", b"b")
    lost = [await bench.bookie_of(1, place) for place in (0, 1)]
    for bookie in lost:
        await bookie.stop()
    store = await bench.store()
    with pytest.raises(Unreachable, match="ledger 1 cannot be recovered now"):
        await store.open(1)
    assert (await bench.ledger(1)).state is State.IN_RECOVERY
    for bookie in lost:
        await bookie.start()
    await asyncio.sleep(0.2)
    assert await payloads_of(await store.open(1)) == [b"a", b"b"]


async def test_a_recovery_that_nobody_waits_for_ends(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, *(b"%d" % number for number in range(50)))
    for bookie in bench.bookies.values():
        bookie.delay_s = 0.1
    recovering = asyncio.ensure_future((await bench.store()).open(1))
    await asyncio.sleep(0.15)
    recovering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recovering
    asked = sum(len(bookie.asked) for bookie in bench.bookies.values())
    await asyncio.sleep(0.5)
    assert sum(len(bookie.asked) for bookie in bench.bookies.values()) <= asked + 3


async def test_an_entry_on_too_few_bookies_is_completed_by_recovery(bench: LoopbackCluster) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"a")
    silent, slow, holder = [await bench.bookie_of(1, place) for place in range(3)]
    silent.delay_s = slow.delay_s = 60
    writer.append(b"b", lambda *_: None)
    await until(lambda: holder.has(1, 1))
    await silent.stop()
    slow.delay_s = 0
    other = await bench.store()
    # Of those that answer one has it and one has not: that may have been confirmed.
    assert await payloads_of(await other.open(1)) == [b"a", b"b"]
    assert slow.has(1, 1)
    description = await other.describe(1)
    assert (description.last_entry_id, description.length_bytes) == (1, 2)


async def test_a_wrong_password_is_said_and_changes_nothing(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    stranger = await bench.store(replace(SETTINGS, password=b"guess"))
    with pytest.raises(ConfigError, match="password"):
        await stranger.open(1)
    await append(writer, b"b")


@pytest.mark.goal("core.L4", part="damaged copy", broken_by="damaged_packet_is_served")
async def test_a_damaged_copy_is_never_served(bench: LoopbackCluster) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"a", b"good", b"c")
    await writer.close()
    reader = await store.open(1)
    for count, bookie in enumerate(bench.bookies.values(), start=1):
        entries = bookie.shelves.ledgers[1].entries
        entries[1] = entries[1][:-1] + b"?"
        if count < 3:
            assert await payloads_of(reader) == [b"a", b"good", b"c"]
    with pytest.raises(Corruption, match="entry 1 of ledger 1"):
        await reader.read(1, 1, max_bytes=100)
    assert len(await reader.read(0, 2, max_bytes=100)) == 1, "what is before it can be read"


async def test_damage_is_not_the_last_word_while_others_are_silent(bench: LoopbackCluster) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"good")
    await writer.close()
    reader = await store.open(1)
    hurt, *others = bench.bookies.values()
    entries = hurt.shelves.ledgers[1].entries
    entries[0] = entries[0][:-1] + b"?"
    for bookie in others:
        await bookie.stop(known=True)
    with pytest.raises(Unreachable, match="entry 0 of ledger 1 cannot be read now"):
        await reader.read(0, 0, max_bytes=100)
    for bookie in others:
        await bookie.start()
    await asyncio.sleep(0.2)
    assert await payloads_of(reader) == [b"good"]


async def test_an_entry_that_nobody_has_is_an_error(bench: LoopbackCluster) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"a")
    await writer.close()
    for bookie in bench.bookies.values():
        bookie.shelves.ledgers[1].entries.clear()
    with pytest.raises(StorageError, match="entry 0 of ledger 1 is on none"):
        await (await store.open(1)).read(0, 0, max_bytes=100)


async def test_a_read_follows_bookies_that_were_replaced(bench: LoopbackCluster) -> None:
    store = await bench.store(replace(SETTINGS, ensemble_size=1, write_quorum=1, ack_quorum=1))
    writer = await store.create(1)
    await append(writer, b"a")
    await writer.close()
    reader = await store.open(1)
    old = await bench.bookie_of(1, 0)
    new = next(bookie for bookie in bench.bookies.values() if bookie is not old)
    new.shelves.ledgers[1] = old.shelves.ledgers.pop(1)
    registry = await LedgerRegistry.open(bench.metadata, bench.runtime)
    found = await registry.read(1)
    moved = replace(found.metadata.segments[0], bookies=(new.bookie_id,))
    await registry.replace(replace(found.metadata, segments=(moved,)), found.version)
    assert await payloads_of(reader) == [b"a"]


async def test_a_slow_bookie_does_not_hold_up_a_read(bench: LoopbackCluster) -> None:
    store = await bench.store(replace(SETTINGS, request_timeout_s=30, speculative_read_s=0.05))
    writer = await store.create(1)
    await append(writer, b"a", b"b")
    await writer.close()
    reader = await store.open(1)
    (await bench.bookie_of(1, 1 % 3)).delay_s = 60
    async with asyncio.timeout(5):
        assert await payloads_of(reader) == [b"a", b"b"]
