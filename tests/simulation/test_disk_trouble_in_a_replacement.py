"""A sync fails, or a bit is not what was written, at a store that replaces another or is replaced.

The server of such a store acknowledges nothing after a sync that failed, and ends; it does not
start on bytes that are not what was written. The others wait for it, or give the attempt up.
"""

import asyncio
from typing import Any

import pytest

from anabranch.errors import Corruption, FormatError, StorageError
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.planted_run import Seeds
from anabranch.testing.replacement_on_disks import (
    DATA,
    SOURCE,
    STORES,
    TARGET,
    Cluster,
    world_of,
)
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import BEFORE_SWITCH

LOG = f"{DATA}/metadata/log"
ANSWERED_S = 0.1
"""What a server sent before its disk failed has come by then."""
ENDED_S = 15.0
SETTLED_S = 0.5
"""By then a journal has noted that its last records are durable; so damage is no torn tail."""
AWAY_S = 8.0
"""Longer than sessions last, and than writes may wait in one phase."""
STRUCK = ("copying", "freezing", "switching", "leading", "switched", "returning", "finalizing")
ENDS = ("failed", "aborted", "switched", "rolled back", "finalized")


class SyncWitness:
    """Notes what a machine syncs from the first failed sync on."""

    def __init__(self, disk: Any) -> None:
        self.failed = asyncio.Event()
        self.path = ""
        self.later: list[str] = []
        self._sync = disk.sync
        disk.sync = self._note

    def _note(self, inode: Any, path: str) -> None:
        if self.path:
            self.later.append(path)
        try:
            self._sync(inode, path)
        except OSError:
            self.path = path
            self.failed.set()
            raise


async def come_to_an_end(cluster: Cluster) -> None:
    """Whatever came of an attempt: brokers write, nothing is lost, another is not in its way."""
    state = await cluster.until(*ENDS)
    assert state.error or state.phase != "failed", "a failure says why"
    used = SOURCE if state.phase in ("failed", "aborted", "rolled back") else TARGET
    assert await cluster.in_use() == used
    await cluster.check(used)
    if used == SOURCE:
        await cluster.start()
        await cluster.until("switched")
        await cluster.check(TARGET)


async def fail_a_sync(world: World, phase: str, store: str) -> None:
    cluster = Cluster(world)
    await cluster.begin()
    await cluster.reach(phase)
    used = await cluster.in_use()
    server = cluster.servers[store]
    witness = SyncWitness(server.machine.disk)
    server.machine.disk.fail_next("sync", LOG)
    cluster.go_on()
    async with asyncio.timeout(ENDED_S):
        await witness.failed.wait()
        await asyncio.sleep(ANSWERED_S)
        told = cluster.promises.count
        await server.wait_exit()
    assert isinstance(server.exit_error, StorageError), server.exit_error
    assert "log" in str(server.exit_error)
    assert witness.path not in witness.later, "a sync that failed is not tried again"
    if used == store and not TABLE[phase].holds_writes and phase != "finalizing":
        assert cluster.promises.count == told, "nothing is acknowledged after it"
    # What is only in the kernel's memory is of no use to whoever starts next.
    server.power_cut()
    server.restart()
    await come_to_an_end(cluster)


@pytest.mark.goal("rel.X4", part="replaced store", broken_by="failed_write_counts_as_done")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("phase", STRUCK)
def test_a_store_ends_when_a_sync_fails_and_nothing_is_lost(
    phase: str, store: str, seeds: Seeds
) -> None:
    for seed in seeds(1):
        world_of(seed).run(lambda w: fail_a_sync(w, phase, store))


async def flip_a_bit(world: World, phase: str, store: str) -> None:
    cluster = Cluster(world)
    await cluster.begin()
    await cluster.reach(phase)
    server = cluster.servers[store]
    disk = server.machine.disk
    await asyncio.sleep(SETTLED_S)
    server.crash()
    (*_, path) = sorted(name for name, _ in disk.tree.files() if name.startswith(f"{LOG}/"))
    rng = world.rng("bits")
    offset, bit = rng.randrange(len(disk.tree.file(path).seen) // 2), rng.randrange(8)
    disk.flip_bit(path, offset, bit)
    cluster.go_on()
    for _ in range(2):
        server.restart()
        await server.wait_exit()
        assert isinstance(server.exit_error, Corruption | FormatError), server.exit_error
        assert path in str(server.exit_error), "it says where"
    if store == TARGET and phase in BEFORE_SWITCH:
        await give_up(cluster, phase)
        # The operator takes another store, or an empty folder.
        return
    await asyncio.sleep(AWAY_S)
    # Somebody brings back the file as it was.
    disk.flip_bit(path, offset, bit)
    server.restart()
    await come_to_an_end(cluster)


async def until_trouble_is_shown(cluster: Cluster) -> None:
    """The status says that the target does not answer."""
    async with asyncio.timeout(ENDED_S):
        while True:
            shown = (await cluster.status()).shown
            if shown is not None and "cannot be reached" in shown.trouble:
                return
            await asyncio.sleep(SETTLED_S)


async def give_up(cluster: Cluster, phase: str) -> None:
    """A target that is spoiled for good: brokers stay on the source, whoever ends the attempt."""
    if TABLE[phase].holds_writes:
        state = await cluster.until("failed")
        assert state.error
    else:
        await cluster.until_written()
        await until_trouble_is_shown(cluster)
        await cluster.ask(Verb.ABORT)
        await cluster.until("aborted")
    await cluster.check(SOURCE)


@pytest.mark.goal("rel.X5", part="replaced store", broken_by="damage_is_cut_as_a_tail")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("phase", STRUCK)
def test_a_store_with_a_flipped_bit_does_not_start_and_nothing_is_lost(
    phase: str, store: str, seeds: Seeds
) -> None:
    for seed in seeds(1):
        world_of(seed).run(lambda w: flip_a_bit(w, phase, store))
