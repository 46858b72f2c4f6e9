"""What deletes ledgers deletes none that may be named while the metadata store is replaced."""

import asyncio

import pytest

from anabranch.cli.ledgers_on_bookies import LedgersOfCluster
from anabranch.errors import ConflictError, NotFound
from anabranch.ids import Position
from anabranch.ledgers.memory import MemoryLedgerStore
from anabranch.managed_ledger import ManagedLedger, ManagedLedgerConfig, ManagedLedgers
from anabranch.managed_ledger.references import named_ledgers
from anabranch.managed_ledger.retention import Retention
from anabranch.metadata.served.server import MetadataServer
from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.state import Asked, Started
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.engine.under_way import refuse_while_moved
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.bookies.loopback_cluster import LoopbackCluster
from anabranch.testing.contracts.ledgers import append as append_to
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    SOURCE_URL,
    TARGET_URL,
    Stage,
    failed,
    let_others_run,
    staged,
)

NAME = "t/ns/persistent/topic"
ENTRIES = 12
ROLLS_AFTER = 3
LEDGER = 7


async def filled(log: ManagedLedger) -> list[Position]:
    """Write several ledgers full."""
    positions: list[Position] = []
    for number in range(ENTRIES):
        stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        log.append(b"%d" % number, lambda position, error, to=stored: to.set_result(position))  # type: ignore[misc]
        positions.append(await stored)
    return positions


async def check_named(stage: Stage, ledgers: MemoryLedgerStore, *urls: str) -> set[int]:
    """Whatever a store names is there."""
    named: set[int] = set()
    for url in urls:
        store = await stage.open_store(url)
        named |= await named_ledgers(store)
        await store.close()
    for ledger_id in named:
        try:
            await ledgers.open(ledger_id)
        except NotFound as error:
            raise AssertionError(f"ledger {ledger_id} is named, and gone") from error
    return named


@pytest.mark.goal(
    "rel.A28", part="trimming", broken_by="trimmed_ledgers_go_before_they_are_unlinked"
)
@pytest.mark.parametrize("phase", [*BEFORE_SWITCH, "leading", "switched"])
async def test_trimming_deletes_only_what_the_store_in_use_does_not_name(phase: str) -> None:
    async with staged("ash") as stage:
        await stage.have_a_tenant()
        ledgers = MemoryLedgerStore()
        config = ManagedLedgerConfig(ledger_entries_max=ROLLS_AFTER, retention=Retention(-1, -1))
        store = stage.anybody.store
        logs = ManagedLedgers(metadata=store, ledgers=ledgers, runtime=stage.runtime, config=config)
        log = await logs.open(NAME)
        cursor = await log.open_cursor("sub")
        cursor.acknowledge((await filled(log))[:-1])
        await cursor.flushed()
        before = await check_named(stage, ledgers, SOURCE_URL)
        await stage.reach(phase)
        waiting = asyncio.ensure_future(log.truncate())
        await let_others_run()
        used = TARGET_URL if phase == "switched" else SOURCE_URL
        await check_named(stage, ledgers, used)
        stage.go_on()
        await stage.until("switched")
        await stage.all_on("target")
        await waiting
        after = await check_named(stage, ledgers, TARGET_URL)
        assert min(after) > min(before), "something was trimmed"
        await stage.ask(Verb.ROLLBACK)
        await stage.until("rolled back")
        await stage.all_on("source")
        assert await check_named(stage, ledgers, SOURCE_URL) == after
        await logs.close()


async def refused(store: MetadataStore) -> bool:
    try:
        await refuse_while_moved(store)
    except ConflictError:
        return True
    return False


@pytest.mark.goal("rel.A28", part="commands", broken_by="moved_metadata_are_believed")
async def test_no_store_is_believed_in_any_phase_but_the_one_that_is_in_use_alone() -> None:
    async with staged("ash") as stage:
        source, target = [await stage.open_store(url) for url in (SOURCE_URL, TARGET_URL)]
        assert not await refused(source)
        await stage.reach(BEFORE_SWITCH[0])
        for following in (*BEFORE_SWITCH[1:], "leading", "switched"):
            assert await refused(source)
            stage.hold(following)
            await stage.until_held()
            assert await refused(target), "not all names are there yet, or it may be left again"
        stage.go_on()
        await stage.ask(Verb.ROLLBACK)
        await stage.until("rolled back")
        assert (await refused(source), await refused(target)) == (False, True)
        await stage.start()
        await stage.until("switched")
        assert (await refused(source), await refused(target)) == (True, True)
        await stage.ask(Verb.FINALIZE)
        await stage.until("finalized")
        assert (await refused(source), await refused(target)) == (True, False)
        await source.close()
        await target.close()


@pytest.mark.goal("rel.A28", part="commands", broken_by="moved_metadata_are_believed")
@pytest.mark.parametrize("force", [False, True])
async def test_ledgers_on_bookies_stay_while_their_metadata_are_moved(force: bool) -> None:
    cluster = LoopbackCluster()
    await cluster.more_bookies(3)
    server = MetadataServer(cluster.runtime, cluster.metadata, on_failure=failed)
    await server.start("127.0.0.1", 0)
    ledgers = await cluster.store()
    writer = await ledgers.create(LEDGER, custom_metadata={"component": b"managed-ledger"})
    await append_to(writer, b"needed")
    await writer.close()
    place = LedgersOfCluster(
        "bookkeeper:",
        metadata=f"anabranch://127.0.0.1:{server.port}",
        metadata_credentials="",
        credentials="",
    )
    journal = Journal(cluster.metadata, cluster.runtime, "metadata", TABLE)
    await journal.change(Started("somebody", "a", {"target": "memory:"}, ()))
    with pytest.raises(ConflictError, match=r"phase 'preparing'.* nothing was removed"):
        await place.delete(cluster.runtime, LEDGER, dry_run=False, force=force)
    with pytest.raises(ConflictError, match="phase 'preparing'"):
        await place.rows(cluster.runtime, orphans=True)
    await journal.change(Asked("somebody", Verb.ABORT))
    with pytest.raises(ConflictError, match="phase 'aborting'"):
        await place.delete(cluster.runtime, LEDGER, dry_run=False, force=force)
    assert (await cluster.ledger(LEDGER)).length == len(b"needed")
    await server.close()
    await cluster.end()
