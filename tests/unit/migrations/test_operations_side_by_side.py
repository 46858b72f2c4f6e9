"""A replacement is not begun beside an operation that it would disturb, or that began with it."""

from typing import Any

import pytest

from anabranch.metadata.announced import Announced, journal_path
from anabranch.migrations.engine.document import Written, write_journal
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.operation import Operation
from anabranch.migrations.engine.state import State
from anabranch.testing.staged_replacement import SOURCE_URL, TARGET_URL, staged


def journal(phase: str) -> bytes:
    return write_journal(Written(State(Announced("other", 1, 1, phase)), "w"))


@pytest.mark.broken_by("starts_look_at_no_other_operation")
async def test_a_start_beside_another_operation_is_refused_and_changes_nothing() -> None:
    async with staged("ash") as stage:
        source = await stage.open_store(SOURCE_URL)
        await source.put(journal_path("storage"), journal("copying"))
        plan = await stage.operation.plan({"target": TARGET_URL})
        assert [blocker.who for blocker in plan.blockers] == ["the operation storage"]
        with pytest.raises(Refused, match="storage: attempt other is copying: a journal stays"):
            await stage.start()
        assert await stage.anybody.replaceable.journal.read() is None
        await source.put(journal_path("layout"), journal("copying"))
        await source.put(journal_path("storage"), journal("finalized"))
        await stage.start()
        await stage.until("switched")
        await source.close()


@pytest.mark.broken_by("starts_look_once")
async def test_of_two_kinds_that_begin_together_none_stays() -> None:
    async with staged("ash") as stage:
        source = await stage.open_store(SOURCE_URL)
        replaceable = stage.anybody.replaceable

        class Between(Operation):
            """Has the other operation begin between the first look and the write."""

            looks = 0

            async def _others(self) -> Any:
                found = await super()._others()
                self.looks += 1
                if self.looks == 1:
                    await source.put(journal_path("storage"), journal("copying"))
                return found

        operation = Between(replaceable.steps, replaceable.journal, stage.runtime.entropy)
        with pytest.raises(Refused, match="given up at its start: the operation storage"):
            await operation.start({"target": TARGET_URL}, "somebody")
        state = await stage.until("aborted")
        assert "storage" in next(line.why for line in state.trail if line.what == "abort")
        await stage.all_on("source")
        await stage.anybody.store.put("/after", b"")
        await source.close()
