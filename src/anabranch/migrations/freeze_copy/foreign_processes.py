"""Leads processes that are not ours by Pulsar's flag, in the store that is to be left.

They hold no lock of ours and see no fence. What makes it safe is their own acknowledgement: the
flag is raised before our writes wait, and nothing is switched before every registration is gone.
The flag is written on conditions, and only by the process that drives.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from anabranch.errors import BadVersion, ConflictError
from anabranch.metadata.announced import Report
from anabranch.metadata.paths import ROOT
from anabranch.metadata.store import ABSENT, Expected, MetadataStore
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.steps import Progress, Turn
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.foreign_flag import (
    FLAG_PATH,
    PARTICIPANTS_PATH,
    Flag,
    may_follow,
    read_flag,
    write_flag,
)
from anabranch.migrations.freeze_copy.limits import (
    FOREIGN_LOOK_S,
    FOREIGN_S_MAX,
    FOREIGN_TURN_S,
    LATE_BOOKIES_S,
    LATE_S,
)
from anabranch.migrations.freeze_copy.outsiders import BOOKIE, Foreign, Outsiders, places_of
from anabranch.runtime import Clock

LED: Final = "led"
"""Under this name a checkpoint has who is led; so it is known whose flag it is."""
_RISKY: Final = "risky"
"""And under this, whether there are others than bookies among them."""
_REGISTERED: Final = "registered"
"""And under this, the registrations of those who are led, in the same order."""
NOT_OURS: Final = "not ours"
"""Instead of a version, which they do not tell."""


def accepts_risk(parameters: Mapping[str, str]) -> bool:
    """Whether somebody said that processes may take part which write past their own freeze."""
    return parameters.get("accept_foreign_risk") == "true"


def are_led(turn: Turn) -> bool:
    """Whether somebody takes part in this attempt who is not ours."""
    return bool(turn.checkpoint.get(LED))


def some_write_on(turn: Turn) -> bool:
    """Whether somebody takes part who writes past its own freeze."""
    return bool(turn.checkpoint.get(_RISKY))


def late_s(turn: Turn) -> float:
    """How long after the switch they may write to the store that was left."""
    return LATE_S if some_write_on(turn) else LATE_BOOKIES_S


class ForeignProcesses:
    """Those that use one store."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self.wait_s = FOREIGN_S_MAX
        self._store = store
        self._clock = clock

    async def flag(self) -> Flag:
        """What the flag says now."""
        return (await self._read())[0]

    async def _read(self) -> tuple[Flag, Expected]:
        await self._store.sync()
        node = await self._store.get(FLAG_PATH)
        if node is None:
            return Flag(), ABSENT
        return read_flag(node.value), node.stat.version

    async def reports(self, state: State) -> list[Report]:
        """Those who are led, as others report themselves; their phase is in Pulsar's words.

        They say by their registration that they have stopped writing, and after that nothing.
        """
        names = state.checkpoint.get(LED, ())
        if not names:
            return []
        announced, said = state.announced, (await self.flag()).phase
        waited_for = await self.waited_for()
        registered = state.checkpoint.get(_REGISTERED, ())
        found = []
        for words, node in zip_longest(names, registered[: len(names)], fillvalue=""):
            role, _, name = words.partition(" ")
            report = Report(name, role, name.rpartition(":")[0] or name, NOT_OURS, level=0)
            if node not in waited_for:
                attempt, serial = announced.attempt, announced.serial
                report = replace(report, attempt=attempt, serial=serial, phase=said.value)
            found.append(report)
        return found

    async def waited_for(self) -> list[str]:
        """Registrations of those who have not acknowledged that they stopped writing."""
        await self._store.sync()
        return await self._store.children(PARTICIPANTS_PATH)

    # --- before the switch ----------------------------------------------------------------------

    async def halt(self, turn: Turn, reports: list[Report], target: MetadataStore) -> bool:
        """Have all of them stop writing and connect to the target; False: there are none.

        Raises:
            ConflictError: naming who cannot be led, or did not come along in time.
        """
        if not are_led(turn) and not await self._store.children(PARTICIPANTS_PATH):
            return False  # to look through the whole tree would only take time
        parameters = turn.announced.parameters
        outsiders = Outsiders(reports, parameters["target"], accepts_risk=accepts_risk(parameters))
        async for record in self._store.export(ROOT, access=False, values=False):
            if record.session is not None:
                outsiders.see(record.path, record.session)
        if against := [f"{each.who} {each.why}" for each in outsiders.blockers()]:
            raise ConflictError("; ".join(against))
        found = outsiders.foreign()
        if not found and not are_led(turn):
            return False
        if not are_led(turn):
            await self._own_the_flag(turn, found)
        stopped = Flag(Outward.COPYING, parameters["target"])
        if await self.flag() != stopped:  # else the driver before this one has come so far
            await self._raise(turn, Flag(Outward.PREPARATION, parameters["target"]))
            await self._wait(turn, {each.registered: each for each in found})
            await self._wait_for_nodes(turn, found, target)
        await self._raise(turn, stopped)
        return True

    async def _own_the_flag(self, turn: Turn, found: list[Foreign]) -> None:
        """Make durable that the flag is this attempt's, before it is raised."""
        before = await self.flag()
        if not may_follow(before.phase, Outward.PREPARATION):
            raise ConflictError(f"{FLAG_PATH} says {before.phase.value}: another migration uses it")
        names = [str(each) for each in found]
        await turn.note(
            "leads",
            f"{', '.join(names)} took part, which are not ours and cannot go back",
            one_way=True,
        )
        risky = any(each.role != BOOKIE for each in found)
        registered = [each.registered for each in found]
        await turn.keep({**turn.checkpoint, LED: names, _RISKY: risky, _REGISTERED: registered})

    async def _wait(self, turn: Turn, names: Mapping[str, Foreign]) -> None:
        deadline_s = self._clock.monotonic_s() + self.wait_s
        while left := await self.waited_for():
            shown = ", ".join(str(names.get(each, each)) for each in left)
            if self._clock.monotonic_s() >= deadline_s:
                raise ConflictError(
                    f"{shown} did not stop writing and connect to the target in "
                    f"{self.wait_s:g} s: its log says why. Restart it before the next attempt"
                )
            turn.progress(Progress(words=f"waits for {shown}"))
            turn.check()
            await asyncio.sleep(FOREIGN_LOOK_S)

    async def _wait_for_nodes(
        self, turn: Turn, found: list[Foreign], target: MetadataStore
    ) -> None:
        """Make sure that the target they have come to is this one: they are found there now.

        An address may lead them to another store; there is no way back from that.
        """
        deadline_s = self._clock.monotonic_s() + self.wait_s
        for each in found:
            while await self._is_elsewhere(each, target):
                if self._clock.monotonic_s() >= deadline_s:
                    raise ConflictError(
                        f"{each} has stopped writing, and is not in the target after "
                        f"{self.wait_s:g} s: does the address of the target lead it there? "
                        "Restart it before the next attempt"
                    )
                turn.progress(Progress(words=f"waits for {each} in the target"))
                turn.check()
                await asyncio.sleep(FOREIGN_LOOK_S)

    async def _is_elsewhere(self, each: Foreign, target: MetadataStore) -> bool:
        """Whether it lives and is not in the target."""
        if not each.node:
            return False
        for path in places_of(each.node):
            if await target.exists(path):
                return False
        for path in places_of(each.node):
            if await self._store.exists(path):
                return True
        return False

    async def check_halted(self, turn: Turn) -> None:
        """Make sure, after the last changes were copied, that nobody writes who is not ours.

        Raises:
            ConflictError: if somebody came who was not told, or the flag is another's by now.
        """
        if not are_led(turn):
            if left := await self.waited_for():
                raise ConflictError(
                    f"{', '.join(left)} came meanwhile, which is not ours: start again"
                )
            return
        target = turn.announced.parameters["target"]
        if (now := await self.flag()) != Flag(Outward.COPYING, target):
            raise ConflictError(f"somebody wrote {now.phase.value} to {FLAG_PATH} meanwhile")
        # Who starts now reads the flag, and takes its registration away by itself.
        while await self.waited_for():
            turn.check()
            await asyncio.sleep(FOREIGN_LOOK_S)

    # --- from the switch on -----------------------------------------------------------------------

    async def lead(self, turn: Turn) -> None:
        """Have all of them turn to the target, while nobody of ours writes to it."""
        target = turn.announced.parameters["target"]
        if (await self.flag()).phase is not Outward.COMPLETED:
            await self._raise(turn, Flag(Outward.COMPLETED, target), whatever_it_says=True)
        await asyncio.sleep(FOREIGN_TURN_S)

    async def release(self, turn: Turn) -> None:
        """Have all of them go on with the source, if this attempt has stopped them."""
        if not are_led(turn):
            return
        now = await self.flag()
        if now.holds:
            await self._raise(turn, Flag(Outward.FAILED, now.target_url))

    async def _raise(self, turn: Turn, flag: Flag, *, whatever_it_says: bool = False) -> None:
        """Write the flag, unless it says so already."""
        before, version = await self._read()
        if before == flag:
            return
        if not whatever_it_says and not may_follow(before.phase, flag.phase):
            raise ConflictError(
                f"{FLAG_PATH} says {before.phase.value}, so it cannot become {flag.phase.value}: "
                "another migration uses it"
            )
        turn.check()
        try:
            await self._store.put(FLAG_PATH, write_flag(flag), version, guard=turn.guard())
        except BadVersion:
            await self._raise(turn, flag, whatever_it_says=whatever_it_says)
