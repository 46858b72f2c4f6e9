"""A ledger store on bookies that fail, with model bookies behind real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConfigError,
    Corruption,
    Fenced,
    StorageError,
    StoreBusy,
    Unreachable,
)
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.memory import MemoryStore
from anabranch.runtime.real import RealClock, real_runtime
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.contracts.ledgers import append, payloads_of

SETTINGS = BookKeeperSettings(request_timeout_s=0.5, explicit_lac_s=0.05, quorum_wait_s=1.0)


class Bench:
    def __init__(self) -> None:
        self.runtime = real_runtime()
        self.metadata = MemoryStore(RealClock())
        self.bookies: dict[str, LoopbackBookie] = {}
        self.stores: list[BookKeeperLedgerStore] = []

    async def more_bookies(self, count: int) -> None:
        for _ in range(count):
            bookie = LoopbackBookie(self.runtime, self.metadata)
            await bookie.start()
            self.bookies[bookie.bookie_id] = bookie

    async def store(self, settings: BookKeeperSettings = SETTINGS) -> BookKeeperLedgerStore:
        store = await BookKeeperLedgerStore.open_cluster(self.runtime, self.metadata, settings)
        self.stores.append(store)
        return store

    async def ledger(self, ledger_id: int) -> LedgerMetadata:
        registry = await LedgerRegistry.open(self.metadata, self.runtime)
        return (await registry.read(ledger_id)).metadata

    async def until_without(self, ledger_id: int, bookie: LoopbackBookie) -> None:
        for _ in range(1000):
            if bookie.bookie_id not in (await self.ledger(ledger_id)).segments[-1].bookies:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("the bookie was not replaced")

    async def bookie_of(self, ledger_id: int, place: int) -> LoopbackBookie:
        return self.bookies[(await self.ledger(ledger_id)).segments[-1].bookies[place]]

    async def end(self) -> None:
        for store in self.stores:
            await store.close()
        for bookie in self.bookies.values():
            await bookie.stop()
        await self.metadata.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.more_bookies(3)
    yield bench
    await bench.end()


class Appends:
    """A writer's appends one after another, and what became of each."""

    def __init__(self, writer: BookKeeperWriter) -> None:
        self.writer = writer
        self.results: list[AnabranchError | None] = []
        self.written: list[bytes] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            payload = b"%d" % len(self.written)
            self.written.append(payload)
            self.writer.append(payload, self._done)

    def _done(self, entry_id: int, error: Any) -> None:
        assert entry_id == len(self.results), "completions have an order"
        self.results.append(error)

    async def finished(self) -> None:
        await until(lambda: len(self.results) == len(self.written))


async def until(condition: Callable[[], object]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in ten seconds")


@pytest.mark.goal("core.L3", part="lost bookie", broken_by="a_lost_connection_ends_the_ledger")
async def test_a_lost_bookie_is_replaced_and_no_append_fails(bench: Bench) -> None:
    await bench.more_bookies(1)
    writer = await (await bench.store()).create(1)
    appends = Appends(writer)
    appends.add(20)
    await appends.finished()
    lost = await bench.bookie_of(1, 1)
    appends.add(20)
    await lost.stop()
    appends.add(20)
    await appends.finished()
    assert appends.results == [None] * 60
    first, last = (await bench.ledger(1)).segments
    assert 20 <= last.first_entry_id <= 40
    assert set(last.bookies) == set(bench.bookies) - {lost.bookie_id}
    assert first.bookies[1] == lost.bookie_id
    assert await writer.close() == 59
    reader = await (await bench.store()).open(1)
    assert await payloads_of(reader) == appends.written


async def test_every_entry_of_a_new_segment_is_on_its_bookies(bench: Bench) -> None:
    await bench.more_bookies(1)
    appends = Appends(await (await bench.store()).create(1))
    appends.add(50)
    await (await bench.bookie_of(1, 0)).stop()
    appends.add(50)
    await appends.finished()
    assert appends.results == [None] * 100
    last = (await bench.ledger(1)).segments[-1]
    for entry_id in range(last.first_entry_id, 100):
        assert sum(bench.bookies[bookie].has(1, entry_id) for bookie in last.bookies) >= 2


async def test_without_a_spare_bookie_appends_go_on(bench: Bench) -> None:
    store = await bench.store()
    appends = Appends(await store.create(1))
    appends.add(5)
    lost = await bench.bookie_of(1, 2)
    await lost.stop()
    appends.add(20)
    await appends.finished()
    await until(lambda: store.degraded)
    assert appends.results == [None] * 25
    assert lost.bookie_id in (store.degraded or "")
    await lost.start()
    await until(lambda: store.degraded is None)
    appends.add(5)
    await appends.finished()
    await until(lambda: lost.has(1, 29))
    assert len((await bench.ledger(1)).segments) == 1
    assert await appends.writer.close() == 29


async def test_a_spare_bookie_that_comes_takes_the_place(bench: Bench) -> None:
    store = await bench.store()
    appends = Appends(await store.create(1))
    lost = await bench.bookie_of(1, 2)
    await lost.stop()
    appends.add(3)
    await appends.finished()
    await until(lambda: store.degraded)
    await bench.more_bookies(1)
    await until(lambda: store.degraded is None)
    assert lost.bookie_id not in (await bench.ledger(1)).segments[-1].bookies


async def test_a_silent_bookie_does_not_stop_appends(bench: Bench) -> None:
    await bench.more_bookies(1)
    appends = Appends(await (await bench.store()).create(1))
    silent = await bench.bookie_of(1, 0)
    silent.delay_s = 60
    appends.add(10)
    await appends.finished()
    assert appends.results == [None] * 10
    await bench.until_without(1, silent)


async def test_a_full_bookie_is_replaced(bench: Bench) -> None:
    await bench.more_bookies(1)
    appends = Appends(await (await bench.store()).create(1))
    full = await bench.bookie_of(1, 0)
    full.shelves.read_only = True
    appends.add(10)
    await appends.finished()
    assert appends.results == [None] * 10
    await bench.until_without(1, full)


async def test_too_few_bookies_for_too_long_end_the_writer_but_not_the_ledger(
    bench: Bench,
) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"kept")
    for place in (0, 1):
        await (await bench.bookie_of(1, place)).stop()
    appends = Appends(writer)
    finished: list[Exception | None] = []
    writer.append(b"lost", lambda _, error: finished.append(error))
    await until(lambda: finished)
    assert isinstance(finished[0], Unreachable)
    with pytest.raises(StorageError):
        appends.add(1)
    assert await writer.close() == 0
    assert (await bench.ledger(1)).last_entry_id == 0


@pytest.mark.goal("core.L4", part="fencing", broken_by="a_fence_is_taken_for_a_failure")
async def test_a_writer_in_another_process_is_fenced(bench: Bench) -> None:
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


async def test_a_writer_that_was_idle_cannot_close_over_a_recovery(bench: Bench) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    await (await bench.store()).open(1)
    with pytest.raises(Fenced):
        await writer.close()


async def test_an_ensemble_change_after_a_recovery_fences(bench: Bench) -> None:
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


async def test_a_deleted_ledger_fences_a_writer_in_another_process(bench: Bench) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    await (await bench.store()).delete(1)
    with pytest.raises(Fenced):
        await append(writer, b"b")


async def test_recovery_without_one_bookie_moves_what_it_writes(bench: Bench) -> None:
    await bench.more_bookies(1)
    writer = await (await bench.store()).create(1)
    await append(writer, *(b"%d" % number for number in range(10)))
    await (await bench.bookie_of(1, 1)).stop()
    reader = await (await bench.store()).open(1)
    assert await payloads_of(reader) == [b"%d" % number for number in range(10)]


async def test_recovery_with_too_few_bookies_waits_for_better_days(bench: Bench) -> None:
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


async def test_an_entry_on_too_few_bookies_is_completed_by_recovery(bench: Bench) -> None:
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


async def test_a_wrong_password_is_said_and_changes_nothing(bench: Bench) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"a")
    stranger = await bench.store(replace(SETTINGS, password=b"guess"))
    with pytest.raises(ConfigError, match="password"):
        await stranger.open(1)
    await append(writer, b"b")


async def test_a_damaged_copy_is_never_served(bench: Bench) -> None:
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


async def test_an_entry_that_nobody_has_is_an_error(bench: Bench) -> None:
    store = await bench.store()
    writer = await store.create(1)
    await append(writer, b"a")
    await writer.close()
    for bookie in bench.bookies.values():
        bookie.shelves.ledgers[1].entries.clear()
    with pytest.raises(StorageError, match="entry 0 of ledger 1 is on none"):
        await (await store.open(1)).read(0, 0, max_bytes=100)


async def test_a_read_follows_bookies_that_were_replaced(bench: Bench) -> None:
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


async def test_a_slow_bookie_does_not_hold_up_a_read(bench: Bench) -> None:
    store = await bench.store(replace(SETTINGS, request_timeout_s=30, speculative_read_s=0.05))
    writer = await store.create(1)
    await append(writer, b"a", b"b")
    await writer.close()
    reader = await store.open(1)
    (await bench.bookie_of(1, 1 % 3)).delay_s = 60
    async with asyncio.timeout(5):
        assert await payloads_of(reader) == [b"a", b"b"]


@pytest.mark.goal("core.L3", part="last confirmed", broken_by="packets_know_of_nothing_confirmed")
async def test_entries_carry_the_last_confirmed_one(bench: Bench) -> None:
    store = await bench.store(replace(SETTINGS, explicit_lac_s=0))
    writer = await store.create(1)
    for number in range(3):
        await append(writer, b"%d" % number)
    holders = [bookie for bookie in bench.bookies.values() if bookie.has(1, 2)]
    assert len(holders) >= 2
    for bookie in holders:
        assert bookie.shelves.ledgers[1].confirmed == 1
    description = await (await bench.store()).describe(1)
    assert (description.last_entry_id, description.length_bytes) == (1, 2)


@pytest.mark.goal("core.L3", part="last confirmed", broken_by="last_entry_is_never_told")
async def test_bookies_are_told_of_the_last_entry(bench: Bench) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"123", b"45")
    other = await bench.store()
    told = [bookie.shelves.ledgers[1] for bookie in bench.bookies.values()]
    await until(lambda: all(shelf.confirmed == 1 for shelf in told))
    description = await other.describe(1)
    assert (description.last_entry_id, description.length_bytes) == (1, 5)
    assert await append(writer, b"still open") == [2]


@pytest.mark.goal("core.L3", part="back-pressure", broken_by="appends_to_bookies_press_nobody")
async def test_what_bookies_do_not_have_presses_until_nothing_more_is_taken(bench: Bench) -> None:
    store = await bench.store()
    appends = Appends(await store.create(1))
    for bookie in bench.bookies.values():
        bookie.delay_s = 0.1
    appends.add(100)
    assert store.pressure.pending_bytes == sum(map(len, appends.written))
    store.pressure.hold(limits.STORE_PENDING_BYTES_MAX)
    assert store.pressure.is_high
    with pytest.raises(StoreBusy):
        appends.writer.append(b"more", lambda *_: None)
    store.pressure.let_go(limits.STORE_PENDING_BYTES_MAX)
    await appends.finished()
    assert store.pressure.pending_bytes == 0
    assert appends.results == [None] * 100


async def test_too_few_bookies_for_a_new_ledger(bench: Bench) -> None:
    store = await bench.store()
    await next(iter(bench.bookies.values())).stop()
    await until(lambda: len(store.cluster.bookies.writable()) == 2)
    with pytest.raises(Unreachable, match="needs 3 bookies, but 2"):
        await store.create(1)
    assert [ledger_id async for ledger_id in store.list()] == []
