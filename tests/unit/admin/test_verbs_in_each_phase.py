"""Which verbs are taken in which phase of replacing the metadata store, by HTTP, and why not."""

import json
from typing import Any

import pytest

from anabranch.admin import WebInterface
from anabranch.errors import ConflictError
from anabranch.migrations.engine.state import Noted
from anabranch.migrations.engine.steps import Turn
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.server.metadata_migration import migration_of
from anabranch.server.settings import Settings
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    ON_THE_WAY_BACK,
    TARGET_URL,
    Stage,
    staged,
)
from anabranch.testing.web_call import call

OURS = "/admin/v2/anabranch/migrations/metadata"


class Server:
    """A `Served` whose store is replaced."""

    authentication = None
    authorization = None

    def __init__(self, stage: Stage) -> None:
        settings = Settings(metadata_migration_targets=TARGET_URL)
        self.metadata_migration = migration_of(stage.anybody.replaceable, stage.runtime, settings)
        self._app = WebInterface(self)  # type: ignore[arg-type]

    def why_not_ready(self) -> None:
        """Always ready."""

    async def ask(self, verb: str) -> tuple[int, str]:
        """The status, and the reason if it was refused."""
        body: dict[str, Any] = {"target": TARGET_URL} if verb == "start" else {}
        sent = json.dumps(body).encode()
        answer = await call(self._app, f"{OURS}/{verb}", method="POST", body=sent)
        return answer.status, json.loads(answer.body).get("reason", "")

    async def refusals(self, *verbs: str) -> dict[str, str]:
        """Why each is refused; every one has to be, with 409."""
        found = {}
        for verb in verbs:
            status, found[verb] = await self.ask(verb)
            assert status == 409, (verb, status, found[verb])
        return found


@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_before_the_switch_an_abort_is_taken_and_nothing_that_comes_later(
    phase: str,
) -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        await stage.reach(phase)
        before = await stage.anybody.replaceable.journal.read()
        for verb, why in (await server.refusals("start", "rollback", "finalize")).items():
            assert f"is {phase}" in why, (verb, why)
        assert await stage.anybody.replaceable.journal.read() == before, "refused, not noted"
        assert (await server.ask("abort"))[0] == 200
        stage.go_on()
        await stage.until("aborted")
        refused = await server.refusals("abort", "rollback", "finalize", "pause", "resume")
        assert all("is aborted: it is over" in why for why in refused.values()), refused
        await stage.all_on("source")


async def test_a_rollback_without_a_way_back_is_a_conflict_with_the_reason() -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        await stage.switch()
        journal = stage.anybody.replaceable.journal
        state = await journal.read()
        assert state is not None
        announced = state.announced
        note = Noted(
            announced.epoch, announced.serial, "leads", "bookie b1 took part", one_way=True
        )
        await journal.change(note)
        status, reason = await server.ask("rollback")
        assert (status, "has no way back: bookie b1 took part" in reason) == (409, True)
        assert (await server.ask("finalize"))[0] == 200
        await stage.until("finalized")


@pytest.mark.parametrize("phase", ON_THE_WAY_BACK)
async def test_on_the_way_back_there_is_no_other_way(phase: str) -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        await stage.switch()
        stage.hold(phase)
        await stage.ask(Verb.ROLLBACK)
        await stage.until_held()
        never = ("start", "finalize")
        verbs = (*never, "abort", "pause") if TABLE[phase].holds_writes else never
        for verb, why in (await server.refusals(*verbs)).items():
            assert f"is {phase}" in why, (verb, why)
        if not TABLE[phase].holds_writes:
            for verb in ("pause", "resume", "abort"):
                assert (await server.ask(verb))[0] == 200, verb
            await stage.until("switched")
            assert (await server.ask("rollback"))[0] == 200
        stage.go_on()
        await stage.until("rolled back")
        await server.refusals("rollback", "finalize", "abort")
        await stage.all_on("source")


async def test_while_others_are_told_to_turn_there_is_nothing_to_ask() -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        await stage.reach("leading")
        before = await stage.anybody.replaceable.journal.read()
        refused = await server.refusals("start", "abort", "pause", "rollback", "finalize")
        assert all("is leading" in why for why in refused.values()), refused
        assert await stage.anybody.replaceable.journal.read() == before
        stage.go_on()
        await stage.until("switched")


async def test_finalize_is_asked_twice_and_nothing_leads_back() -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        await stage.switch()
        stage.hold("finalizing")
        assert (await server.ask("finalize"))[0] == 200
        await stage.until_held()
        journal = stage.anybody.replaceable.journal
        before = await journal.read()
        assert (await server.ask("finalize"))[0] == 200, "it is being done"
        refused = await server.refusals("start", "abort", "pause", "rollback")
        assert all("is finalizing" in why for why in refused.values()), refused
        assert await journal.read() == before
        stage.go_on()
        await stage.until("finalized")
        refused = await server.refusals("start", "finalize", "abort", "pause", "resume", "rollback")
        assert all("is finalized" in why for why in refused.values()), refused


async def test_what_fails_takes_no_verb_but_another_start() -> None:
    async with staged("ash") as stage:
        server = Server(stage)
        plain = stage.anybody.replaceable.steps.run

        async def failing(phase: str, turn: Turn) -> None:
            if phase == "verifying":
                raise ConflictError("a node differs")
            await plain(phase, turn)

        setattr(stage.anybody.replaceable.steps, "run", failing)  # noqa: B010 - of one object
        stage.hold("failing")
        await stage.start()
        await stage.until_held()
        refused = await server.refusals("start", "abort", "pause", "rollback", "finalize")
        assert all("is failing" in why for why in refused.values()), refused
        stage.go_on()
        await stage.until("failed")
        refused = await server.refusals("abort", "pause", "resume", "rollback", "finalize")
        assert all("is failed: it is over" in why for why in refused.values()), refused
        setattr(stage.anybody.replaceable.steps, "run", plain)  # noqa: B010 - of one object
        assert (await server.ask("start"))[0] == 200
        await stage.until("switched")
