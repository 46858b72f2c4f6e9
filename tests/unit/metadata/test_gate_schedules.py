"""Random schedules of writers around a gate that closes: nothing is written once it was empty."""

import asyncio
import random

import pytest

from anabranch.errors import Unreachable
from anabranch.metadata.switchable import gate as gate_module
from anabranch.metadata.switchable.gate import Gate

SCHEDULES = 100_000
AT_ONCE = 1000
WRITERS = 2
TURNS_MAX = 3


class Schedule:
    """Writers that pause anywhere, and somebody who closes the gate and waits until it is empty."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.gate = Gate()
        self.is_copied = False
        self.acknowledged = 0
        self.in_source = 0
        self.in_copy = 0

    async def _pause(self) -> None:
        for _ in range(self._rng.randrange(TURNS_MAX)):
            await asyncio.sleep(0)

    async def write(self) -> None:
        await self._pause()
        await self.gate.pass_in()
        try:
            await self._pause()  # on its way
            if self.is_copied:
                self.in_copy += 1
            else:
                self.in_source += 1
            await self._pause()  # the answer is on its way back
            self.acknowledged += 1
        finally:
            self.gate.leave()

    async def copy(self) -> None:
        await self._pause()
        self.gate.close()
        await self.gate.drained()
        self.in_copy = self.in_source
        await self._pause()
        self.is_copied = True
        self.gate.open()

    async def run(self) -> None:
        await asyncio.gather(self.copy(), *(self.write() for _ in range(WRITERS)))


@pytest.mark.timeout(600)
@pytest.mark.goal("454.A11", part="schedules", broken_by="gate_looks_then_counts")
@pytest.mark.goal("rel.A11", part="schedules", broken_by="gate_looks_then_counts")
async def test_no_write_is_lost_in_a_hundred_thousand_schedules() -> None:
    rng = random.Random(454)
    for _ in range(SCHEDULES // AT_ONCE):
        schedules = [Schedule(rng) for _ in range(AT_ONCE)]
        await asyncio.gather(*(schedule.run() for schedule in schedules))
        for schedule in schedules:
            assert schedule.acknowledged == WRITERS
            assert schedule.in_copy == WRITERS, "a write came after the copy"


@pytest.mark.goal("454.A12", part="refused", broken_by="held_writes_wait_for_ever")
async def test_a_write_that_waits_too_long_is_refused_and_may_be_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate_module, "GATE_WAIT_S_MAX", 0.05)
    gate = Gate()
    gate.close()
    async with asyncio.timeout(10.0):
        with pytest.raises(Unreachable, match="nothing was changed; try again") as refused:
            await gate.pass_in()
    assert refused.value.retriable
    assert gate.under_way == 0
    gate.open()
    await gate.pass_in()
    assert gate.under_way == 1
