"""The embedded ledger store through crashes, power cuts and failing disks, by seeds.

Writers fill ledgers, fence each other and delete old ledgers while the store's process is killed
again and again. What was acknowledged must be there in every later life, in its order and with its
bytes; what a recovered ledger once showed it shows for ever; what was deleted stays deleted.
"""

import asyncio
import random

import pytest

from anabranch.errors import ConflictError, Fenced, NotFound, StorageError
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.ledgers.embedded_ledger import EmbeddedWriter
from anabranch.ledgers.store import LedgerState
from anabranch.runtime import Runtime
from anabranch.testing.contracts.ledgers import ids_of, payloads_of
from anabranch.testing.simulation import Process, World

WORKERS = 3
ROUNDS = 12
FAULTS = ("crash", "power cut", "failed sync", "failed write", "disk full", "pause and power cut")


class Promised:
    """What is known of one ledger outside the process that dies."""

    def __init__(self) -> None:
        self.created = False
        self.attempted: list[bytes] = []
        self.acknowledged = 0
        self.shown: int | None = None
        """How many entries it had when it was recovered; never changes again."""
        self.deleting = False
        self.deleted = False


class Witness:
    """Drives the store and remembers every promise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("work")
        self.ledgers: dict[int, Promised] = {}
        self.opens = 0
        self.operations = 0

    async def main(self, runtime: Runtime) -> None:
        """The process: open, check what must be there, then work until killed."""
        store = await EmbeddedLedgerStore.open_folder(
            runtime.disk, "data/ledgers", segment_bytes=4000
        )
        self.opens += 1
        await self.check(store)
        await asyncio.gather(*(self.work(store) for _ in range(WORKERS)))

    async def check(self, store: EmbeddedLedgerStore) -> None:
        """Compare a store that was just opened with the promises."""
        listed = await ids_of(store)
        assert set(listed) <= set(self.ledgers), "a ledger nobody created"
        for ledger_id, promised in self.ledgers.items():
            if ledger_id not in listed:
                assert promised.deleting or not promised.created, f"ledger {ledger_id} is lost"
                if promised.deleting:
                    promised.deleted = True
                continue
            assert not promised.deleted, f"ledger {ledger_id} is back from the dead"
            promised.created = True
            last = (await store.describe(ledger_id)).last_entry_id
            assert last >= promised.acknowledged - 1, f"ledger {ledger_id} lost entries"
            if promised.shown is not None or self.rng.random() < 0.7:
                await self.recover(store, ledger_id)
        for ledger_id, promised in self.ledgers.items():
            if promised.deleted and self.rng.random() < 0.2:
                with pytest.raises(ConflictError):
                    await store.create(ledger_id)

    async def recover(self, store: EmbeddedLedgerStore, ledger_id: int) -> None:
        """Open a ledger and hold it to what was promised."""
        promised = self.ledgers[ledger_id]
        acknowledged = promised.acknowledged
        reader = await store.open(ledger_id)
        found = await payloads_of(reader)
        assert found == promised.attempted[: len(found)], f"ledger {ledger_id}: wrong bytes"
        assert len(found) >= acknowledged, f"ledger {ledger_id}: acknowledged and lost"
        assert promised.shown in (None, len(found)), f"ledger {ledger_id} changed after recovery"
        assert (await store.describe(ledger_id)).state is LedgerState.CLOSED
        promised.shown = len(found)
        self.world.reach("recovered")

    async def work(self, store: EmbeddedLedgerStore) -> None:
        try:
            while True:
                await self.fill_one(store)
                if self.rng.random() < 0.5:
                    await self.delete_one(store)
        except StorageError:
            return

    async def fill_one(self, store: EmbeddedLedgerStore) -> None:
        ledger_id = len(self.ledgers)
        promised = self.ledgers[ledger_id] = Promised()
        writer = await store.create(ledger_id, custom_metadata={"n": b"%d" % ledger_id})
        promised.created = True
        for _ in range(self.rng.randrange(6)):
            if not await self.burst(writer, promised):
                return
        draw = self.rng.random()
        if draw < 0.3:
            assert await writer.close() == len(promised.attempted) - 1
            await self.recover(store, ledger_id)
        elif draw < 0.8:
            flood = asyncio.ensure_future(self.burst(writer, promised))
            await asyncio.sleep(self.rng.uniform(0, 0.002))
            await self.recover(store, ledger_id)
            await flood

    async def burst(self, writer: EmbeddedWriter, promised: Promised) -> bool:
        """Several appends in flight; False if the writer may not go on."""
        finished = asyncio.Event()
        missing = self.rng.randrange(1, 12)
        fine = True

        def done(entry_id: int, error: Exception | None) -> None:
            nonlocal missing, fine
            missing -= 1
            if error is None:
                assert entry_id == promised.acknowledged, "acknowledged out of order"
                promised.acknowledged += 1
                self.operations += 1
            else:
                fine = False
            if missing == 0:
                finished.set()

        for number in range(missing):
            payload = self.rng.randbytes(self.rng.choice((0, 10, 200, 2000)))
            promised.attempted.append(payload)
            try:
                writer.append(payload, done)
            except Fenced:
                promised.attempted.pop()
                self.world.reach("fenced")
                return False
            if number % 4 == 3:
                await asyncio.sleep(self.rng.choice((0, 0.0005)))
        await finished.wait()
        return fine

    async def delete_one(self, store: EmbeddedLedgerStore) -> None:
        known = [number for number, promised in self.ledgers.items() if not promised.deleting]
        ledger_id = self.rng.choice(known)
        promised = self.ledgers[ledger_id]
        if promised.shown is None:
            return
        promised.deleting = True
        await store.delete(ledger_id)
        promised.deleted = True
        self.world.reach("deleted")
        with pytest.raises(NotFound):
            await store.open(ledger_id)


async def bring_down(process: Process, fault: str, rng: random.Random) -> None:
    disk = process.machine.disk
    if fault in ("failed sync", "failed write"):
        disk.fail_next(fault.removeprefix("failed "))
        await asyncio.sleep(rng.uniform(0, 0.1))
    elif fault == "disk full":
        disk.capacity_bytes = 0
        await asyncio.sleep(rng.uniform(0, 0.1))
        disk.capacity_bytes = None
    elif fault == "pause and power cut":
        process.pause(0.05)
        await asyncio.sleep(rng.uniform(0, 0.1))
    disk._failures.clear()
    if not process.alive:
        return  # it could not open its store and has said so
    if rng.random() < 0.5 and fault != "power cut":
        process.crash()
    else:
        process.power_cut()


async def live_and_die(world: World) -> Witness:
    rng = world.rng("scenario")
    witness = Witness(world)
    process = world.process("store")
    process.start(witness.main, tolerates=(StorageError,))
    sync_s = world.conditions.sync_s
    for _ in range(ROUNDS):
        # Often within recovery, else in full swing; a slow disk needs longer for both.
        recovering, working = rng.uniform(0, 10 * sync_s), rng.uniform(0, 0.05 + 120 * sync_s)
        await asyncio.sleep(rng.choice((recovering, working)))
        await bring_down(process, rng.choice(FAULTS), rng)
        process.restart()
    await asyncio.sleep(0.1)
    process.power_cut()

    async def last_look(runtime: Runtime) -> None:
        store = await EmbeddedLedgerStore.open_folder(
            runtime.disk, "data/ledgers", segment_bytes=4000
        )
        await witness.check(store)
        await store.tidied()
        await witness.check(store)
        await store.close()

    await process.run(last_look)
    return witness


@pytest.mark.goal("core.L2", part="embedded", broken_by="journal_skips_sync")
@pytest.mark.parametrize("seed", range(25))
def test_promises_hold_over_every_crash(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        # Small enough that two writes are often under way at once.
        monkeypatch.setattr("anabranch.journal.journal.JOURNAL_WRITE_AHEAD_BYTES", 1500)
    witness = World(seed).run(live_and_die)
    assert witness.opens > 1
    assert witness.operations > 50


def test_seeds_reach_what_they_are_meant_to() -> None:
    """A few seeds together: fencing races, recoveries, deletions and removed segments."""
    reached: dict[str, int] = {}
    for seed in range(5):
        world = World(seed)
        world.run(live_and_die)
        for mark, times in world.reached.items():
            reached[mark] = reached.get(mark, 0) + times
        names = world.machine("store").disk.tree.folder("data/ledgers/journal").seen
        removed = int(sorted(names)[-1].partition(".")[0]) - len(names)
        reached["removed"] = reached.get("removed", 0) + removed
    assert min(reached[mark] for mark in ("fenced", "recovered", "deleted", "removed")) > 0
