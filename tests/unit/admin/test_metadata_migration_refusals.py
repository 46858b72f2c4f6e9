"""Replacing the metadata store by HTTP, in every phase: what is refused changes nothing."""

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest

from anabranch.admin import WebInterface
from anabranch.metadata.announced import Report, participants_path, write_report
from anabranch.metadata.store import Record
from anabranch.migrations.freeze_copy.reservation import reserve
from anabranch.testing.staged_replacement import (
    BEFORE_SWITCH,
    SOURCE_URL,
    TARGET_URL,
    Stage,
    staged,
)
from anabranch.testing.web_call import call

OURS = "/admin/v2/anabranch/migrations/metadata"


class Asked:
    """A server of a stage, asked by HTTP."""

    authentication = None
    authorization = None

    def __init__(self, stage: Stage) -> None:
        self.metadata_migration = stage.operation
        self._stage = stage
        self._app = WebInterface(self)  # type: ignore[arg-type]

    def why_not_ready(self) -> None:
        """Always ready."""

    async def post(self, verb: str, body: Any = None) -> tuple[int, Any]:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await call(self._app, f"{OURS}/{verb}", method="POST", body=sent)
        return answer.status, json.loads(answer.body) if answer.body else None

    async def status(self) -> Any:
        answer = await call(self._app, OURS)
        return json.loads(answer.body)

    async def refuses(self, verb: str, why: str, body: Any = None) -> None:
        """It is refused with a conflict, says why, and the journal stays what it is."""
        journal = self._stage.anybody.replaceable.journal
        before = await journal.read()
        status, answer = await self.post(verb, body)
        assert status == 409, answer
        assert why in answer["reason"]
        assert await journal.read() == before


async def nodes(stage: Stage, url: str) -> list[Record]:
    store = await stage.open_store(url)
    found = [record async for record in store.export("/")]
    await store.close()
    return found


@pytest.mark.goal("rel.A3", part="requests", broken_by="full_targets_are_taken")
async def test_a_target_that_is_somebodys_is_refused_and_named() -> None:
    async with staged("ash") as stage:
        asked = Asked(stage)
        full = await stage.open_store("memory:full")
        for number in range(7):
            await full.put(f"/n{number}", b"x")
        other = await stage.open_store("memory:other")
        await reserve(other, "memory:elsewhere", "theirs")
        for target, why in (
            ("memory:full", "is not empty: it has /n0, /n1, /n2, /n3, /n4"),
            ("memory:other", "a copy of memory:elsewhere"),
        ):
            before = await nodes(stage, target)
            for verb in ("plan", "start"):
                await asked.refuses(verb, why, {"target": target})
            assert await nodes(stage, target) == before
        assert await stage.anybody.replaceable.journal.read() is None
        await full.close()
        await other.close()


@pytest.mark.goal("454.A6", part="requests", broken_by="older_builds_are_not_asked")
async def test_a_participant_that_is_too_old_blocks_the_start() -> None:
    async with staged("ash") as stage:
        source = await stage.open_store(SOURCE_URL)
        old = Report("old", "broker", "10.0.0.7", "0.1", level=0)
        path = f"{participants_path('metadata')}/old"
        await source.put(path, write_report(old), ephemeral=True)
        await Asked(stage).refuses("start", "old: takes part with level 0", {"target": TARGET_URL})
        assert [record.path for record in await nodes(stage, TARGET_URL)] == ["/"]
        await source.delete(path)
        status, _ = await Asked(stage).post("start", {"target": TARGET_URL})
        assert status == 200
        await source.close()


@pytest.mark.goal("454.A30", part="requests", broken_by="abort_waits_for_the_phase")
@pytest.mark.parametrize("phase", BEFORE_SWITCH)
async def test_an_abort_is_taken_in_every_phase_and_refused_afterwards(phase: str) -> None:
    async with staged("ash", "birch") as stage:
        asked = Asked(stage)
        await stage.reach(phase)
        await asked.refuses("start", f"is {phase}: it must end before", {"target": TARGET_URL})
        for verb in ("rollback", "finalize"):
            await asked.refuses(verb, f"is {phase}: only")
        status, answer = await asked.post("abort", {"why": "not today"})
        assert (status, answer.get("phase")) == (200, "aborting")
        await stage.until("aborted", wait_s=20.0)
        for verb in ("abort", "pause", "resume", "rollback", "finalize"):
            await asked.refuses(verb, "is aborted")
        await stage.all_on("source")
        await stage.anybody.store.put("/after", b"")


@pytest.mark.goal("rel.X6", part="twice", broken_by="second_start_replaces_the_first")
async def test_who_asks_twice_or_goes_away_changes_nothing() -> None:
    async with staged("ash", "birch") as stage:
        asked = Asked(stage)
        stage.hold("copying")
        both = [
            asyncio.ensure_future(asked.post("start", {"target": TARGET_URL})) for _ in range(2)
        ]
        answers = [status for status, _ in await asyncio.gather(*both)]
        assert sorted(answers) == [200, 409]
        leaving = asyncio.ensure_future(asked.status())
        await stage.until_held()
        leaving.cancel()  # whoever asked is gone, answered or not
        before = await stage.anybody.replaceable.journal.read()
        assert before is not None
        await asked.refuses("start", before.announced.attempt, {"target": TARGET_URL})
        for _ in range(2):
            assert (await asked.post("pause"))[0] == 200
        for _ in range(2):
            assert (await asked.post("resume"))[0] == 200
        stage.go_on()
        await stage.until("switched")
        shown = await asked.status()
        assert (shown["attempt"], shown["number"]) == (before.announced.attempt, 1)
        assert shown["parameters"] == asdict(before.announced)["parameters"]
        whats = [line["what"] for line in shown["trail"]]
        assert [whats.count(what) for what in ("start", "pause", "resume")] == [1, 1, 1]
