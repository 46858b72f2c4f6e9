"""How soon everybody writes again when the driver of a replacement crashes, in each phase."""

import asyncio

import pytest

from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.planted_run import Seeds
from anabranch.testing.replacement_on_disks import (
    BROKERS,
    REACHED_BY,
    SESSION_S,
    SOURCE,
    TARGET,
    Cluster,
    world_of,
)
from anabranch.testing.simulation import World

REOPEN_S_MAX = 15.0
"""After the lease of the lost driver, by a clock that waits for nobody."""
QUIET_S = 1.0


async def crash_in(world: World, phase: str) -> float:
    """Crash the driver in a phase; return how long after its lease others wrote again."""
    cluster = Cluster(world)
    await cluster.begin()
    await cluster.reach(phase)
    lost = await cluster.driver()
    (left,) = set(BROKERS) - {lost}
    loop = asyncio.get_running_loop()
    cluster.brokers[lost].crash()
    del cluster.members[lost]
    began_s = loop.time()
    cluster.go_on()
    await asyncio.sleep(QUIET_S)
    told = cluster.told(left)
    await asyncio.sleep(QUIET_S)
    assert (cluster.told(left) == told) == TABLE[phase].holds_writes, "the lease holds still"
    await cluster.until_written(only=(left,))
    took_s = loop.time() - began_s - SESSION_S
    cluster.brokers[lost].restart()
    ends = {"failed", "switched", "rolled back", "finalized"}
    state = await cluster.until(*ends)
    await cluster.check(SOURCE if state.phase in ("failed", "rolled back") else TARGET)
    return took_s


@pytest.mark.goal("trap.U2", part="in time", broken_by="new_driver_only_waits")
@pytest.mark.goal("rel.A4", part="in time", broken_by="new_driver_only_waits")
@pytest.mark.goal("454.A26", part="in time", broken_by="new_driver_only_waits")
@pytest.mark.parametrize("phase", REACHED_BY)
def test_writes_go_on_soon_after_the_lease_of_a_driver_that_crashed(
    phase: str, seeds: Seeds
) -> None:
    for seed in seeds(1):
        took_s = world_of(seed).run(lambda world: crash_in(world, phase))
        assert took_s <= REOPEN_S_MAX, f"seed {seed}: {took_s:.1f} s"
