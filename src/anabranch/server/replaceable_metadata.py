"""The metadata store of a process, and the process's part in replacing it.

The process reaches the store by two handles: one for all that its callers do, and one that stays
when the store is replaced, by which it is registered, is told of phases, and may drive. Once the
other store is in use for good, the old one is let go of: it may be gone the next moment.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import Announced, Report
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.fence import generation_of_store, raise_fence
from anabranch.metadata.switchable.part import OpenStore, SwitchPart
from anabranch.metadata.switchable.postures import LEFT_FOR_GOOD, SOURCE, TARGET
from anabranch.metadata.switchable.seal import seal
from anabranch.metadata.switchable.store import SwitchableStore
from anabranch.metadata.switchable.succession import Located, located, succession_of
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.bulk import BulkEngine
from anabranch.migrations.engine.driver import Driver
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.participant import Participant
from anabranch.migrations.engine.retries import may_pass
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.table import Table
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.planning import Configuration
from anabranch.migrations.freeze_copy.steps import FreezeCopy
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.telemetry import get_logger

LEFT_LOOK_S: Final = 1.0
"""Between two looks whether the store that was left is left for good."""
LEFT_UNHEARD_S: Final = 5.0
"""How long the target says so before nobody waits any more to hear it from the source."""
SEAL_AGAIN_S: Final = 5.0
"""Between two attempts to seal a store that did not answer when it was left."""
_log: Final = get_logger("migrations")


class ReplaceableMetadata:
    """Made by `open`."""

    def __init__(
        self,
        runtime: Runtime,
        found: Located,
        side: MetadataStore,
        generation: int,
        open_store: OpenStore,
        me: Report,
        tasks: Tasks,
        table: Table,
        look_at: OpenStore | None,
        engines: Mapping[str, BulkEngine],
        configuration: Configuration,
    ) -> None:
        self._url = found.url
        self.store = SwitchableStore(
            found.store, side, runtime.clock, FreezeCopy.kind, me.id, generation
        )
        """For everybody in this process."""
        self.steps = FreezeCopy(
            runtime, found.url, side, open_store, table, look_at, engines, configuration
        )
        self.journal = Journal(side, runtime, FreezeCopy.kind, table)
        self._tasks = tasks
        self._at_source = Tasks(tasks.report)
        """What needs the store that this process began with."""
        self._part = SwitchPart(self.store, found.url, open_store)
        self._participant = Participant(
            side, runtime.clock, self._at_source, FreezeCopy.kind, me, self._part
        )
        self._driver = Driver(self.steps, self.journal, runtime.clock, self._at_source, me.id)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        url: str,
        open_store: OpenStore,
        me: Report,
        tasks: Tasks,
        table: Table = TABLE,
        *,
        successors: Sequence[str] = (),
        look_at: OpenStore | None = None,
        engines: Mapping[str, BulkEngine] = MappingProxyType({}),
        configuration: Configuration = Configuration.WITHIN,
    ) -> "ReplaceableMetadata":
        """Open the store at a URL, or the one that has replaced it, and take part from now on.

        If nobody answers there, one of the `successors` may be the one that has. For the rest see
        `FreezeCopy`.
        """
        me = replace(me, id=f"{me.id}-{runtime.entropy.token_hex(4)}")
        async with AsyncExitStack() as opened:
            place = await located(url, FreezeCopy.kind, open_store, successors)
            opened.push_async_callback(place.store.close)
            side = await open_store(place.url)
            opened.push_async_callback(side.close)
            generation = await generation_of_store(side)
            found = cls(
                runtime,
                place,
                side,
                generation,
                open_store,
                me,
                tasks,
                table,
                look_at,
                engines,
                configuration,
            )
            opened.pop_all()
            opened.push_async_callback(found.close)
            await found._participant.join()
            opened.pop_all()
        found._driver.start()
        tasks.spawn("leave the store for good", found._leave_for_good())
        return found

    @property
    def url(self) -> str:
        """Where the store is that is in use."""
        announced = self.store.announced
        if self.store.route.name == SOURCE or announced is None:
            return self._url
        return announced.parameters["target"]

    async def _leave_for_good(self) -> None:
        """Go on without the old store once nothing leads back to it."""
        announced = await self._until_left()
        state = await self._last_state(announced)
        await self._at_source.close()
        await self._obey(state.announced)
        self.journal.end_with(state)
        if announced.phase != LEFT_FOR_GOOD:
            await self._seal_when_it_is_back(announced)
        await self.store.side.close()
        _log.info("store_left_for_good", url=state.announced.parameters.get("source", ""))

    async def _seal_when_it_is_back(self, announced: Announced) -> None:
        """Do what the driver may not have come to: the old store was silent.

        The target has said that there is no way back; so whoever reaches the source may do it.
        """
        attempt, target = announced.attempt, shown(announced.parameters["target"])
        while True:
            try:
                async with asyncio.timeout(LEFT_UNHEARD_S):
                    await raise_fence(self.store.side, f"{attempt} for good")
                    await seal(self.store.side, attempt, target)
                return
            except (AnabranchError, TimeoutError):
                await asyncio.sleep(SEAL_AGAIN_S)

    async def _until_left(self) -> Announced:
        """Wait until this process has heard of the end, or sees it where the source is gone."""
        seen_s = 0.0
        while True:
            announced = await self._part.settled_on_target()
            if announced.phase == LEFT_FOR_GOOD or seen_s >= LEFT_UNHEARD_S:
                return announced
            seen_s = seen_s + LEFT_LOOK_S if await self._is_succeeded(announced) else 0.0
            await asyncio.sleep(LEFT_LOOK_S)

    async def _is_succeeded(self, announced: Announced) -> bool:
        route = self.store.route
        if route.name != TARGET:
            return False
        try:
            found = await succession_of(route.store)
        except AnabranchError:
            return False  # it does not answer now
        return found is not None and found.attempt == announced.attempt

    async def _obey(self, announced: Announced) -> None:
        while True:
            try:
                return await self._part.enter(announced)
            except AnabranchError as error:
                if not may_pass(error):
                    raise
                await asyncio.sleep(LEFT_LOOK_S)

    async def _last_state(self, announced: Announced) -> State:
        """The journal as it is in the end, as far as anybody can tell."""
        state: State | None = None
        try:
            async with asyncio.timeout(LEFT_LOOK_S):
                state = await self.journal.read()
        except (AnabranchError, TimeoutError):
            pass  # the source is gone
        if state is None or state.announced.attempt != announced.attempt:
            state = State(announced)
        return replace(state, announced=replace(state.announced, phase=LEFT_FOR_GOOD))

    async def close(self) -> None:
        """Let go of everything. The other tasks end with the group they were given to."""
        await self._at_source.close()
        await self._part.close()
        await self.steps.close()
        await self.store.close()
