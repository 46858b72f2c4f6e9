"""An address that leads to another store from another host: nobody turns to it or writes to it."""

import asyncio

import pytest

from anabranch.errors import ConflictError
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.succession import located
from anabranch.migrations.engine.table import Outward, Verb
from anabranch.migrations.freeze_copy.outsiders import places_of
from anabranch.testing.foreign_process import BOOKIES, BROKERS
from anabranch.testing.mixed_stage import TARGET, mixed
from anabranch.testing.replaced_stores import Member
from anabranch.testing.staged_replacement import (
    SOURCE_URL,
    TARGET_URL,
    Stage,
    lasting,
    staged,
    until,
)

ELSEWHERE_URL = "memory:elsewhere"
LOOKS_S = 0.3
"""Long enough for several looks of somebody who would go on by mistake."""


async def join_elsewhere(stage: Stage, name: str) -> Member:
    """A process for which the address of the target is that of another store."""

    async def open_store(url: str) -> MetadataStore:
        return await stage.open_store(ELSEWHERE_URL if url == TARGET_URL else url)

    return await stage.join(name, open_store=open_store)


async def elsewhere(stage: Stage) -> dict[str, object]:
    """What the other store has."""
    store = await stage.open_store(ELSEWHERE_URL)
    found: dict[str, object] = dict(await lasting(store))
    await store.close()
    return found


@pytest.mark.goal("rel.A10", part="elsewhere", broken_by="targets_are_taken_on_trust")
async def test_who_comes_to_another_store_fails_the_attempt_and_all_go_on_with_the_source() -> None:
    async with staged("ash") as stage:
        await stage.anybody.store.put("/before", b"1")
        await join_elsewhere(stage, "birch")
        await stage.start()
        state = await stage.until("failed", "switched")
        assert state.phase == "failed", "writes would have gone to two stores"
        assert "birch" in state.error
        assert "has to lead every process to the same store" in state.error
        await stage.all_on("source")
        for name in ("ash", "birch"):
            await stage.members[name].store.put(f"/after/{name}", b"1")
        source = await stage.open_store(SOURCE_URL)
        assert await source.children("/after") == ["ash", "birch"]
        await source.close()
        assert list(await elsewhere(stage)) == ["/"]


@pytest.mark.goal("454.A26", part="elsewhere", broken_by="targets_are_taken_on_trust")
async def test_a_new_driver_that_comes_to_another_store_writes_nothing_there() -> None:
    async with staged("ash") as stage:
        await stage.anybody.store.put("/before", b"1")
        await stage.reach("copying")
        somebodys = await stage.open_store(ELSEWHERE_URL)
        await somebodys.put("/of/somebody", b"1")
        before = await elsewhere(stage)
        await join_elsewhere(stage, "birch")
        await stage.end("ash")
        stage.go_on()
        state = await stage.until("failed", "switched")
        assert "has to lead every process to the same store" in state.error
        assert await elsewhere(stage) == before
        await stage.all_on("source")
        await stage.anybody.store.put("/after", b"1")
        await somebodys.close()


@pytest.mark.goal("rel.A10", part="elsewhere", broken_by="targets_are_taken_on_trust")
async def test_who_comes_after_the_switch_to_another_store_has_nothing_acknowledged() -> None:
    async with staged("ash") as stage:
        await stage.switch()
        late = await join_elsewhere(stage, "birch")
        writing = asyncio.ensure_future(late.store.put("/by/birch", b"1"))
        await asyncio.sleep(LOOKS_S)
        assert not writing.done()
        (report,) = [r for r in (await stage.operation.status()).reports if "birch" in r.id]
        assert "has to lead every process to the same store" in report.error
        writing.cancel()
        await asyncio.wait([writing])
        assert list(await elsewhere(stage)) == ["/"]
        await stage.members["ash"].store.put("/by/ash", b"1")


@pytest.mark.goal("rel.A25", part="elsewhere", broken_by="successors_are_taken_on_trust")
async def test_who_starts_later_is_not_led_to_another_store() -> None:
    async with staged("ash") as stage:
        await stage.switch()
        await stage.ask(Verb.FINALIZE)
        await stage.until("finalized")

        async def open_store(url: str) -> MetadataStore:
            return await stage.open_store(ELSEWHERE_URL if url == TARGET_URL else url)

        with pytest.raises(ConflictError, match="has to lead every process to the same store"):
            await located(SOURCE_URL, "metadata", open_store, ())
        place = await located(SOURCE_URL, "metadata", stage.open_store, ())
        assert place.url == TARGET_URL
        await place.store.close()


@pytest.mark.goal("454.A36", part="elsewhere", broken_by="foreign_may_go_elsewhere")
async def test_a_bookie_that_comes_to_another_store_fails_the_attempt_before_the_freeze() -> None:
    async with mixed("ash") as all_:
        stage = all_.stage
        stage.anybody.replaceable.steps.foreign.wait_s = 0.2

        async def open_store(url: str) -> MetadataStore:
            return await stage.open_store(ELSEWHERE_URL if url == TARGET else url)

        bookie = await all_.other(f"{BOOKIES}/b1:1", open_store=open_store)
        await all_.other(f"{BOOKIES}/b2:1")
        await all_.start()
        state = await stage.until("failed", "switched")
        assert "bookie b1:1 has stopped writing, and is not in the target" in state.error
        assert not [line for line in state.trail if line.phase == "freezing"], "nobody waited"
        await until(lambda: bookie.said[-1] is Outward.FAILED)
        assert await bookie.store() is bookie.source
        await stage.anybody.store.put("/after", b"1")


async def test_a_bookie_that_ends_while_it_is_led_is_not_waited_for() -> None:
    async with mixed("ash") as all_:
        slow = await all_.other(f"{BOOKIES}/slow:1")
        slow.may_prepare.clear()
        await all_.start()
        await until(lambda: len(slow.said) > 0)
        all_.others.remove(slow)
        await all_.tasks.close()
        await slow.close()
        state = await all_.stage.until("switched", "failed")
        assert state.phase == "switched", state.error


@pytest.mark.parametrize(
    ("node", "other"),
    [
        (f"{BOOKIES}/b:1", f"{BOOKIES}/readonly/b:1"),
        (f"{BOOKIES}/readonly/b:1", f"{BOOKIES}/b:1"),
        (f"{BROKERS}/b:1", None),
    ],
)
def test_a_bookie_may_be_found_where_those_are_that_take_no_more(
    node: str, other: str | None
) -> None:
    assert places_of(node) == ((node,) if other is None else (node, other))
