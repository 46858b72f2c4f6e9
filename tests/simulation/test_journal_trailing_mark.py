"""A mark at the journal's end whose sync failed must not be lost behind later records."""

import asyncio

import pytest

from anabranch.errors import StorageError
from anabranch.journal import Journal
from anabranch.limits import JOURNAL_IDLE_MARK_S
from anabranch.runtime import Runtime
from anabranch.testing.simulation import Process, World

FOLDER = "data/journal"
PATH = f"{FOLDER}/000000000001.journal"


async def open_and_append(runtime: Runtime) -> list[bytes]:
    replayed: list[bytes] = []
    journal = await Journal.open(
        runtime.disk, FOLDER, kind=b"TEST", replay=lambda _, data: replayed.append(bytes(data))
    )
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journal.append([b"record"], lambda error: done.set_result(None))
    await done
    await asyncio.sleep(JOURNAL_IDLE_MARK_S * 2)
    return replayed


async def leave_torn_tail(runtime: Runtime) -> None:
    file = await runtime.disk.open(PATH)
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    file.append([b"torn"], sync=False, done=lambda error: written.set_result(None))
    await written


async def replayed_at_the_end(world: World) -> list[bytes]:
    process: Process = world.process("p")
    disk = process.machine.disk
    assert await process.run(open_and_append) == []
    process.crash()
    await process.run(leave_torn_tail)
    process.crash()
    # Cutting the torn tail needs a sync; its failure drops the mark that was never synced.
    disk.fail_next("sync")
    with pytest.raises(StorageError):
        await process.run(open_and_append)
    process.crash()
    await process.run(open_and_append)
    process.power_cut()
    return await process.run(open_and_append)


@pytest.mark.parametrize("seed", range(10))
def test_mark_whose_sync_failed_is_written_again(seed: int) -> None:
    assert World(seed).run(replayed_at_the_end) == [b"record", b"record"]
