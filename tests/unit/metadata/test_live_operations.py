"""Which live operations run beside each other: the whole table, and what is read from a store."""

from itertools import product
from pathlib import Path

import pytest

from anabranch.errors import FormatError
from anabranch.metadata.announced import Announced, journal_path
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.operations import (
    ENDS,
    LiveOperation,
    Running,
    in_the_way,
    rules_as_table,
    running_on,
    why_apart,
)
from anabranch.migrations.engine.document import Written, write_journal
from anabranch.migrations.engine.state import State
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime.real import real_runtime

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "migrations.md"
STARTS = {
    ("metadata", "layout"),
    ("quorum", "layout"),
    ("storage", "layout"),
    ("layout", "metadata"),
    ("layout", "quorum"),
    ("layout", "storage"),
    ("layout", "layout"),
}
"""What is asked for, and what runs: every pair that is allowed."""


def journal(phase: str, attempt: str = "one") -> bytes:
    return write_journal(Written(State(Announced(attempt, 1, 1, phase)), "w"))


@pytest.mark.broken_by("operations_of_one_direction")
@pytest.mark.parametrize(("asked", "running"), list(product(LiveOperation, LiveOperation)))
def test_every_pair_starts_or_is_refused_with_a_reason(asked: str, running: str) -> None:
    why = why_apart(asked, running)
    assert (not why) == ((asked, running) in STARTS)
    assert why == why_apart(running, asked), "it makes no difference which was first"


def test_an_operation_that_nobody_here_knows_is_kept_apart() -> None:
    assert "does not know" in why_apart("metadata", "teleport")
    assert "does not know" in why_apart("teleport", "layout")


def test_others_of_the_same_kind_are_left_to_its_journal() -> None:
    running = [Running("metadata", "one", "copying"), Running("storage", "two", "switched")]
    assert [each.kind for each, _ in in_the_way("metadata", running)] == ["storage"]
    assert in_the_way("layout", running) == []


@pytest.mark.broken_by("switched_is_taken_for_over")
async def test_what_runs_is_read_from_the_journals() -> None:
    store = MemoryStore(real_runtime().clock)
    assert await running_on(store) == []
    await store.put(journal_path("metadata"), journal("switched"))
    await store.put(journal_path("storage"), journal("copying", "two"))
    await store.put("/anabranch/migrations/reserved", b"{}")
    assert await running_on(store) == [
        Running("metadata", "one", "switched"),
        Running("storage", "two", "copying"),
    ]
    for end in ENDS:
        await store.put(journal_path("metadata"), journal(end))
        assert [each.kind for each in await running_on(store)] == ["storage"]
    await store.put(journal_path("storage"), b"{}")
    with pytest.raises(FormatError, match="/anabranch/migrations/storage"):
        await running_on(store)
    await store.close()


def test_the_docs_show_the_table() -> None:
    assert rules_as_table() in PAGE.read_text()


def test_a_replacement_ends_in_phases_that_everybody_takes_for_an_end() -> None:
    assert {phase.name for phase in TABLE.phases.values() if phase.ends} == ENDS
