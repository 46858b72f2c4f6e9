"""Looking at ledgers on bookies: nobody is fenced, every copy is held to its digest."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from anabranch.errors import ConfigError, NotFound, Unreachable
from anabranch.ledgers.bookkeeper.digests import Packet
from anabranch.ledgers.bookkeeper.inspection import CheckedCopies, LedgersOnBookies
from anabranch.ledgers.bookkeeper.ledger_metadata import EnsembleSegment, State
from anabranch.ledgers.bookkeeper.ledger_registry import LedgerRegistry
from anabranch.ledgers.bookkeeper.reading import EntryReads, Result, Wanted
from anabranch.ledgers.store import LedgerStore
from anabranch.limits import BOOKKEEPER_READS_AT_FIRST
from anabranch.testing.bookies.loopback import LoopbackBookie
from anabranch.testing.bookies.loopback_cluster import SETTINGS, LoopbackCluster
from anabranch.testing.contracts.ledgers import append

LEDGER = 7
ENTRIES = 20


class Bench:
    """Three bookies, a store that writes to them, and somebody who looks."""

    def __init__(self) -> None:
        self.cluster = LoopbackCluster()
        self.store: LedgerStore
        self.looking: LedgersOnBookies

    @property
    def bookies(self) -> list[LoopbackBookie]:
        return list(self.cluster.bookies.values())

    async def start(self) -> None:
        cluster = self.cluster
        await cluster.more_bookies(3)
        self.store = await cluster.store(replace(SETTINGS, write_quorum=2))
        self.looking = await LedgersOnBookies.open(cluster.runtime, cluster.metadata, SETTINGS)

    async def end(self) -> None:
        await self.looking.close()
        await self.cluster.end()

    async def checked(self) -> CheckedCopies:
        found = CheckedCopies()
        await self.looking.check(await self.looking.look(LEDGER), found, lambda _count: None)
        return found


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.end()


async def test_an_open_ledger_is_looked_at_and_its_writer_goes_on(bench: Bench) -> None:
    writer = await bench.store.create(LEDGER, custom_metadata={"component": b"schema"})
    for number in range(ENTRIES):
        await append(writer, b"%d" % number)
    seen = await bench.looking.look(LEDGER)
    assert seen.metadata.state is State.OPEN
    # The writer told with each entry that the one before is confirmed; of the last it tells later.
    assert seen.last_entry_id in (ENTRIES - 2, ENTRIES - 1)
    found = [bytes(entry.payload) async for entry in bench.looking.read(seen, 5, 1000)]
    assert found == [b"%d" % number for number in range(5, seen.last_entry_id + 1)]
    await append(writer, b"not fenced")
    assert await writer.close() == ENTRIES
    closed = await bench.looking.look(LEDGER)
    assert (closed.metadata.state, closed.last_entry_id) == (State.CLOSED, ENTRIES)
    assert [known.ledger_id async for known in bench.looking.list()] == [LEDGER]


async def fill(bench: Bench) -> None:
    writer = await bench.store.create(LEDGER)
    for number in range(ENTRIES):
        await append(writer, b"entry %02d" % number)
    await writer.close()


async def test_a_good_ledger_has_all_its_copies(bench: Bench) -> None:
    await fill(bench)
    found = await bench.checked()
    assert (found.ledgers, found.entries, found.copies) == (1, ENTRIES, 2 * ENTRIES)
    assert (found.lacking, found.unreachable, found.damage) == (0, 0, [])


async def test_every_bad_copy_is_named_with_its_bookie(bench: Bench) -> None:
    await fill(bench)
    hurt = bench.bookies[1]
    stored = hurt.shelves.ledgers[LEDGER].entries
    damaged, lost = sorted(stored)[:2]
    stored[damaged] = stored[damaged].replace(b"entry", b"ertry")
    del stored[lost]
    found = await bench.checked()
    assert found.copies == 2 * ENTRIES - 2
    assert found.lacking == 1
    assert [(bad.entry_id, bad.bookie) for bad in found.damage] == [(damaged, hurt.bookie_id)]
    # The other copy is served.
    seen = await bench.looking.look(LEDGER)
    assert len([entry async for entry in bench.looking.read(seen, 0, ENTRIES)]) == ENTRIES


async def test_an_entry_that_no_bookie_has_is_damage(bench: Bench) -> None:
    await fill(bench)
    for bookie in bench.bookies:
        bookie.shelves.ledgers[LEDGER].entries.pop(3, None)
    found = await bench.checked()
    assert [(bad.entry_id, bad.bookie) for bad in found.damage] == [(3, "")]


async def test_a_silent_bookie_is_not_taken_for_damage(bench: Bench) -> None:
    await fill(bench)
    await bench.bookies[0].stop(known=True)
    found = await bench.checked()
    assert found.damage == []
    assert found.lacking == 0
    assert found.copies + found.unreachable == 2 * ENTRIES
    assert found.unreachable > 0


async def test_an_open_ledger_of_silent_bookies_is_not_taken_for_empty(bench: Bench) -> None:
    writer = await bench.store.create(LEDGER)
    await append(writer, b"x", b"y")
    for bookie in bench.bookies[:2]:
        await bookie.stop(known=True)
    with pytest.raises(Unreachable, match="the end of ledger 7 is not known now"):
        await bench.looking.look(LEDGER)


async def test_a_deleted_ledger_is_gone_and_its_writer_fenced(bench: Bench) -> None:
    writer = await bench.store.create(LEDGER)
    await append(writer, b"x")
    await bench.looking.delete(LEDGER)
    with pytest.raises(NotFound):
        await bench.looking.look(LEDGER)
    assert [known.ledger_id async for known in bench.looking.list()] == []


async def test_an_open_ledger_is_read_on_where_it_was_moved_to(bench: Bench) -> None:
    one_each = replace(SETTINGS, ensemble_size=1, write_quorum=1, ack_quorum=1)
    writer = await (await bench.cluster.store(one_each)).create(LEDGER)
    for number in range(3 * BOOKKEEPER_READS_AT_FIRST):
        await append(writer, b"%d" % number)
    seen = await bench.looking.look(LEDGER)
    old = await bench.cluster.bookie_of(LEDGER, 0)
    new = next(bookie for bookie in bench.bookies if bookie is not old)
    new.shelves.ledgers[LEDGER] = old.shelves.ledgers.pop(LEDGER)
    registry = await LedgerRegistry.open(bench.cluster.metadata, bench.cluster.runtime)
    found = await registry.read(LEDGER)
    moved = replace(found.metadata, segments=(EnsembleSegment(0, (new.bookie_id,)),))
    await registry.replace(moved, found.version)
    read = [bytes(entry.payload) async for entry in bench.looking.read(seen, 0, 1000)]
    assert read == [b"%d" % number for number in range(seen.last_entry_id + 1)]
    assert len(read) > BOOKKEEPER_READS_AT_FIRST, "more than was asked for at first"


async def test_a_check_keeps_no_entry_that_it_has_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(bench)
    kept_bytes: list[int] = []
    real = EntryReads.read

    async def read(self: EntryReads, wanted: Sequence[Wanted]) -> dict[int, Result]:
        results = await real(self, wanted)
        kept_bytes.extend(len(x.payload) for x in results.values() if isinstance(x, Packet))
        return results

    monkeypatch.setattr(EntryReads, "read", read)
    found = await bench.checked()
    assert (found.copies, found.damage) == (2 * ENTRIES, [])
    assert kept_bytes == [0] * 2 * ENTRIES, "so it takes no more memory than an answer does"


async def test_a_ledger_with_another_password_is_not_deleted(bench: Bench) -> None:
    other = await bench.cluster.store(replace(SETTINGS, password=b"secret"))
    await (await other.create(LEDGER)).close()
    with pytest.raises(ConfigError, match="ledger 7 has another password than the settings"):
        await bench.looking.delete(LEDGER)
    assert (await bench.looking.describe(LEDGER)).password == b"secret", "it is still there"
