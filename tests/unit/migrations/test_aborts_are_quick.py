"""How long it takes until everybody works on after an abort, by a clock that waits for nobody."""

import pytest

from anabranch.migrations.engine.table import Verb
from anabranch.runtime import Runtime
from anabranch.testing.simulation import World
from anabranch.testing.staged_replacement import BEFORE_SWITCH, staged

NODES = 20
WITHIN_S = 1.0
PLENTY_S = 600.0


async def abort_in(phase: str, runtime: Runtime) -> float:
    """Have a replacement aborted in a phase; return after which time all could write again."""
    async with staged("ash", "birch", "cedar", runtime=runtime) as stage:
        for number in range(NODES):
            await stage.anybody.store.put(f"/filled/{number:02d}", b"")
        await stage.reach(phase)
        began_s = runtime.clock.monotonic_s()
        await stage.ask(Verb.ABORT)
        for name, member in stage.members.items():
            await member.store.put(f"/after/{name}", b"")
        await stage.until("aborted")
        await stage.all_on("source")
        took_s = runtime.clock.monotonic_s() - began_s
        assert await stage.anybody.store.children("/after") == sorted(stage.members)
        return took_s


@pytest.mark.goal("454.A30", part="within a second", broken_by="aborts_open_the_gate_late")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
def test_all_are_back_within_a_second_of_an_abort(phase: str) -> None:
    async def main(world: World) -> float:
        found: float = await world.process("all").run(lambda runtime: abort_in(phase, runtime))
        return found

    assert World(1).run(main, time_limit_s=PLENTY_S) < WITHIN_S
