"""Every process of a cluster is restarted, in turn or at once, while its store is replaced."""

import pytest

from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing.staged_replacement import BEFORE_SWITCH, Stage, staged

NAMES = ("ash", "birch", "cedar")


async def restart(stage: Stage, name: str) -> None:
    await stage.end(name)
    await stage.join(name)


async def write(stage: Stage, path: str) -> None:
    for name, member in stage.members.items():
        await member.store.put(f"{path}/{name}", path.encode())


async def check(stage: Stage, *paths: str) -> None:
    for member in stage.members.values():
        for path in paths:
            assert await member.store.children(path) == list(NAMES), path


@pytest.mark.goal("rel.A14", part="in turn", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("rel.X1", part="in turn", broken_by="crashed_driver_is_not_replaced")
async def test_each_is_restarted_in_every_phase_in_which_nobody_waits() -> None:
    async with staged(*NAMES) as stage:
        await write(stage, "/before")
        phases = [phase for phase in BEFORE_SWITCH if not TABLE[phase].holds_writes]
        await stage.reach(phases[0])
        for phase, following in zip(phases, [*phases[1:], "switched"], strict=True):
            for name in NAMES:
                await restart(stage, name)
            await write(stage, f"/in-{phase}")
            stage.hold(following)
            await stage.until_held(wait_s=20.0)
        for name in NAMES:
            await restart(stage, name)
        stage.go_on()
        await stage.all_on("target")
        await write(stage, "/after")
        await stage.ask(Verb.ROLLBACK)
        assert (await stage.until("rolled back")).error == ""
        await stage.all_on("source")
        await check(stage, "/before", *(f"/in-{phase}" for phase in phases), "/after")


@pytest.mark.goal("rel.X2", part="processes", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.parametrize("phase", [*BEFORE_SWITCH, "switched"])
async def test_all_end_at_once_and_come_back(phase: str) -> None:
    async with staged(*NAMES) as stage:
        await write(stage, "/before")
        await stage.reach(phase)
        for name in NAMES:
            await stage.end(name)
        stage.go_on()
        given_up = TABLE[phase].new_driver_fails_it
        # Whoever comes first goes on by itself.
        for name in NAMES:
            await stage.join(name)
        await stage.until("failed" if given_up else "switched", wait_s=20.0)
        await stage.all_on("source" if given_up else "target")
        await write(stage, "/after")
        await check(stage, "/before", "/after")
        if given_up:
            await stage.switch()
            await check(stage, "/before", "/after")
