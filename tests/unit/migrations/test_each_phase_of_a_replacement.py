"""What must hold in each phase of replacing a store: abort, crash, late joiners, another try."""

import asyncio

import pytest

from anabranch.metadata.store import MetadataStore
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.testing.replaced_stores import Member
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    LONG_S,
    ON_THE_WAY_BACK,
    Stage,
    hasty,
    lasting,
    let_others_run,
    staged,
)

NODES = 20
SOON_S = 2.0
PLENTY_S = 600.0
GIVEN_UP = tuple(phase for phase in BEFORE_SWITCH if TABLE[phase].new_driver_fails_it)
GONE_ON = tuple(phase for phase in BEFORE_SWITCH if phase not in GIVEN_UP)


async def fill(member: Member) -> None:
    for number in range(NODES):
        await member.store.put(f"/filled/{number:02d}", b"%d" % number)


async def value(store: MetadataStore, path: str) -> bytes | None:
    node = await store.get(path)
    return None if node is None else node.value


def write(member: Member, path: str) -> "asyncio.Task[object]":
    return asyncio.ensure_future(member.store.put(path, b"written"))


async def check_whole(stage: Stage, name: str, *paths: str) -> None:
    """Everybody is on one store, writes there, and sees all that was written."""
    await stage.all_on(name)
    for number, member in enumerate(stage.members.values()):
        await member.store.put(f"/after/{number}", b"")
        assert len(await member.store.children("/filled")) == NODES
        for path in paths:
            assert await value(member.store, path) == b"written", path
    used = await stage.open_store(f"memory:{name}")
    for path in paths:
        assert await value(used, path) == b"written", f"{path} is in another store"
    await used.close()


@pytest.mark.goal("454.A30", part="each phase", broken_by="abort_waits_for_the_phase")
@pytest.mark.goal("454.A33", part="same target", broken_by="leftovers_are_in_the_way")
@pytest.mark.goal("rel.A27", part="same target", broken_by="leftovers_are_in_the_way")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_an_abort_leads_back_and_another_try_succeeds(phase: str) -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        await stage.reach(phase)
        waiting = write(stage.members["birch"], "/under/way")
        await let_others_run()
        assert waiting.done() != TABLE[phase].holds_writes
        await stage.ask(Verb.ABORT)
        await stage.until("aborted", wait_s=10.0)
        await waiting
        await check_whole(stage, "source", "/under/way")
        stage.go_on()
        state = await stage.switch()
        assert (state.announced.number, state.error) == (2, "")
        await check_whole(stage, "target", "/under/way")


async def come_to_nothing(stage: Stage, phase: str, end: str) -> None:
    """Have an attempt end in a phase: somebody stops it, or its time is over."""
    await stage.reach(phase)
    if end == "aborted":
        await stage.ask(Verb.ABORT)
    state = await stage.until(end)
    assert ("took longer" in state.error) == (end == "failed")
    stage.go_on()


async def try_another_target(phase: str, end: str, runtime: Runtime) -> None:
    table = hasty(TABLE.holding_for(LONG_S), phase, SOON_S)
    async with staged("ash", "birch", table=table, runtime=runtime) as stage:
        await fill(stage.members["ash"])
        await come_to_nothing(stage, phase, end)
        await stage.all_on("source")
        await stage.anybody.store.delete("/filled/00")
        state = await stage.switch("memory:other")
        assert (state.announced.number, state.error) == (2, "")
        await stage.until_reported("switched")
        await stage.anybody.store.put("/only/here", b"")
        first, other = [await stage.open_store(f"memory:{name}") for name in ("target", "other")]
        assert await value(other, "/only/here") == b""
        filled = await other.children("/filled")
        assert filled == await stage.anybody.store.children("/filled")
        assert len(filled) == NODES - 1
        assert not await first.exists("/only")
        assert not await first.children("/anabranch/migrations/present")
        await first.close()
        await other.close()


@pytest.mark.goal("454.A33", part="other target", broken_by="failed_attempt_keeps_its_target")
@pytest.mark.goal("rel.A27", part="other target", broken_by="failed_attempt_keeps_its_target")
@pytest.mark.parametrize("end", ["aborted", "failed"])
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
def test_another_try_goes_to_another_target(phase: str, end: str) -> None:
    async def main(world: World) -> None:
        await world.process("all").run(lambda runtime: try_another_target(phase, end, runtime))

    World(1).run(main, time_limit_s=PLENTY_S)


@pytest.mark.goal("454.A5", part="each phase", broken_by="joiners_do_not_look_first")
@pytest.mark.parametrize("phase", [*BEFORE_SWITCH, "switched", *ON_THE_WAY_BACK])
async def test_who_comes_in_the_middle_is_where_all_are(phase: str) -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        back = phase in ON_THE_WAY_BACK
        if back:
            await stage.switch()
            stage.hold(phase)
            await stage.ask(Verb.ROLLBACK)
            await stage.until_held()
        else:
            await stage.reach(phase)
        late = await stage.join("late")
        written = write(late, "/late/one")
        await let_others_run()
        assert written.done() != TABLE[phase].holds_writes, "its writes wait like those of others"
        await stage.until_reported(phase)
        stage.go_on()
        await written
        await stage.until("rolled back" if back else "switched")
        await check_whole(stage, "source" if back else "target", "/late/one")


@pytest.mark.goal("454.A27", part="each phase", broken_by="the_dead_are_waited_for")
@pytest.mark.goal("454.A18", part="each phase", broken_by="own_nodes_become_lasting")
@pytest.mark.goal("rel.A6", part="restart", broken_by="joiners_do_not_look_first")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_who_dies_in_a_phase_is_waited_for_no_more(phase: str) -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        for name, member in stage.members.items():
            await member.store.put(f"/owned/{name}", b"", ephemeral=True)
        await stage.reach(phase)
        lives = await stage.driver()
        (dies,) = set(stage.members) - {lives}
        await stage.end(dies)
        stage.go_on()
        await stage.until("switched", wait_s=10.0)
        await stage.all_on("target")
        target = await stage.open_store("memory:target")
        assert await target.children("/owned") == [lives], "nodes of the dead are gone"
        await target.close()
        back = await stage.join(dies)
        assert back.store.route.name == "target", "who comes back is where the others are"
        await check_whole(stage, "target")


@pytest.mark.goal("454.A26", part="each phase", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("trap.U2", part="each phase", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("rel.A4", part="each phase", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("rel.A20", part="each phase", broken_by="new_driver_goes_on_with_a_freeze")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_a_driver_that_dies_in_a_phase_is_replaced(phase: str) -> None:
    async with staged("ash", "birch", "cedar") as stage:
        await fill(stage.members["ash"])
        await stage.reach(phase)
        dead = await stage.driver()
        left = [member for name, member in stage.members.items() if name != dead]
        waiting = [write(member, f"/held/{at}") for at, member in enumerate(left)]
        await let_others_run()
        await stage.end(dead)
        stage.go_on()
        state = await stage.until("failed" if phase in GIVEN_UP else "switched", wait_s=20.0)
        assert state.driver
        assert not state.driver.startswith(dead)
        assert ("was replaced by" in state.error) == (phase in GIVEN_UP)
        await asyncio.gather(*waiting)
        used = "source" if phase in GIVEN_UP else "target"
        await check_whole(stage, used, "/held/0", "/held/1")
        if used == "source":
            await stage.switch()
            await check_whole(stage, "target", "/held/0", "/held/1")


@pytest.mark.goal("454.A8", part="resumed", broken_by="deletes_are_not_followed")
@pytest.mark.goal("rel.A12", part="shares", broken_by="deletes_are_not_followed")
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
async def test_a_copy_whose_driver_dies_is_gone_on_with(share: float) -> None:
    async with staged("ash", "birch") as stage:
        store = stage.anybody.store
        for number in range(200):
            await store.put(f"/some/{number:03d}", b"%d" % number)
        await stage.reach("copying")
        trouble = stage.troubles["memory:target"]
        trouble.stops_after = int(200 * share)
        stage.go_on()
        await trouble.stopped.wait()
        dead = await stage.driver()
        (lives,) = [member for name, member in stage.members.items() if name != dead]
        await lives.store.delete("/some/000")
        await lives.store.put("/some/001", b"changed")
        await stage.end(dead)
        await stage.until("switched", wait_s=20.0)
        await stage.all_on("target")
        source, target = [await stage.open_store(f"memory:{n}") for n in ("source", "target")]
        assert await lasting(target) == await lasting(source)
        assert len(await target.children("/some")) == 199
        await source.close()
        await target.close()
