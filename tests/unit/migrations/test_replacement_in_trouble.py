"""Stores that do not answer, are slow, full or spoiled, and processes that fail, meanwhile."""

import asyncio
from dataclasses import replace
from itertools import cycle

import pytest

from anabranch.errors import DiskFull, Unreachable
from anabranch.metadata.announced import participants_path
from anabranch.metadata.locks import Locks
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.seal import SEAL_PATH
from anabranch.metadata.switchable.succession import SUCCEEDS_PATH
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime
from anabranch.testing.replaced_stores import Member
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    LONG_S,
    SOURCE_URL,
    TARGET_URL,
    Stage,
    hasty,
    let_others_run,
    staged,
    until,
)

PATIENT = TABLE.holding_for(LONG_S)
SOON_S = 2.0
"""Long for what has only to be told, short for who waits."""
NODES = 20
HOUR_MS = 3_600_000


async def fill(member: Member) -> None:
    for number in range(NODES):
        await member.store.put(f"/filled/{number:02d}", b"%d" % number)


async def value(store: MetadataStore, path: str) -> bytes | None:
    node = await store.get(path)
    return None if node is None else node.value


async def check_source_is_used(stage: Stage) -> None:
    """Everybody writes to the source, and nothing says that the target came into use."""
    await stage.all_on("source")
    source, target = [await stage.open_store(url) for url in (SOURCE_URL, TARGET_URL)]
    for name, member in stage.members.items():
        await member.store.put(f"/after/{name}", b"")
        assert await source.exists(f"/after/{name}")
    assert len(await source.children("/filled")) == NODES
    assert not await target.exists(SUCCEEDS_PATH)
    assert not await source.exists(SEAL_PATH)
    await source.close()
    await target.close()


@pytest.mark.goal("rel.A10", part="cut off", broken_by="old_reports_open_the_barrier")
async def test_who_cannot_reach_the_target_fails_the_attempt() -> None:
    async with staged("ash", table=hasty(PATIENT, "preparing", SOON_S)) as stage:
        await fill(stage.members["ash"])

        async def cut_off(url: str) -> MetadataStore:
            if url == TARGET_URL:
                raise Unreachable("there is no route")
            return await stage.open_store(url)

        await stage.join("birch", open_store=cut_off)
        await stage.start()
        state = await stage.until("failed", wait_s=20.0)
        assert state.error.startswith("preparing took longer than 2.0 s: birch-"), state.error
        assert state.error.endswith(" did not report")
        await check_source_is_used(stage)


@pytest.mark.goal("rel.A13", part="away", broken_by="trouble_is_final")
@pytest.mark.parametrize("url", [SOURCE_URL, TARGET_URL])
async def test_a_store_that_is_away_for_a_moment_is_waited_for(url: str) -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        await stage.reach("copying")
        trouble = stage.troubles[url]
        asked = trouble.asked
        trouble.down = True
        stage.go_on()
        await until(lambda: trouble.asked > asked + 2)
        trouble.down = False
        state = await stage.until("switched")
        assert state.error == ""
        await stage.all_on("target")
        assert len(await stage.anybody.store.children("/filled")) == NODES


@pytest.mark.goal("454.A13", part="deadline", broken_by="deadlines_do_not_count")
@pytest.mark.goal("rel.A15", part="slow", broken_by="deadlines_do_not_count")
@pytest.mark.parametrize("phase", ["freezing", "rejoining", "fencing", "switching"])
async def test_writes_wait_no_longer_than_the_deadline(phase: str) -> None:
    async with staged("ash", "birch", table=hasty(PATIENT, phase, SOON_S)) as stage:
        await fill(stage.members["ash"])
        await stage.reach(phase)
        waiting = asyncio.ensure_future(stage.members["birch"].store.put("/waits", b""))
        state = await stage.until("failed", wait_s=20.0)
        assert state.error == f"{phase} took longer than 2.0 s"
        await waiting
        await check_source_is_used(stage)
        assert await stage.members["ash"].store.exists("/waits")


@pytest.mark.goal("454.A28", part="target is gone", broken_by="deadlines_do_not_count")
@pytest.mark.broken_by("silent_target_is_turned_to")
@pytest.mark.parametrize("phase", ["copying", "freezing", "fencing", "switching"])
async def test_a_target_that_is_gone_leads_back_to_the_source(phase: str) -> None:
    table = PATIENT
    for late in BEFORE_SWITCH[BEFORE_SWITCH.index(phase) :]:
        table = hasty(table, late, SOON_S)
    async with staged("ash", "birch", table=table) as stage:
        await fill(stage.members["ash"])
        await stage.reach(phase)
        trouble = stage.troubles[TARGET_URL]
        trouble.down = True
        stage.go_on()
        state = await stage.until("failed", wait_s=20.0)
        assert " took longer than 2.0 s: " in state.error
        trouble.down = False
        await check_source_is_used(stage)


@pytest.mark.goal("rel.A16", part="full", broken_by="failed_attempt_marks_the_target")
async def test_a_full_target_fails_the_attempt_and_says_so() -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        await stage.reach("copying")
        trouble = stage.troubles[TARGET_URL]
        trouble.error = DiskFull("there is no room left in /data")
        stage.hold("failing")
        await stage.until_held(wait_s=20.0)
        trouble.error = None
        stage.go_on()
        state = await stage.until("failed", wait_s=20.0)
        assert state.error == "there is no room left in /data"
        await check_source_is_used(stage)
        await stage.switch()
        assert len(await stage.anybody.store.children("/filled")) == NODES


@pytest.mark.goal("rel.A17", part="spoiled", broken_by="copy_is_not_verified")
@pytest.mark.goal("454.A24", part="abort", broken_by="copy_is_not_verified")
async def test_a_spoiled_copy_is_not_switched_to() -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        await stage.reach("verifying")
        target = await stage.open_store(TARGET_URL)
        await target.put("/filled/07", b"spoiled")
        stage.go_on()
        state = await stage.until("failed", wait_s=20.0)
        assert state.error.startswith("/filled/07 is not the same in the target")
        await target.close()
        await check_source_is_used(stage)


@pytest.mark.goal("rel.A19", part="locks", broken_by="the_dead_are_waited_for")
async def test_a_lock_of_who_dies_while_writes_wait_is_free_when_they_go_on() -> None:
    async with staged("ash", "birch") as stage:
        await stage.reach("preparing")
        lives = await stage.driver()
        (dies,) = set(stage.members) - {lives}
        member = stage.members[dies]
        locks = Locks(member.store, stage.runtime.clock, member.tasks)
        locks.start()
        await locks.acquire("/locks/topic", b"first")
        stage.hold("freezing")
        await stage.until_held()
        await stage.end(dies)
        member = stage.members[lives]
        locks = Locks(member.store, stage.runtime.clock, member.tasks)
        locks.start()
        taking = asyncio.ensure_future(locks.acquire_when_free("/locks/topic", b"second"))
        await let_others_run()
        assert not taking.done(), "nobody takes anything while writes wait"
        stage.go_on()
        await stage.until("switched", wait_s=20.0)
        async with asyncio.timeout(20.0):
            lock = await taking
        target = await stage.open_store(TARGET_URL)
        assert (await value(target, "/locks/topic"), lock.held) == (b"second", True)
        await target.close()


class Jumping:
    """A clock whose time of day is an hour early or late, anew each time somebody looks."""

    def __init__(self) -> None:
        self._clock = real_runtime().clock
        self._off_ms = cycle((HOUR_MS, -HOUR_MS, 0))

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + next(self._off_ms)

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


@pytest.mark.goal("rel.X3", part="driver", broken_by="deadlines_are_of_the_wall")
async def test_the_time_of_day_decides_nothing() -> None:
    runtime = replace(real_runtime(), clock=Jumping())
    async with staged("ash", "birch", runtime=runtime) as stage:
        await fill(stage.members["ash"])
        assert (await stage.switch()).error == ""
        await stage.ask(Verb.ROLLBACK)
        assert (await stage.until("rolled back")).error == ""
        await check_source_is_used(stage)


@pytest.mark.goal("454.A4", part="engine", broken_by="registration_is_made_once")
async def test_a_participant_is_known_again_after_it_was_lost() -> None:
    async with staged("ash", "birch") as stage:
        await stage.reach("copying")
        source = await stage.open_store(SOURCE_URL)
        folder = participants_path("metadata")
        before = (await stage.operation.status()).as_json()["participants"]
        assert [each["role"] for each in before] == ["broker", "broker"]
        assert {(each["host"], each["version"]) for each in before} == {("localhost", "test")}
        for each in before:
            assert each["epoch"] >= 1
            await source.delete(f"{folder}/{each['id']}")  # as if its session had ended
        async with asyncio.timeout(20.0):
            while len(await source.children(folder)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await stage.until_reported("copying")
        after = (await stage.operation.status()).as_json()["participants"]
        assert [each["id"] for each in after] == [each["id"] for each in before]
        stage.go_on()
        await stage.until("switched", wait_s=20.0)
        await source.close()


@pytest.mark.goal("454.A32", part="for good", broken_by="left_store_is_not_sealed")
async def test_finalize_ends_the_way_back_once_and_for_all() -> None:
    async with staged("ash", "birch") as stage:
        await fill(stage.members["ash"])
        await stage.switch()
        await stage.ask(Verb.FINALIZE)
        again = await stage.ask(Verb.FINALIZE)
        assert again.phase in ("finalizing", "finalized"), "to ask twice is to ask once"
        await stage.until("finalized")
        await until(lambda: all(m.replaceable.journal.ended for m in stage.members.values()))
        source = await stage.open_store(SOURCE_URL)
        assert await source.exists(SEAL_PATH)
        for verb in (Verb.ROLLBACK, Verb.ABORT, Verb.FINALIZE):
            with pytest.raises(Refused, match="is finalized"):
                await stage.ask(verb)
        for name, member in stage.members.items():
            await member.store.put(f"/later/{name}", b"")
        await asyncio.sleep(0.1)
        assert not await source.exists("/later"), "nothing is copied back"
        assert await source.exists(SEAL_PATH)
        await source.close()
