"""What is done before writes have to wait, there and back, on stores that take long to be read."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.metadata.store import MetadataStore, Record, Stat
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.limits import FREEZE_S_MAX
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.testing.pass_through import PassThrough
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import Stage, lasting, staged

NODES = 400
READ_S = 2.5 * FREEZE_S_MAX / NODES
"""To read everything takes more than twice as long as any phase may hold writes."""
FEW, MANY = NODES // 20, 2 * NODES
CALL_S = 0.005
PLENTY_S = 600.0
LOOK_S = 0.001


class SlowToRead(PassThrough):
    """A store that nobody can look through while writes wait."""

    async def export(self, path: str, **wishes: Any) -> AsyncIterator[Record]:
        async for record in self._behind.export(path, **wishes):
            await asyncio.sleep(READ_S)
            yield record

    async def put(self, path: str, *rest: Any, **more: Any) -> Stat:
        await asyncio.sleep(CALL_S)
        return await super().put(path, *rest, **more)


class Held:
    """How long writes of a process waited, each time."""

    def __init__(self, stage: Stage, runtime: Runtime) -> None:
        self.times_s: list[float] = []
        self._stage = stage
        self._clock = runtime.clock

    async def look(self) -> None:
        gate, since_s = self._stage.members["ash"].store.gate, None
        while True:
            now_s = self._clock.monotonic_s()
            if gate.closed and since_s is None:
                since_s = now_s
            elif not gate.closed and since_s is not None:
                self.times_s.append(now_s - since_s)
                since_s = None
            await asyncio.sleep(LOOK_S)


async def large(stage: Stage, nodes: int = NODES) -> None:
    async def open_slowly(url: str) -> MetadataStore:
        return SlowToRead(await stage.open_store(url))

    for name in ("ash", "birch"):
        await stage.join(name, open_store=open_slowly)
    for number in range(nodes):
        await stage.anybody.store.put(f"/filled/{number:05d}", b"%d" % number)


async def there_and_back(runtime: Runtime) -> list[float]:
    """Go back as soon as there is a way; return how long writes waited, there and back."""
    async with staged(runtime=runtime, table=TABLE) as stage:
        await large(stage)
        held = Held(stage, runtime)
        looking = asyncio.ensure_future(held.look())
        await stage.start()
        await stage.until("switched", wait_s=PLENTY_S)
        await stage.ask(Verb.ROLLBACK)
        await stage.anybody.store.put("/since/the switch", b"1")
        await stage.until("refreezing", "rolled back", wait_s=PLENTY_S)
        state = await stage.until("switched", "rolled back", wait_s=PLENTY_S)
        assert state.phase == "rolled back", state.error
        await stage.all_on("source")
        await asyncio.sleep(2 * LOOK_S)
        looking.cancel()
        assert await stage.anybody.store.exists("/since/the switch")
        return held.times_s


@pytest.mark.goal("454.A13", part="way back", broken_by="way_back_is_compared_while_writes_wait")
@pytest.mark.goal("454.A31", part="large", broken_by="way_back_is_compared_while_writes_wait")
def test_writes_wait_for_the_way_back_no_longer_than_for_the_way_there() -> None:
    async def main(world: World) -> list[float]:
        found: list[float] = await world.process("all").run(there_and_back)
        return found

    there_s, back_s = World(1).run(main, time_limit_s=PLENTY_S)
    assert back_s < 2 * there_s
    assert back_s < 1.0 < NODES * READ_S


async def there(runtime: Runtime, nodes: int) -> float:
    """How long writes waited."""
    async with staged(runtime=runtime, table=TABLE) as stage:
        await large(stage, nodes)
        held = Held(stage, runtime)
        looking = asyncio.ensure_future(held.look())
        await stage.start()
        state = await stage.until("switched", "failed", wait_s=PLENTY_S)
        assert state.phase == "switched", state.error
        await stage.all_on("target")
        await asyncio.sleep(2 * LOOK_S)
        looking.cancel()
        (held_s,) = held.times_s
        return held_s


@pytest.mark.goal("454.A13", part="way there", broken_by="all_is_compared_while_writes_wait")
def test_writes_wait_for_the_way_there_as_long_as_before_however_large_the_tree() -> None:
    def held_s(nodes: int) -> float:
        async def main(world: World) -> float:
            found: float = await world.process("all").run(lambda runtime: there(runtime, nodes))
            return found

        return World(1).run(main, time_limit_s=PLENTY_S)

    assert held_s(MANY) < 2 * held_s(FEW)


@pytest.mark.goal("454.A31", part="given up", broken_by="abort_waits_for_the_phase")
async def test_a_rollback_is_given_up_while_it_compares() -> None:
    async with staged("ash", "birch") as stage:
        await stage.anybody.store.put("/before", b"1")
        await stage.switch()
        stage.hold("reverifying")
        await stage.ask(Verb.ROLLBACK)
        await stage.until_held()
        await stage.anybody.store.put("/meanwhile", b"1")
        state = await stage.ask(Verb.ABORT)
        assert (state.phase, state.asked, state.error) == ("switched", "", "")
        stage.go_on()
        await stage.anybody.store.put("/after", b"1")
        await stage.all_on("target")
        await stage.ask(Verb.ROLLBACK)
        await stage.until("rolled back")
        await stage.all_on("source")
        assert await stage.anybody.store.children("/") == [
            *("after", "anabranch", "before", "meanwhile")
        ]


async def test_what_is_not_as_it_was_compared_leads_to_no_rollback() -> None:
    """Who finds the way back unproven when writes wait does not go it."""
    async with staged("ash", "birch") as stage:
        await stage.anybody.store.put("/before", b"1")
        await stage.switch()
        stage.hold("refreezing")
        await stage.ask(Verb.ROLLBACK)
        await stage.until_held()
        steps = stage.members[await stage.driver()].replaceable.steps
        assert steps._back is not None
        steps._back.compared = False
        stage.go_on()
        state = await stage.until("switched")
        assert state.error == "the way back has to be compared anew before writes may wait"
        await stage.all_on("target")
        await stage.ask(Verb.ROLLBACK)
        await stage.until("rolled back")
        await stage.all_on("source")
        source, target = [await stage.open_store(f"memory:{n}") for n in ("source", "target")]
        assert (await lasting(source))["/before"] == (await lasting(target))["/before"]
        await source.close()
        await target.close()
