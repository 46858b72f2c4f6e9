"""The nemesis: repeatable, different between seeds, and everything healed at the end."""

import asyncio

import pytest

from anabranch.errors import StoreFailed
from anabranch.runtime import Runtime
from anabranch.testing.simulation import World
from anabranch.testing.simulation.nemesis import (
    DEFAULT_WEIGHTS,
    STORAGE_WEIGHTS,
    Fault,
    Nemesis,
)

ALL = {**DEFAULT_WEIGHTS, **STORAGE_WEIGHTS}


async def idle(runtime: Runtime) -> None:
    await runtime.disk.make_folder("/d")
    while True:
        try:
            await runtime.disk.replace("/d/state", b"x" * 20_000)
        except OSError as error:
            raise StoreFailed(str(error)) from error
        await asyncio.sleep(0.5)


def torment(seed: int, **weights: float) -> list[Fault]:
    async def main(world: World) -> list[Fault]:
        processes = [world.process(name) for name in ("a", "b", "c")]
        for process in processes:
            process.start(idle, tolerates=(StoreFailed,))
        nemesis = Nemesis(world, processes, weights=weights or ALL)
        await nemesis.run(12)
        for process in processes:
            assert process.alive
            assert process.machine.up
            assert not process.machine.refusing
            assert process.machine.disk.slowness == 1.0
            assert process.machine.disk.free_bytes() is None
        for source in "abc":
            for target in "abc":
                assert world.network.link(source, target).cuts == 0
                assert world.network.link(source, target).slowness == 1.0
        # Undoing what was undone already must change nothing.
        await asyncio.sleep(10)
        assert all(process.alive for process in processes)
        return nemesis.faults

    return World(seed).run(main)


def test_faults_repeat_with_the_seed_and_differ_between_seeds() -> None:
    assert torment(3) == torment(3)
    assert torment(3) != torment(4)
    assert len(torment(3)) == 12


def test_seeds_enable_different_kinds_and_together_all() -> None:
    kinds = [frozenset(fault.kind for fault in torment(seed)) for seed in range(30)]
    assert len(set(kinds)) > 15
    assert frozenset().union(*kinds) >= set(ALL)


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_alone_is_done_and_healed(kind: str) -> None:
    faults = torment(1, **{kind: 1.0})
    assert {fault.kind for fault in faults} <= {kind, "restart"}
    assert f"{kind} " in " ".join(map(str, faults))


def test_an_unknown_kind_is_a_mistake_of_the_scenario() -> None:
    with pytest.raises(AssertionError, match=r"no such faults: \['earthquake'\]"):
        torment(1, earthquake=1.0)
