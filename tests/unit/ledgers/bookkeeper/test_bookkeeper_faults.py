"""Appends to ledgers on bookies that fail, with model bookies behind real sockets."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    OutcomeUnknown,
    StorageError,
    StoreBusy,
    Unreachable,
)
from anabranch.ledgers.bookkeeper.ledger_writer import BookKeeperWriter
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.metadata.store import MetadataStore
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster, until
from anabranch.testing.bookies.server import REFUSES
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.unanswered import Lose, UnansweredStore


@pytest.fixture
async def bench() -> AsyncIterator[LoopbackCluster]:
    bench = LoopbackCluster()
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


async def unanswered(
    bench: LoopbackCluster, wait_s: float = SETTINGS.quorum_wait_s
) -> tuple[UnansweredStore, BookKeeperLedgerStore]:
    """A store whose metadata can be made to lose requests; the test closes it."""
    metadata = UnansweredStore(bench.metadata)
    settings = replace(SETTINGS, quorum_wait_s=wait_s)
    store = await BookKeeperLedgerStore.open_cluster(
        bench.runtime, cast("MetadataStore", metadata), settings
    )
    return metadata, store


@pytest.mark.goal("core.L3", part="lost bookie", broken_by="a_lost_connection_ends_the_ledger")
async def test_a_lost_bookie_is_replaced_and_no_append_fails(bench: LoopbackCluster) -> None:
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


async def test_every_entry_of_a_new_segment_is_on_its_bookies(bench: LoopbackCluster) -> None:
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


async def test_without_a_spare_bookie_appends_go_on(bench: LoopbackCluster) -> None:
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


async def test_a_spare_bookie_that_comes_takes_the_place(bench: LoopbackCluster) -> None:
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


async def test_a_silent_bookie_does_not_stop_appends(bench: LoopbackCluster) -> None:
    await bench.more_bookies(1)
    appends = Appends(await (await bench.store()).create(1))
    silent = await bench.bookie_of(1, 0)
    silent.delay_s = 60
    appends.add(10)
    await appends.finished()
    assert appends.results == [None] * 10
    await bench.until_without(1, silent)


async def test_a_full_bookie_is_replaced(bench: LoopbackCluster) -> None:
    await bench.more_bookies(1)
    appends = Appends(await (await bench.store()).create(1))
    full = await bench.bookie_of(1, 0)
    full.shelves.read_only = True
    appends.add(10)
    await appends.finished()
    assert appends.results == [None] * 10
    await bench.until_without(1, full)


async def test_too_few_bookies_for_too_long_end_the_writer_but_not_the_ledger(
    bench: LoopbackCluster,
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


@pytest.mark.goal("core.L3", part="lost bookie", broken_by="an_answer_counts_as_taking_entries")
@pytest.mark.parametrize("delay_s", [60.0, REFUSES])
async def test_bookies_that_answer_and_take_nothing_are_not_waited_for_without_end(
    bench: LoopbackCluster, delay_s: float
) -> None:
    """Asked for what they have they answer at once; entries lie there, or are refused."""
    writer = await (await bench.store()).create(1)
    await append(writer, b"kept")
    for place in (0, 1):
        (await bench.bookie_of(1, place)).treat = (  # type: ignore[method-assign]
            lambda request: delay_s if request.HasField("add") else 0.0
        )
    finished: list[Exception | None] = []
    writer.append(b"lost", lambda _, error: finished.append(error))
    await until(lambda: finished)
    assert isinstance(finished[0], Unreachable)
    assert await writer.close() == 0


async def test_a_bookie_that_takes_entries_again_in_time_ends_the_wait(
    bench: LoopbackCluster,
) -> None:
    writer = await (await bench.store(replace(SETTINGS, quorum_wait_s=4.0))).create(1)
    hung = [await bench.bookie_of(1, place) for place in (0, 1)]
    appends = Appends(writer)
    for _ in range(2):
        for bookie in hung:
            bookie.delay_s = REFUSES
        appends.add(1)
        await asyncio.sleep(2.5)
        for bookie in hung:
            bookie.delay_s = 0.0
        await appends.finished()
    assert appends.results == [None, None]


@pytest.mark.goal("core.L3", part="lost bookie", broken_by="ensemble_changes_wait_for_ever")
@pytest.mark.parametrize(
    ("loss", "told"), [(Lose.EVERYTHING, Unreachable), (Lose.REQUEST, OutcomeUnknown)]
)
async def test_metadata_that_are_away_for_too_long_end_the_writer_but_not_the_ledger(
    bench: LoopbackCluster,
    monkeypatch: pytest.MonkeyPatch,
    loss: Lose,
    told: type[AnabranchError],
) -> None:
    """A bookie is lost, and nobody can write down who takes its place."""
    monkeypatch.setattr(limits, "BOOKKEEPER_UNKNOWN_OUTCOME_S_MAX", 1.0)
    await bench.more_bookies(1)
    metadata, store = await unanswered(bench)
    writer = await store.create(1)
    await append(writer, b"kept")
    metadata.lose("put", *[loss] * 1000)
    await (await bench.bookie_of(1, 1)).stop()
    errors: list[Exception | None] = []
    for payload in (b"never", b"confirmed"):
        writer.append(payload, lambda _, error: errors.append(error))
    await until(lambda: len(errors) == 2)
    assert [type(error) for error in errors] == [told, told]
    with pytest.raises(StorageError, match="takes no entries any more"):
        writer.append(b"late", lambda *_: None)
    await store.close()
    assert (await payloads_of(await (await bench.store()).open(1)))[:1] == [b"kept"]


async def test_metadata_that_come_back_in_time_cost_no_append(bench: LoopbackCluster) -> None:
    await bench.more_bookies(1)
    metadata, store = await unanswered(bench, wait_s=limits.BOOKKEEPER_QUORUM_WAIT_S)
    appends = Appends(await store.create(1))
    appends.add(5)
    await appends.finished()
    metadata.lose("put", Lose.EVERYTHING, Lose.EVERYTHING)
    lost = await bench.bookie_of(1, 1)
    await lost.stop()
    appends.add(20)
    await appends.finished()
    assert appends.results == [None] * 25
    assert lost.bookie_id not in (await bench.ledger(1)).segments[-1].bookies
    await store.close()


async def test_a_writer_that_could_not_close_its_ledger_is_not_kept(
    bench: LoopbackCluster,
) -> None:
    metadata, store = await unanswered(bench)
    writer = await store.create(1)
    await append(writer, b"kept")
    metadata.lose("put", Lose.EVERYTHING)
    closed = await asyncio.gather(writer.close(), return_exceptions=True)
    assert [type(result) for result in closed] == [Unreachable]
    kept = weakref.ref(writer)
    del writer, closed

    def is_gone() -> bool:
        gc.collect()
        return kept() is None

    await until(is_gone)  # not at once: it still tells bookies of the last entry
    assert await payloads_of(await store.open(1)) == [b"kept"]
    await store.close()


async def test_a_writer_that_its_owner_has_let_go_of_is_not_kept(bench: LoopbackCluster) -> None:
    """As one of a ledger of which it is not known whether anything names it."""
    store = await bench.store(replace(SETTINGS, explicit_lac_s=0))
    writer = await store.create(1)
    results: list[Exception | None] = []
    writer.append(b"kept", lambda _, error: results.append(error))
    kept = weakref.ref(writer)
    del writer
    await until(lambda: results)
    assert results == [None], "what is under way goes on"

    def is_gone() -> bool:
        gc.collect()
        return kept() is None

    await until(is_gone)  # not at once: the last bookie may still have to answer
    assert await payloads_of(await store.open(1)) == [b"kept"]


async def test_a_ledger_that_could_not_be_closed_can_be_closed_later(
    bench: LoopbackCluster,
) -> None:
    metadata, store = await unanswered(bench)
    writer = await store.create(1)
    await append(writer, b"kept")
    metadata.lose("put", Lose.EVERYTHING)
    with pytest.raises(Unreachable):
        await writer.close()
    assert await writer.close() == 0
    assert (await bench.ledger(1)).last_entry_id == 0
    await store.close()


@pytest.mark.goal("core.L3", part="last confirmed", broken_by="packets_know_of_nothing_confirmed")
async def test_entries_carry_the_last_confirmed_one(bench: LoopbackCluster) -> None:
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
async def test_bookies_are_told_of_the_last_entry(bench: LoopbackCluster) -> None:
    writer = await (await bench.store()).create(1)
    await append(writer, b"123", b"45")
    other = await bench.store()
    told = [bookie.shelves.ledgers[1] for bookie in bench.bookies.values()]
    await until(lambda: all(shelf.confirmed == 1 for shelf in told))
    description = await other.describe(1)
    assert (description.last_entry_id, description.length_bytes) == (1, 5)
    assert await append(writer, b"still open") == [2]


@pytest.mark.goal("core.L3", part="back-pressure", broken_by="appends_to_bookies_press_nobody")
async def test_what_bookies_do_not_have_presses_until_nothing_more_is_taken(
    bench: LoopbackCluster,
) -> None:
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


async def test_too_few_bookies_for_a_new_ledger(bench: LoopbackCluster) -> None:
    store = await bench.store()
    await next(iter(bench.bookies.values())).stop()
    await until(lambda: len(store.cluster.bookies.writable()) == 2)
    with pytest.raises(Unreachable, match="needs 3 bookies, but 2"):
        await store.create(1)
    assert [ledger_id async for ledger_id in store.list()] == []
