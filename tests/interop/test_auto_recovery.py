"""Beside BookKeeper's auto-recovery, which repairs our ledgers, and takes open ones to do it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.bookkeeper.inspection import CheckedCopies, LedgersOnBookies
from anabranch.ledgers.bookkeeper.ledger_metadata import LedgerMetadata, State
from anabranch.ledgers.bookkeeper.settings import BookKeeperSettings
from anabranch.ledgers.bookkeeper.store import BookKeeperLedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgers
from anabranch.metadata.factory import open_store
from anabranch.metadata.store import MetadataStore
from anabranch.runtime.real import real_runtime
from anabranch.testing.bookies.registered import registered
from anabranch.testing.contracts.ledgers import append, payloads_of
from anabranch.testing.servers import Member, bookkeeper, free_port, set_up_cluster, zookeeper
from anabranch.testing.servers.bookkeeper import BookKeeper

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
GRACE_MS = 15_000
"""Time that auto-recovery leaves to writers; 30 s unless one waits for it in tests."""
AUTO_RECOVERY = {
    "autoRecoveryDaemonEnabled": "true",
    "openLedgerRereplicationGracePeriod": str(GRACE_MS),
    "lostBookieRecoveryDelay": "0",
    "zkTimeout": "4000",
}
PATIENCE_S = 150
_ids = iter(range(1000, 2000))


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, BookKeeper]]:
    with zookeeper() as ensemble:
        set_up_cluster(ensemble.url, port=free_port(), web_port=free_port())
        with bookkeeper(ensemble.url, 4, settings=AUTO_RECOVERY) as bookies:
            yield ensemble.url, bookies


@pytest.fixture
async def metadata(servers: tuple[str, BookKeeper]) -> AsyncIterator[MetadataStore]:
    metadata = await open_store(servers[0], real_runtime())
    yield metadata
    await metadata.close()


async def store_with(metadata: MetadataStore, *, leave_gone_s: float) -> BookKeeperLedgerStore:
    settings = BookKeeperSettings(leave_gone_s=leave_gone_s)
    store = await BookKeeperLedgerStore.open_cluster(real_runtime(), metadata, settings)
    await registered(store, 4)
    return store


async def ledger_of(store: BookKeeperLedgerStore, ledger_id: int) -> LedgerMetadata:
    return (await store.cluster.registry.read(ledger_id)).metadata


async def closed(store: BookKeeperLedgerStore, ledger_id: int) -> bool:
    return (await ledger_of(store, ledger_id)).state is State.CLOSED


async def left(store: BookKeeperLedgerStore, ledger_id: int, bookie: str, *, segment: int) -> bool:
    return bookie not in (await ledger_of(store, ledger_id)).segments[segment].bookies


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(int(PATIENCE_S / 0.2)):
        if await condition():
            return
        await asyncio.sleep(0.2)
    raise TimeoutError("it did not happen")


@contextmanager
def without(bookies: BookKeeper, bookie: str) -> Iterator[None]:
    """Kill a bookie, and leave it dead."""
    victim: Member = bookies.members[bookies.ports.index(int(bookie.rpartition(":")[2]))]
    victim.kill()
    yield
    victim.start()


@dataclass
class Results:
    """What became of appends to a managed ledger, in order."""

    log: ManagedLedger
    written: list[bytes] = field(default_factory=list)
    positions: list[Position | None] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.written.append(b"entry %d" % len(self.written))
            self.log.append(self.written[-1], self._done)

    def _done(self, position: Position | None, error: Exception | None) -> None:
        self.positions.append(position)
        if error is not None:
            self.errors.append(error)

    async def finished(self) -> None:
        async def answered() -> bool:
            return len(self.positions) == len(self.written)

        await until(answered)

    async def read(self) -> list[bytes]:
        found: list[bytes] = []
        start = EARLIEST
        while entries := await self.log.read(start, 100, 1 << 20):
            found += [bytes(entry.payload) for entry in entries]
            start = Position(entries[-1].ledger_id, entries[-1].entry_id + 1)
        return found


@pytest.mark.goal("core.L3", part="real bookies")
async def test_a_topic_goes_on_whose_ledger_auto_recovery_has_taken(
    metadata: MetadataStore, servers: tuple[str, BookKeeper]
) -> None:
    store = await store_with(metadata, leave_gone_s=0)
    owner = ManagedLedgers(metadata=metadata, ledgers=store, runtime=real_runtime())
    log = await owner.open("t/ns/persistent/taken")
    await log.open_cursor("keep", initial="earliest")
    results = Results(log)
    results.append(10)
    await results.finished()
    first = log.ledgers[-1].ledger_id
    with without(servers[1], (await ledger_of(store, first)).segments[-1].bookies[0]):
        await until(lambda: closed(store, first))
        results.append(20)
        await results.finished()
    assert results.errors == []
    assert log.is_usable
    assert [span.entries for span in log.ledgers] == [10, 20]
    assert await results.read() == results.written
    await log.close()
    await owner.close()
    await store.close()
    again = await store_with(metadata, leave_gone_s=0)
    later = ManagedLedgers(metadata=metadata, ledgers=again, runtime=real_runtime())
    assert await Results(await later.open("t/ns/persistent/taken")).read() == results.written
    await later.close()
    await again.close()


@pytest.mark.goal("core.L3", part="real bookies")
async def test_an_idle_writer_leaves_a_lost_bookie_before_auto_recovery_takes_its_ledger(
    metadata: MetadataStore, servers: tuple[str, BookKeeper]
) -> None:
    store = await store_with(metadata, leave_gone_s=2.0)
    ledger_id = next(_ids)
    writer = await store.create(ledger_id)
    await append(writer, *(b"%d" % number for number in range(10)))
    lost = (await ledger_of(store, ledger_id)).segments[-1].bookies[1]
    with without(servers[1], lost):
        await until(lambda: left(store, ledger_id, lost, segment=-1))
        # Auto-recovery repairs the first segment, and leaves the ledger to its writer.
        await until(lambda: left(store, ledger_id, lost, segment=0))
        await asyncio.sleep(2 * GRACE_MS / 1000)
        assert (await ledger_of(store, ledger_id)).state is State.OPEN
        await append(writer, *(b"%d" % number for number in range(10, 20)))
        assert await writer.close() == 19
    assert await payloads_of(await store.open(ledger_id)) == [b"%d" % n for n in range(20)]
    await store.close()


@pytest.mark.goal("core.L5", part="auto-recovery copies ours")
async def test_auto_recovery_makes_the_copies_that_a_lost_bookie_had(
    metadata: MetadataStore, servers: tuple[str, BookKeeper]
) -> None:
    store = await store_with(metadata, leave_gone_s=0)
    ledger_ids = [next(_ids) for _ in range(3)]
    for ledger_id in ledger_ids:
        writer = await store.create(ledger_id)
        await append(writer, *(b"%d of %d" % (number, ledger_id) for number in range(200)))
        await writer.close()
    before = {ledger_id: await ledger_of(store, ledger_id) for ledger_id in ledger_ids}
    lost = before[ledger_ids[0]].segments[0].bookies[0]
    other = await store_with(metadata, leave_gone_s=0)
    readers = {ledger_id: await other.open(ledger_id) for ledger_id in ledger_ids}
    look = await LedgersOnBookies.open(real_runtime(), metadata, BookKeeperSettings())
    with without(servers[1], lost):
        for ledger_id in ledger_ids:
            await until(lambda ledger_id=ledger_id: left(store, ledger_id, lost, segment=0))
        checked = CheckedCopies()
        for ledger_id in ledger_ids:
            await look.check(await look.look(ledger_id), checked, lambda _: None)
        assert (checked.entries, checked.copies) == (600, 1800)
        assert (checked.lacking, checked.unreachable, checked.damage) == (0, 0, [])
        # One who opened them before finds the bookies that have them now.
        for ledger_id, reader in readers.items():
            expected = [b"%d of %d" % (number, ledger_id) for number in range(200)]
            assert await payloads_of(reader) == expected
    await look.close()
    await other.close()
    await store.close()
