"""Processes that are not ours take part by Pulsar's flag: found, waited for, led, let go."""

import asyncio

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.announced import stays_behind
from anabranch.metadata.store import ABSENT
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.operation import Blocked
from anabranch.migrations.engine.table import Outward, Verb
from anabranch.migrations.freeze_copy.foreign_flag import FLAG_PATH, Flag, write_flag
from anabranch.runtime.tasks import Tasks
from anabranch.testing.foreign_process import BOOKIES, BROKERS
from anabranch.testing.mixed_stage import TARGET, mixed
from anabranch.testing.staged_replacement import LONG_S, SOURCE_URL, failed, let_others_run, until


@pytest.mark.goal("454.A36", part="model", broken_by="pulsars_flag_is_copied")
async def test_bookies_are_led_to_the_target_and_nothing_of_the_flag_goes_along() -> None:
    async with mixed("ash", "birch") as all_:
        stage = all_.stage
        bookies = [await all_.other(f"{BOOKIES}/b{number}:3181") for number in (1, 2)]
        await stage.anybody.store.put("/ledgers/LAYOUT", b"layout")
        await all_.start()
        state = await stage.until("switched")
        await stage.all_on("target")
        assert state.error == ""
        assert "bookie b1:3181, bookie b2:3181" in state.one_way
        await until(lambda: all(each.said[-1] is Outward.COMPLETED for each in bookies))
        for bookie in bookies:
            assert bookie.said[-3:] == [Outward.PREPARATION, Outward.COPYING, Outward.COMPLETED]
            await (await bookie.store()).put(f"/ledgers/by/{bookie.node[-7:-5]}", b"")
        store = stage.anybody.store
        assert await store.children(BOOKIES) == ["b1:3181", "b2:3181"], "found by who reads there"
        assert await store.children("/ledgers/by") == ["b1", "b2"]
        target = await all_.open_store(TARGET)
        there = [record.path async for record in target.export("/")]
        assert "/ledgers/LAYOUT" in there
        assert not [path for path in there if path.startswith("/pulsar/")]
        await target.close()
        assert await all_.flag() == Flag(Outward.COMPLETED, TARGET)


@pytest.mark.goal("454.A4", part="led", broken_by="led_are_not_shown")
async def test_those_who_are_led_are_shown_with_their_role_and_phase() -> None:
    async with mixed("ash") as all_:
        slow = await all_.other(f"{BOOKIES}/slow:1")
        slow.may_prepare.clear()
        quick = await all_.other(f"{BOOKIES}/quick:1")

        async def shown() -> dict[str, tuple[str, str, bool]]:
            status = await all_.stage.operation.status()
            assert all(each.id in "".join(status.lines()) for each in status.reports)
            return {
                each["id"]: (each["role"], each["phase"], each["there"])
                for each in status.as_json()["participants"]
                if not each["id"].startswith("ash-")
            }

        await all_.start()
        await until(lambda: len(quick.said) > 1)
        async with asyncio.timeout(LONG_S):
            while not (await shown()).get("quick:1", ("", "", False))[2]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert await shown() == {
            "quick:1": ("bookie", "PREPARATION", True),
            "slow:1": ("bookie", "", False),
        }
        all_.stage.hold("freezing")
        slow.may_prepare.set()
        await all_.stage.until_held()
        stopped = ("bookie", "COPYING", True)
        assert await shown() == {"quick:1": stopped, "slow:1": stopped}
        all_.stage.go_on()
        await all_.stage.until("switched")
        turned = ("bookie", "COMPLETED", True)
        assert await shown() == {"quick:1": turned, "slow:1": turned}


@pytest.mark.broken_by("foreign_are_not_waited_for")
async def test_nothing_is_frozen_before_all_of_them_have_stopped_writing() -> None:
    async with mixed("ash") as all_:
        slow = await all_.other(f"{BOOKIES}/slow:1")
        slow.may_prepare.clear()
        quick = await all_.other(f"{BOOKIES}/quick:1")
        await all_.start()
        await until(lambda: len(quick.said) > 1)
        # It has come to the target, and has not said yet that it writes no more.
        target = await all_.open_store(TARGET)
        await target.put(slow.node, b"here", ephemeral=True)
        await asyncio.wait_for(all_.stage.anybody.store.put("/ours/go", b"on"), 5)
        await asyncio.sleep(0.3)
        state = await all_.stage.anybody.replaceable.journal.read()
        assert state is not None
        assert state.phase == "halting"
        slow.may_prepare.set()
        await all_.stage.until("switched")
        await target.close()


async def test_who_does_not_come_along_is_named_and_the_attempt_fails() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        stage.anybody.replaceable.steps.foreign.wait_s = 0.2
        deaf = await all_.other(f"{BOOKIES}/deaf:1")
        deaf.may_prepare.clear()
        await all_.start()
        state = await stage.until("failed")
        assert "bookie deaf:1 did not stop writing" in state.error
        assert await all_.flag() == Flag(Outward.FAILED, TARGET)
        deaf.may_prepare.set()


@pytest.mark.goal("454.A30", part="foreign", broken_by="foreign_stay_halted")
@pytest.mark.parametrize("phase", ["halting", "freezing", "rejoining", "fencing", "switching"])
async def test_after_an_abort_they_go_on_with_the_source(phase: str) -> None:
    async with mixed("ash", "birch") as all_:
        stage = all_.stage
        bookie = await all_.other(f"{BOOKIES}/b1:1")
        stage.hold(phase)
        await all_.start()
        await stage.until_held()
        if phase != "halting":
            await until(lambda: bookie.said[-1] is Outward.COPYING)
            with pytest.raises(ConflictError):
                await bookie.store()
        await stage.ask(Verb.ABORT)
        await stage.until("aborted")
        flag = await all_.flag()
        assert flag == (None if phase == "halting" else Flag(Outward.FAILED, TARGET))
        await until(lambda: bookie.said[-1] is not Outward.COPYING)
        assert await bookie.store() is bookie.source
        stage.go_on()


async def test_who_took_part_in_vain_has_to_be_restarted_before_the_next_attempt() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        bookie = await all_.other(f"{BOOKIES}/b1:1")
        stage.hold("freezing")
        await all_.start()
        await stage.until_held()
        await stage.ask(Verb.ABORT)
        await stage.until("aborted")
        stage.go_on()
        with pytest.raises(Blocked, match=r"b1:1: is a bookie that .* came to nothing"):
            await all_.start()
        all_.others.remove(bookie)
        await all_.tasks.close()
        await bookie.close()
        all_.tasks = Tasks(failed)
        await all_.other(f"{BOOKIES}/b1:1")
        await all_.start()
        await stage.until("switched")
        await stage.all_on("target")


@pytest.mark.goal("454.A36", part="one way", broken_by="rollback_leaves_others_behind")
async def test_there_is_no_way_back_while_one_takes_part() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        await all_.other(f"{BOOKIES}/b1:1")
        await all_.start()
        await stage.until("switched")
        await stage.all_on("target")
        with pytest.raises(Refused, match="has no way back: bookie b1:1 took part"):
            await stage.ask(Verb.ROLLBACK)
        status = (await stage.operation.status()).as_json()
        assert status["verbs"] == ["finalize"]
        assert status["one_way"].startswith("bookie b1:1")
        await stage.ask(Verb.FINALIZE)
        await stage.until("finalized")
        assert await all_.flag() == Flag(Outward.COMPLETED, TARGET), "for who starts with the old"
        late = await all_.other(f"{BOOKIES}/late:1")
        assert await late.store() is late.target


@pytest.mark.broken_by("foreign_turn_after_ours_write")
async def test_nobody_writes_to_the_target_before_they_read_there() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        bookie = await all_.other(f"{BOOKIES}/b1:1")
        said_at_write: list[Outward] = []
        stage.hold("switching")
        await all_.start()
        await stage.until_held()

        async def write() -> None:
            await stage.anybody.store.put("/ledgers/L1", b"", ABSENT)
            said_at_write.append(bookie.said[-1])

        writing = asyncio.ensure_future(write())
        await let_others_run()
        assert not writing.done()
        stage.hold("switched")
        await writing
        assert said_at_write == [Outward.COMPLETED]
        stage.go_on()


async def test_who_comes_in_the_middle_is_told_by_the_flag() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        await all_.other(f"{BOOKIES}/b1:1")
        stage.hold("rejoining")
        await all_.start()
        await stage.until_held()
        late = await all_.other(f"{BOOKIES}/b2:1")
        with pytest.raises(ConflictError):
            await late.store()
        stage.go_on()
        await stage.until("switched")
        await until(lambda: late.said[-1] is Outward.COMPLETED)
        assert await late.store() is late.target


async def test_one_that_comes_when_nobody_was_told_fails_the_attempt() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        stage.hold("freezing")
        await all_.start()
        await stage.until_held()
        await all_.other(f"{BOOKIES}/b1:1")
        stage.go_on()
        state = await stage.until("failed")
        assert "came meanwhile, which is not ours" in state.error
        assert await all_.flag() is None


async def test_a_flag_of_pulsars_own_migration_is_left_alone() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        await all_.other(f"{BOOKIES}/b1:1")
        source = await stage.open_store(SOURCE_URL)
        other = Flag(Outward.PREPARATION, "oxia://else:1/n")
        stage.hold("halting")
        await all_.start()
        await stage.until_held()
        all_.others[0].may_prepare.clear()
        await source.put(FLAG_PATH, write_flag(other))
        stage.go_on()
        state = await stage.until("failed")
        assert "another migration uses it" in state.error
        assert await all_.flag() == other
        with pytest.raises(Blocked, match="Pulsar's own migration uses it"):
            await all_.start(accept_foreign_risk="true")
        await source.close()


async def test_brokers_of_pulsar_take_part_only_if_somebody_accepts_it() -> None:
    async with mixed("ash") as all_:
        await all_.other(f"{BROKERS}/them:8080")
        with pytest.raises(Blocked, match="accept_foreign_risk"):
            await all_.start()
        assert await all_.flag() is None
        state = await all_.start(accept_foreign_risk="true")
        assert state.announced.parameters["accept_foreign_risk"] == "true"
        state = await all_.stage.until("switched")
        assert "broker them:8080" in state.one_way


async def test_a_driver_that_dies_while_they_are_led_is_replaced() -> None:
    for phase in ("halting", "leading", "switched"):
        async with mixed("ash", "birch") as all_:
            stage = all_.stage
            bookie = await all_.other(f"{BOOKIES}/b1:1")
            stage.hold(phase)
            await all_.start()
            await stage.until_held()
            dead = await stage.driver()
            await stage.end(dead)
            stage.go_on()
            state = await stage.until("switched", wait_s=20.0)
            await stage.all_on("target")
            assert not state.driver.startswith(f"{dead}-")
            await until(lambda bookie=bookie: bookie.said[-1] is Outward.COMPLETED)  # type: ignore[misc]
            assert "bookie b1:1" in state.one_way


async def test_what_a_copy_holds_leaves_out_what_is_pulsars() -> None:
    async with mixed("ash") as all_:
        await all_.other(f"{BOOKIES}/b1:1")
        plan = await all_.stage.operation.plan({"target": TARGET})
        assert plan.blockers == ()
        assert any("no way back after the switch" in note for note in plan.notes)
        source = await all_.stage.open_store(SOURCE_URL)
        lasting = [
            record.path
            async for record in source.export("/")
            if record.session is None and not stays_behind(record.path)
        ]
        assert plan.figures["nodes"] == len(lasting)
        await source.close()
