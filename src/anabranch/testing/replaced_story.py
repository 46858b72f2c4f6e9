"""Somebody who has the store replaced under the story of coordination, and what must hold then.

Whatever was acknowledged is in the store in use at the end, once. What an attempt brought to a
store that came into use is what was in the other, and nothing of an attempt that came to nothing
stays with the store that was not used.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from anabranch.errors import AnabranchError, ConflictError
from anabranch.metadata.announced import OPERATIONS, stays_behind
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.postures import LEFT_FOR_GOOD
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.state import Asked, Started
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.testing.coordination_story import RESOURCES, Backend, Story, play
from anabranch.testing.simulation.nemesis import Nemesis
from anabranch.testing.simulation.world import World

OPERATOR: Final = "operator"
ELDER: Final = "elder"
"""A process that uses the store for as long as somebody wants it replaced."""
OWN_DOCUMENTS: Final = frozenset({"fence", "generation", "present", "reserved"})
"""What a target has of an operation."""
Opener = Callable[[str], Awaitable[MetadataStore]]


class Pair(Protocol):
    """Two stores, of which the first is in use in the beginning."""

    source_url: str
    target_url: str

    def opener(self, runtime: Runtime) -> Opener:
        """Opens stores for one life of one process."""
        ...


class TwoStores(Backend, Pair, Protocol):
    """Where the story is played."""


class Operator:
    """Asks for the store to be replaced, for aborts and for the way back."""

    def __init__(
        self, world: World, stores: Pair, attempts: int, calm_s: float, name: str = OPERATOR
    ) -> None:
        """After `calm_s` every fault is over, and every session that its process left."""
        self._attempts = attempts
        self._world = world
        self._stores = stores
        self._calm_s = calm_s
        self._rng = world.rng(name)

    async def run(self, runtime: Runtime) -> None:
        """One life of the operator."""
        opener = self._stores.opener(runtime)
        while True:
            try:
                source = await opener(self._stores.source_url)
                target = await opener(self._stores.target_url)
                journal = Journal(source, runtime, FreezeCopy.kind, TABLE)
                steps = FreezeCopy(runtime, self._stores.source_url, source, opener)
                for number in range(self._attempts):
                    name = f"{runtime.entropy.token_hex(4)}-{number}"
                    await self._start(journal, steps, name)
                    phase = await self._bring_to_an_end(journal, last=number == self._attempts - 1)
                    if phase != LEFT_FOR_GOOD:
                        await self._check_target(target)
                return
            except AnabranchError:
                await asyncio.sleep(1.0)

    async def _start(self, journal: Journal, steps: FreezeCopy, name: str) -> None:
        try:
            plan = await steps.plan({"target": self._stores.target_url})
            await journal.change(Started(OPERATOR, name, plan.parameters, ()))
        except ConflictError:
            await asyncio.sleep(1.0)  # one runs already, of an earlier life of the operator
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.uniform(0.0, 3.0))
            await self._ask(journal, Verb.ABORT)

    async def _bring_to_an_end(self, journal: Journal, *, last: bool) -> str:
        """Wait for the end of an attempt, and decide where it asks for a decision."""
        while True:
            state = await journal.read()
            if state is None:
                return ""
            self._world.reach(f"phase {state.phase}")
            if TABLE[state.phase].ends:
                return state.phase
            if state.phase == "switched":
                await asyncio.sleep(self._rng.uniform(0.0, 5.0))
                for_good = last and self._rng.random() < 0.5
                if for_good or self._rng.random() < 0.7:
                    await self._ask(journal, Verb.FINALIZE if for_good else Verb.ROLLBACK)
            await asyncio.sleep(0.1)

    async def _ask(self, journal: Journal, verb: Verb) -> None:
        try:
            await journal.change(Asked(OPERATOR, verb))
            self._world.reach(f"asked to {verb.value}")
        except ConflictError:
            return  # not in this phase

    async def _check_target(self, target: MetadataStore) -> None:
        """After an end the source is in use, and nobody has anything on the target.

        Who was not heard of at the end may still have some: until it hears of it, or its session
        ends.
        """
        names = set(await target.children(OPERATIONS))
        assert names <= OWN_DOCUMENTS, f"the target has documents of the operation: {names}"
        left: list[str] = []
        waited_s = 0.0
        while waited_s <= self._calm_s:
            left = [
                record.path
                async for record in target.export("/")
                if record.session is not None and not stays_behind(record.path)
            ]
            if not left:
                return
            await asyncio.sleep(1.0)
            waited_s += 1.0
        raise AssertionError(f"nodes of sessions stay in the target: {left}")


async def play_replaced(
    world: World, stores: TwoStores, nemesis: Nemesis, story: Story, operator: Operator
) -> None:
    """Tell the story to its end, and let every attempt come to its own."""

    async def use(runtime: Runtime) -> None:
        await stores.open(runtime, ELDER)
        await asyncio.get_running_loop().create_future()

    world.process(ELDER).start(use)
    asking = world.process(OPERATOR)
    asking.start(operator.run)
    await play(world, stores, nemesis, story)
    await asking.wait_exit()
    await check_effects(stores, story)


async def check_effects(stores: TwoStores, story: Story) -> None:
    """Whatever was acknowledged is there, once."""
    found: list[int] = []
    for folder in (*(f"/effects/{resource}" for resource in RESOURCES), "/decrees"):
        found += [int(value.split()[3]) for value in await stores.effects(folder)]
    assert len(found) == len(set(found)), "a write is there twice"
    lost = story.acknowledged - set(found)
    assert not lost, f"{len(lost)} acknowledged writes are lost: {sorted(lost)[:5]}"
