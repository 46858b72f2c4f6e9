"""What the driver does in each phase of replacing the metadata store.

The target is filled and followed from here; participants do their part by `SwitchPart`. All that a
new driver needs is in the two stores: it lays them side by side and goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from anabranch.errors import AnabranchError, ConflictError, InputError, NotFound
from anabranch.metadata.announced import Report
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import MetadataStore
from anabranch.metadata.switchable.fence import (
    PRESENT_PATH,
    generation_of_store,
    in_use_since,
    raise_fence,
    raise_generation,
)
from anabranch.metadata.switchable.postures import PREPARING
from anabranch.metadata.switchable.reserved import check_prepared
from anabranch.metadata.switchable.seal import seal
from anabranch.metadata.switchable.succession import succeed
from anabranch.metadata.transfer.keeping import keeping_of
from anabranch.metadata.transfer.resting import Rests, with_rests
from anabranch.metadata.transfer.sources import shown
from anabranch.migrations.engine.bulk import BulkEngine
from anabranch.migrations.engine.reports import read_reports
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.steps import Blocker, Plan, Progress, Turn
from anabranch.migrations.engine.table import Table
from anabranch.migrations.freeze_copy.following import complete, copied, until_little_is_left
from anabranch.migrations.freeze_copy.foreign_processes import (
    ForeignProcesses,
    accepts_risk,
    are_led,
    late_s,
    some_write_on,
)
from anabranch.migrations.freeze_copy.late_writes import LateWatch
from anabranch.migrations.freeze_copy.limits import TAIL_IDLE_S, TAIL_LOOK_S
from anabranch.migrations.freeze_copy.outsiders import Outsiders, flag_in_use
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.migrations.freeze_copy.planning import (
    LOCAL,
    Configuration,
    Survey,
    notes_on_engine,
    rate_of,
    refuse_same_store,
)
from anabranch.migrations.freeze_copy.reservation import occupied_by, reserve
from anabranch.migrations.freeze_copy.tail import End, Tail, Wishes
from anabranch.runtime import Runtime

OpenStore = Callable[[str], Awaitable[MetadataStore]]


class FreezeCopy:
    """See `Steps`."""

    kind = "metadata"

    def __init__(
        self,
        runtime: Runtime,
        source_url: str,
        source: MetadataStore,
        open_store: OpenStore,
        table: Table = TABLE,
        look_at: OpenStore | None = None,
        engines: Mapping[str, BulkEngine] = MappingProxyType({}),
        configuration: Configuration = Configuration.WITHIN,
    ) -> None:
        """`source` is the driver's own handle, past every gate; `open_store` opens the target.

        `look_at` opens it for a plan, without making anything; NotFound: there is no such store.
        `engines` may compare both stores in the driver's place, if the parameter `bulk` names one.
        `configuration` says where clusters, tenants and policies are.
        """
        self.table = table
        self._runtime = runtime
        self._source = End(source_url, source, lambda: open_store(source_url))
        self._open_store = open_store
        self._look_at = open_store if look_at is None else look_at
        self._engines = engines
        self._configuration = configuration
        self._target: End | None = None
        self._attempt = ""
        self._turn: Turn | None = None
        """The run that is under way, or was last."""
        self._forth: Tail | None = None
        self._back: Tail | None = None
        self.foreign = ForeignProcesses(source, runtime.clock)
        self.late = LateWatch(runtime.clock)

    # --- before ---------------------------------------------------------------------------------

    async def plan(self, parameters: Mapping[str, str]) -> Plan:
        """See `Steps.plan`."""
        url = parameters.get("target", "")
        if not url:
            raise InputError("say what the store is to be replaced by: target=<url>")
        refuse_same_store(self._source.url, url)
        rate = rate_of(parameters)
        bulk = notes_on_engine(parameters, self._engines)
        if taken := await self._found_at(url):
            raise ConflictError(f"{shown(url)} is not empty: it has " + ", ".join(taken))
        source = self._source.store
        not_restarted = [
            Blocker(name, "came to this store when it replaced another one: restart it")
            for name in await source.children(PRESENT_PATH)
        ]
        outsiders = Outsiders(
            await read_reports(source, self.kind), url, accepts_risk=accepts_risk(parameters)
        )
        drop_acls = parameters.get("drop_acls") == "true"
        survey = Survey(keeping_of(url), drop_acls, self._configuration)
        began_s = self._runtime.clock.monotonic_s()
        rests = None if rate else Rests()
        async for record in with_rests(source.export(ROOT), rests, self._runtime.clock):
            survey.add(record)
            if record.session is not None:
                outsiders.see(record.path, record.session)
        read_s = self._runtime.clock.monotonic_s() - began_s
        return Plan(
            {**parameters, "source": shown(self._source.url)},
            survey.figures(read_s, rate),
            [*survey.notes(), *outsiders.notes(), *bulk],
            [
                *not_restarted,
                *survey.all_blockers(),
                *outsiders.blockers(),
                *flag_in_use(await self.foreign.flag()),
            ],
        )

    async def led(self, state: State) -> list[Report]:
        """See `Steps.led`."""
        return await self.foreign.reports(state)

    async def _found_at(self, url: str) -> list[str]:
        """What a target has that is in the way; one that is made by the start has nothing."""
        try:
            target = await self._look_at(url)
        except NotFound:
            return []
        try:
            return await self._occupied_by(target)
        finally:
            await target.close()

    async def _occupied_by(self, target: MetadataStore, present: str = "") -> list[str]:
        source = self._source
        return await occupied_by(target, source.store, source.url, self.kind, present)

    # --- the phases -----------------------------------------------------------------------------

    async def run(self, phase: str, turn: Turn) -> None:
        """See `Steps.run`."""
        if self._attempt != turn.announced.attempt:
            await self.close()
            self._attempt = turn.announced.attempt
        self._turn = turn
        step = _STEPS.get(phase)
        if step is not None:
            await step(self, turn)

    def _check(self) -> None:
        """Called before each write of a copy; see `Turn.check`."""
        assert self._turn is not None
        self._turn.check()

    async def _ends(self, turn: Turn) -> tuple[End, End]:
        if self._target is None:
            url = turn.announced.parameters["target"]
            store = await self._open_store(url)
            if turn.announced.phase != PREPARING:
                await _prepared(store, turn)
            self._target = End(url, store, lambda: self._open_store(url))
        return self._source, self._target

    async def _tail_forth(self, turn: Turn) -> Tail:
        if self._forth is None:
            source, target = await self._ends(turn)
            self._forth = Tail(self._runtime, source, target, self._wishes(turn), self._check)
        return await copied(self._forth, turn)

    async def _tail_back(self, turn: Turn) -> Tail:
        if self._back is None:
            source, target = await self._ends(turn)
            since = await in_use_since(target.store)
            self._back = Tail(self._runtime, target, source, self._wishes(turn), self._check, since)
        return await copied(self._back, turn)

    def _wishes(self, turn: Turn) -> Wishes:
        parameters = turn.announced.parameters
        engine = self._engines.get(parameters.get("bulk", LOCAL))
        drop_acls = parameters.get("drop_acls") == "true"
        return Wishes(rate_of(parameters), drop_acls, compared_by=engine)

    async def _prepare(self, turn: Turn) -> None:
        _, target = await self._ends(turn)
        attempt = turn.announced.attempt
        taken = await self._occupied_by(target.store, attempt)
        if taken:
            raise ConflictError("the target is not empty any more: it has " + ", ".join(taken))
        turn.check()
        await reserve(target.store, self._source.url, attempt)

    async def _copy(self, turn: Turn) -> None:
        turn.check()
        await self._tail_forth(turn)

    async def _follow(self, turn: Turn) -> None:
        await until_little_is_left(await self._tail_forth(turn), turn)

    async def _verify(self, turn: Turn) -> None:
        tail = await self._tail_forth(turn)
        while not tail.compared:
            turn.check()
            await tail.verify()
            await tail.look_again()
            await self._follow(turn)

    async def _halt_foreign(self, turn: Turn) -> None:
        _, target = await self._ends(turn)
        if await self.foreign.halt(turn, await turn.reports(), target.store):
            await self._follow(turn)  # what was written until they stopped

    async def _take_last_changes(self, turn: Turn) -> None:
        turn.check()
        await complete(await self._tail_forth(turn), some_write=some_write_on(turn))

    async def _fence_source(self, turn: Turn) -> None:
        turn.check()
        source, target = await self._ends(turn)
        await raise_fence(source.store, f"{turn.announced.attempt} forth")
        await self.foreign.check_halted(turn)
        tail = await self._tail_forth(turn)
        await complete(tail, some_write=some_write_on(turn))
        if are_led(turn):
            await self.late.begin(turn, tail.copied_until, await target.store.revision())
        turn.check()
        await raise_generation(source.store, target.store)

    async def _hear_from_target(self, turn: Turn) -> None:
        """A target that fell silent after it was proven is not turned to: nothing leads back."""
        turn.check()
        _, target = await self._ends(turn)
        await generation_of_store(target.store)

    async def _lead_foreign(self, turn: Turn) -> None:
        if are_led(turn):
            await self.foreign.lead(turn)

    async def _follow_back(self, turn: Turn) -> None:
        """Keep the source what the target is, until somebody decides.

        With processes that are not ours there is no way back, and what they write to the source
        must not be undone there: it is looked for.
        """
        if are_led(turn):
            await self.foreign.lead(turn)
            _, target = await self._ends(turn)
            await self.late.settle(turn, self._source.store, target.store, late_s(turn))
            await asyncio.Event().wait()
        self._forth = None
        while True:
            tail = await self._proven_back(turn)
            turn.check()
            lag = await tail.catch_up(hurries=False)
            turn.progress(Progress(lag=lag))
            await asyncio.sleep(TAIL_LOOK_S if lag else TAIL_IDLE_S)

    async def _proven_back(self, turn: Turn) -> Tail:
        """The way back, on which everything was compared once."""
        tail = await self._tail_back(turn)
        if not tail.compared:
            turn.check()
            try:
                await tail.verify()
            except ConflictError:
                self._back = None  # copied anew when it is tried again
                raise
        return tail

    async def _verify_back(self, turn: Turn) -> None:
        """Do all that grows with the tree, or with what was written since the switch."""
        self._forth = None
        while True:
            tail = await self._proven_back(turn)
            turn.check()
            await tail.look_again()
            await until_little_is_left(tail, turn)
            if tail.compared:
                return

    async def _take_last_changes_back(self, turn: Turn) -> None:
        turn.check()
        tail = self._back
        if tail is None or not tail.compared:
            raise ConflictError("the way back has to be compared anew before writes may wait")
        await self._wait_for_present(turn)
        await self._complete_back(tail)

    async def _complete_back(self, tail: Tail) -> None:
        try:
            await complete(tail)
        except ConflictError:
            self._back = None  # copied anew when it is tried again
            raise

    async def _wait_for_present(self, turn: Turn) -> None:
        """Nobody uses the target any more who has not said that its writes wait.

        A process may have lost its registration at the source and use the target all the same.
        """
        _, target = await self._ends(turn)
        while True:
            now = (turn.announced.attempt, turn.announced.serial)
            reports = await turn.reports()
            frozen = {report.id for report in reports if (report.attempt, report.serial) == now}
            if set(await target.store.children(PRESENT_PATH)) <= frozen:
                return
            turn.check()
            await asyncio.sleep(TAIL_LOOK_S)

    async def _fence_target(self, turn: Turn) -> None:
        turn.check()
        source, target = await self._ends(turn)
        await raise_fence(target.store, f"{turn.announced.attempt} back")
        await self._complete_back(await self._tail_back(turn))
        turn.check()
        await raise_generation(target.store, source.store)

    async def _finalize(self, turn: Turn) -> None:
        """Let everybody find the target who knows the source alone, even if that is gone."""
        _, target = await self._ends(turn)
        if are_led(turn):
            await self.late.settle(turn, self._source.store, target.store, late_s(turn))
        turn.check()
        await succeed(target.store, self._source.url, turn.announced.attempt)
        await self._seal_source(turn)
        await self.close()

    async def _seal_source(self, turn: Turn) -> None:
        """Keep from the source whoever writes late, or starts with its URL."""
        turn.check()
        announced, source = turn.announced, self._source.store
        await raise_fence(source, f"{announced.attempt} for good")
        turn.check()
        await seal(source, announced.attempt, shown(announced.parameters["target"]))

    async def _give_up(self, turn: Turn) -> None:
        await self.foreign.release(turn)
        await self.close()

    async def close(self) -> None:
        """Let go of the target."""
        self._forth = self._back = None
        target, self._target = self._target, None
        if target is not None:
            await target.store.close()


async def _prepared(store: MetadataStore, turn: Turn) -> None:
    try:
        await check_prepared(store, turn.announced)
    except (AnabranchError, asyncio.CancelledError):
        await store.close()
        raise


_STEPS: Final[Mapping[str, Callable[[FreezeCopy, Turn], Awaitable[None]]]] = {
    "preparing": FreezeCopy._prepare,
    "copying": FreezeCopy._copy,
    "tailing": FreezeCopy._follow,
    "verifying": FreezeCopy._verify,
    "halting": FreezeCopy._halt_foreign,
    "freezing": FreezeCopy._take_last_changes,
    "fencing": FreezeCopy._fence_source,
    "switching": FreezeCopy._hear_from_target,
    "leading": FreezeCopy._lead_foreign,
    "switched": FreezeCopy._follow_back,
    "finalizing": FreezeCopy._finalize,
    "reverifying": FreezeCopy._verify_back,
    "refreezing": FreezeCopy._take_last_changes_back,
    "refencing": FreezeCopy._fence_target,
    "aborting": FreezeCopy._give_up,
    "failing": FreezeCopy._give_up,
}
