"""The journal on the simulated disk: no crash or power cut loses an acknowledged record.

Each seed appends through several lives of one process; each life ends by a crash or a power cut at
a drawn moment, and the next must find every record that was acknowledged, in order, none torn.
"""

import asyncio

import pytest

from anabranch.journal import Journal, RecordPlace
from anabranch.runtime import Runtime
from anabranch.testing.planted import applied
from anabranch.testing.simulation import ProcessFailed, World

LIVES = 6
RECORDS_PER_LIFE_MAX = 200
SEEDS = range(40)


class History:
    """What was appended and acknowledged over all lives."""

    def __init__(self) -> None:
        self.appended = 0
        self.acknowledged: list[int] = []
        self.found: list[int] = []

    async def live(self, runtime: Runtime) -> None:
        self.found = []
        journal = await Journal.open(
            runtime.disk, "/journal", kind=b"test", segment_bytes=4096, replay=self.replay
        )
        lost = set(self.acknowledged) - set(self.found)
        assert not lost, f"acknowledged records are lost: {sorted(lost)[:5]}"
        assert self.found == sorted(self.found)
        # What was found is durable now, whether or not it was acknowledged.
        self.acknowledged = list(self.found)
        last = self.appended + RECORDS_PER_LIFE_MAX
        while True:
            for _ in range(runtime.entropy.below(5)):
                if self.appended < last:
                    self.append(journal, runtime.entropy.below(300))
            await asyncio.sleep(runtime.entropy.uniform(0, 0.003))

    def replay(self, place: RecordPlace, payload: memoryview) -> None:
        number, _, filler = bytes(payload).partition(b":")
        assert filler == b"." * len(filler)
        self.found.append(int(number))

    def append(self, journal: Journal, filler: int) -> None:
        self.appended += 1
        number = self.appended

        def done(error: Exception | None) -> None:
            assert error is None
            self.acknowledged.append(number)

        journal.append([b"%d:" % number, b"." * filler], done)


async def cut_and_return(world: World) -> int:
    """Cut a store off again and again; how many records it found in the end."""
    rng = world.rng("moments")
    history = History()
    process = world.process("store")
    process.start(history.live)
    for _ in range(LIVES):
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        if rng.random() < 0.7:
            process.power_cut()
        else:
            process.crash()
        process.restart()
    await asyncio.sleep(1)
    world.reach("records", len(history.found))
    return len(history.found)


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_survive(seed: int) -> None:
    assert World(seed).run(cut_and_return) > 0


def play_all() -> None:
    for seed in SEEDS:
        World(seed).run(cut_and_return)


def test_a_journal_that_skips_the_sync_would_be_found() -> None:
    found = r"records are lost|Corruption"
    with applied("journal_skips_sync"), pytest.raises(ProcessFailed, match=found):
        play_all()
