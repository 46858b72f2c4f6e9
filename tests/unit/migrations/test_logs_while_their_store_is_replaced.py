"""Topics' logs are written while the metadata store under them is held and replaced."""

import asyncio

import pytest

from anabranch.ids import EARLIEST, Position
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.migrations.engine.table import Verb
from anabranch.testing.staged_replacement import TARGET_URL, Stage, let_others_run, staged

NAME = "t/ns/persistent/topic"
ROLLS_AFTER = 10


def append(ledger: ManagedLedger, payload: bytes) -> "asyncio.Future[Position]":
    future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position | None, error: Exception | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            assert position is not None
            future.set_result(position)

    ledger.append(payload, done)
    return future


async def payloads(ledger: ManagedLedger) -> list[bytes]:
    found: list[bytes] = []
    start = EARLIEST
    while batch := await ledger.read(start, 100, 1 << 20):
        found += [bytes(entry.payload) for entry in batch]
        start = Position(batch[-1].ledger_id, batch[-1].entry_id + 1)
    return found


def opened(stage: Stage, ledgers: MemoryLedgerStore) -> ManagedLedgers:
    config = ManagedLedgerConfig(ledger_entries_max=ROLLS_AFTER)
    store = stage.anybody.store
    return ManagedLedgers(metadata=store, ledgers=ledgers, runtime=stage.runtime, config=config)


@pytest.mark.goal("rel.A18", part="logs", broken_by="held_writes_are_refused")
@pytest.mark.goal("454.A35", part="logs", broken_by="held_writes_are_refused")
async def test_an_open_ledger_is_written_on_and_all_else_waits_for_the_switch() -> None:
    async with staged("ash") as stage:
        await stage.have_a_tenant()
        ledgers = MemoryLedgerStore()
        logs = opened(stage, ledgers)
        log = await logs.open(NAME)
        cursor = await log.open_cursor("sub")
        first = [await append(log, b"%d" % number) for number in range(ROLLS_AFTER - 3)]
        await stage.reach("freezing")
        # What needs no metadata goes on as ever.
        async with asyncio.timeout(20.0):
            for number in range(ROLLS_AFTER - 3, ROLLS_AFTER - 1):
                await append(log, b"%d" % number)
            assert len(await payloads(log)) == ROLLS_AFTER - 1
        # A new ledger, a new subscription, a new topic and a cursor's place wait.
        rolling = [append(log, b"%d" % n) for n in range(ROLLS_AFTER - 1, 3 * ROLLS_AFTER)]
        waiting = [
            asyncio.ensure_future(log.open_cursor("late")),
            asyncio.ensure_future(logs.open(f"{NAME}-2")),
        ]
        cursor.acknowledge(first[:2])
        flushing = asyncio.ensure_future(cursor.flushed())
        await let_others_run()
        assert not rolling[-1].done()
        assert not any(task.done() for task in (*waiting, flushing))
        stage.go_on()
        await stage.until("switched")
        async with asyncio.timeout(20.0):
            await asyncio.gather(*rolling, *waiting, flushing)
        await stage.ask(Verb.FINALIZE)
        await stage.until("finalized")
        await logs.close()
        # Another process, that knows nothing but the target.
        target = await stage.open_store(TARGET_URL)
        again = ManagedLedgers(metadata=target, ledgers=ledgers, runtime=stage.runtime)
        log = await again.open(NAME, create=False)
        assert await payloads(log) == [b"%d" % number for number in range(3 * ROLLS_AFTER)]
        assert (await log.open_cursor("sub")).mark_delete == first[1]
        await again.open(f"{NAME}-2", create=False)
        await again.close()
        await target.close()
