"""A managed ledger on the embedded stores through crashes, power cuts and take-overs, by seeds.

A producer and two subscriptions work on one topic while its process is killed again and again and
other owners take the topic over. What was acknowledged must be there after every restart, in order
and once; an acknowledged acknowledgement stays; nothing is trimmed that was not acknowledged.
"""

import asyncio
import random

import pytest

from anabranch import limits
from anabranch.errors import AlreadyClosed, Fenced, OutcomeUnknown, StorageError
from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.embedded import EmbeddedLedgerStore
from anabranch.managed_ledger import (
    Cursor,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgers,
    SchemaInfo,
)
from anabranch.managed_ledger.formats import decode_cursor
from anabranch.metadata.factory import open_store
from anabranch.runtime import Runtime
from anabranch.testing.simulation import Process, World

NAME = "t/ns/persistent/topic"
SUBSCRIPTIONS = ("one", "two")
ROUNDS = 6
CONFIG = ManagedLedgerConfig(ledger_entries_max=20, entry_cache_bytes_max=20_000)
LOST = (Fenced, AlreadyClosed, OutcomeUnknown, StorageError)
"""What an owner may see whose stores failed or whose topic was taken over."""


class Witness:
    """What was promised so far, kept outside the process that dies."""

    def __init__(self, rng: random.Random, pace: float) -> None:
        self.rng = rng
        self.pace = pace
        """How much slower than usual the disk is."""
        self.attempted = 0
        self.stored: dict[int, Position] = {}
        self.asked: dict[str, set[Position]] = {name: set() for name in SUBSCRIPTIONS}
        self.answered: dict[str, set[Position]] = {name: set() for name in SUBSCRIPTIONS}
        self.marks = dict.fromkeys(SUBSCRIPTIONS, EARLIEST)
        self.schemas = 0
        self.opens = 0
        self.take_overs = 0
        self.highest_ledger = -1
        self.large_cursors = 0

    async def main(self, runtime: Runtime) -> None:
        """The process: open, check what must be there, then work until killed."""
        metadata = await open_store("embedded:data/metadata", runtime)
        ledgers = await EmbeddedLedgerStore.open_folder(runtime.disk, "data/ledgers")
        owners = 0
        while True:
            owner = ManagedLedgers(
                metadata=metadata, ledgers=ledgers, runtime=runtime, config=CONFIG
            )
            for name in SUBSCRIPTIONS:
                node = await metadata.get(f"/managed-ledgers/{NAME}/{name}")
                if node is not None:
                    self.large_cursors += decode_cursor(node.value, name).cursor_ledger_id >= 0
            topic = await self.take_over(owner)
            self.opens += 1
            cursors = [await topic.open_cursor(name, initial="earliest") for name in SUBSCRIPTIONS]
            await self.check(topic, cursors)
            work = asyncio.gather(
                self.produce(topic),
                *(self.consume(topic, cursor) for cursor in cursors),
                self.add_schemas(owner),
            )
            # The next owner takes over without asking while this one is at work.
            await asyncio.wait([work], timeout=self.pace * self.rng.uniform(0.01, 0.1))
            owners += 1
            self.take_overs += owners > 1

    async def take_over(self, owner: ManagedLedgers) -> ManagedLedger:
        while True:
            try:
                return await owner.open(NAME)
            except Fenced:
                # The present owner went on to another ledger meanwhile; try as a broker would.
                await asyncio.sleep(0.001)

    async def check(self, topic: ManagedLedger, cursors: list[Cursor]) -> None:
        """Compare a topic that was just opened with the promises."""
        newest = topic.ledgers[-1].ledger_id
        assert newest > self.highest_ledger, "ledger ids rise over every life"
        self.highest_ledger = newest
        found: dict[int, Position] = {}
        start = EARLIEST
        while entries := await topic.read(start, 50, 1 << 20):
            for entry in entries:
                start = Position(entry.ledger_id, entry.entry_id + 1)
                number = int(bytes(entry.payload).split(b" ")[0])
                assert not found or number > next(reversed(found)), "out of order, or twice"
                found[number] = Position(entry.ledger_id, entry.entry_id)
        first = topic.first_position()
        for number, position in self.stored.items():
            if position >= first:
                assert found.get(number) == position, f"entry {number} at {position} is lost"
            else:
                for name in SUBSCRIPTIONS:
                    assert position in self.asked[name], f"{position} was trimmed unread"
        for cursor in cursors:
            assert cursor.mark_delete >= self.marks[cursor.name], "a mark went back"
            for position in self.answered[cursor.name]:
                assert cursor.is_acknowledged(position), f"the ack of {position} is lost"
            for position in found.values():
                if cursor.is_acknowledged(position):
                    assert position in self.asked[cursor.name], f"nobody acked {position}"
        # What survived unacknowledged is now a fact like any other.
        self.stored.update(found)

    async def produce(self, topic: ManagedLedger) -> None:
        while topic.error is None:
            for _ in range(self.rng.randrange(1, 12)):
                self.attempted += 1
                number = self.attempted
                payload = b"%d " % number + b"x" * self.rng.randrange(300)

                def done(
                    position: Position | None, error: Exception | None, number: int = number
                ) -> None:
                    if position is not None:
                        self.stored[number] = position
                    else:
                        assert isinstance(error, LOST), error

                topic.append(payload, done)
            await asyncio.sleep(self.rng.uniform(0, 0.003))

    async def consume(self, topic: ManagedLedger, cursor: Cursor) -> None:
        name = cursor.name
        while topic.error is None:
            await asyncio.sleep(self.rng.uniform(0, 0.004))
            start = cursor.next_unacknowledged(EARLIEST)
            try:
                entries = await topic.read(start, self.rng.randrange(1, 30), 1 << 20)
            except LOST:
                return
            positions = [Position(entry.ledger_id, entry.entry_id) for entry in entries]
            if not positions:
                continue
            if self.rng.random() < 0.3:
                asked = {p for p in self.stored.values() if p <= positions[-1]} | set(positions)
                cursor.acknowledge_cumulative(positions[-1])
            else:
                asked = {p for p in positions if self.rng.random() < 0.7}
                cursor.acknowledge(sorted(asked))
            self.asked[name] |= asked
            if self.rng.random() < 0.5:
                self.flush(cursor, asked)

    def flush(self, cursor: Cursor, asked: set[Position]) -> None:
        mark = cursor.mark_delete

        def done(error: Exception | None) -> None:
            if error is None:
                self.answered[cursor.name] |= asked
                self.marks[cursor.name] = max(self.marks[cursor.name], mark)
            else:
                assert isinstance(error, LOST), error

        cursor.flush(done)

    async def add_schemas(self, owner: ManagedLedgers) -> None:
        known = await owner.schemas.versions("t/ns/topic")
        assert len(known) >= self.schemas, "a schema version is lost"
        for stored in known:
            assert stored.info.schema == b"schema %d" % stored.version
        number = len(known)
        try:
            info = SchemaInfo("t/ns/topic", 2, b"schema %d" % number)
            version = await owner.schemas.put_if_absent("t/ns/topic", info, b"%d" % number)
        except LOST:
            return
        assert version == number
        self.schemas = number + 1


async def bring_down(process: Process, fault: str, rng: random.Random) -> None:
    disk = process.machine.disk
    if fault.startswith("failed"):
        disk.fail_next(fault.removeprefix("failed "))
        await asyncio.sleep(rng.uniform(0, 0.05))
    disk._failures.clear()
    if not process.alive:
        return  # it could not open its stores and has said so
    if fault in ("crash", "failed sync"):
        process.crash()
    else:
        process.power_cut()


async def live_and_die(world: World) -> Witness:
    rng = world.rng("scenario")
    pace = max(1.0, world.conditions.sync_s / 0.001)
    witness = Witness(world.rng("work"), pace)
    process = world.process("broker")
    process.start(witness.main, tolerates=LOST)
    for _ in range(ROUNDS):
        await asyncio.sleep(pace * rng.choice((rng.uniform(0, 0.03), rng.uniform(0, 0.25))))
        await bring_down(
            process, rng.choice(("crash", "power cut", "failed sync", "failed write")), rng
        )
        process.restart()
    await asyncio.sleep(pace * 0.2)
    return witness


@pytest.mark.goal(
    "core.L6", part="offset-free reopen after crash", broken_by="recovery_misses_the_last_entry"
)
@pytest.mark.goal(
    "core.L7", part="acknowledgements survive crashes", broken_by="ack_answered_before_durable"
)
@pytest.mark.goal("core.L13", part="one authority", broken_by="ids_start_anew")
@pytest.mark.parametrize("seed", range(25))
def test_promises_hold_over_every_crash_and_take_over(seed: int) -> None:
    witness = World(seed).run(live_and_die)
    assert witness.opens > 1
    assert witness.stored


@pytest.fixture
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cursors outgrow their nodes all the time, and their ledgers soon after."""
    monkeypatch.setattr(limits, "CURSOR_RANGES_BYTES_MAX", 60)
    monkeypatch.setattr(limits, "CURSOR_LEDGER_ENTRIES_MAX", 4)


@pytest.mark.goal("core.L7", part="large cursor in a ledger", broken_by="cursor_ledger_is_not_read")
@pytest.mark.usefixtures("small_nodes")
@pytest.mark.parametrize("seed", range(100, 110))
def test_promises_hold_while_cursors_move_between_nodes_and_ledgers(seed: int) -> None:
    witness = World(seed).run(live_and_die)
    assert witness.opens > 1
    assert witness.stored


@pytest.mark.usefixtures("small_nodes")
def test_seeds_reach_cursors_in_ledgers() -> None:
    witnesses = [World(seed).run(live_and_die) for seed in range(100, 103)]
    assert sum(w.large_cursors for w in witnesses) > 10


def test_seeds_reach_what_they_are_meant_to() -> None:
    """Over a few seeds: rolls and trims, take-overs, answered acknowledgements, schemas."""
    witnesses = [World(seed).run(live_and_die) for seed in range(5)]
    assert sum(w.take_overs for w in witnesses) > 10
    assert sum(len(w.stored) for w in witnesses) > 2500
    assert sum(len(a) for w in witnesses for a in w.answered.values()) > 1250
    assert sum(w.schemas for w in witnesses) > 6
