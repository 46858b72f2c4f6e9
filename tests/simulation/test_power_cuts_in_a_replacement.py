"""Power is cut, of a store or of everything, in each phase in which one store replaces another."""

import asyncio

import pytest

from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.planted_run import Seeds
from anabranch.testing.replacement_on_disks import (
    REACHED_BY,
    SOURCE,
    STORES,
    TARGET,
    Cluster,
    world_of,
)
from anabranch.testing.simulation import World

DARK_S = 0.5
OF_ONE_STORE = ("copying", "freezing", "switching", "switched", "returning", "finalizing")


def ends_of(phase: str) -> set[str]:
    """Where an attempt may stand that was struck in a phase, once nobody waits any more."""
    verb = REACHED_BY[phase]
    if verb is Verb.FINALIZE:
        return {"finalized"}
    if verb is Verb.ROLLBACK:
        return {"switched" if TABLE[phase].new_driver_fails_it else "rolled back"}
    return {"failed" if TABLE[phase].new_driver_fails_it else "switched"}


async def strike(world: World, phase: str, *, everything: bool, stores: tuple[str, ...]) -> None:
    cluster = Cluster(world)
    await cluster.begin()
    await cluster.reach(phase)
    before = cluster.promises.count
    cluster.cut_power(stores, brokers=everything)
    cluster.go_on()
    await asyncio.sleep(DARK_S)
    cluster.power_up()
    ends = ends_of(phase) if everything else {"failed", "switched", "rolled back", "finalized"}
    state = await cluster.until(*ends)
    used = SOURCE if state.phase in ("failed", "rolled back") else TARGET
    assert await cluster.in_use() == used
    await cluster.check(used)
    assert cluster.promises.count > before
    if state.phase == "failed":
        await cluster.start()
        await cluster.until("switched")
        await cluster.check(TARGET)
    elif state.phase == "switched":
        await cluster.ask(Verb.ROLLBACK)
        await cluster.until("rolled back")
        await cluster.check(SOURCE)


@pytest.mark.goal("rel.X2", part="stores", broken_by="journal_skips_sync")
@pytest.mark.parametrize("phase", REACHED_BY)
def test_nothing_acknowledged_is_lost_when_all_power_fails(phase: str, seeds: Seeds) -> None:
    for seed in seeds(1):
        world_of(seed).run(lambda w: strike(w, phase, everything=True, stores=STORES))


@pytest.mark.goal("rel.X2", part="stores", broken_by="journal_skips_sync")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("phase", OF_ONE_STORE)
def test_nothing_acknowledged_is_lost_when_one_store_loses_its_power(
    phase: str, store: str, seeds: Seeds
) -> None:
    for seed in seeds(1):
        world_of(seed).run(lambda w: strike(w, phase, everything=False, stores=(store,)))
