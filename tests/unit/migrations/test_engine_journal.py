"""The journal in a store: conditional, found again after a lost answer, refused if unknown."""

import json
from typing import Any

import pytest

from anabranch.errors import Fenced, FormatError, InputError, OutcomeUnknown
from anabranch.metadata.announced import (
    Announced,
    Report,
    journal_path,
    past_path,
    read_announced,
    read_report,
    stays_behind,
    write_report,
)
from anabranch.metadata.memory import MemoryStore
from anabranch.metadata.store import Stat
from anabranch.migrations.engine.document import Written, read_journal, write_journal
from anabranch.migrations.engine.journal import Journal
from anabranch.migrations.engine.limits import TRAIL_LINES_MAX
from anabranch.migrations.engine.machine import Refused
from anabranch.migrations.engine.state import Asked, Kept, Started, State, StepDone, TookOver
from anabranch.migrations.engine.table import Verb
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.runtime import Runtime
from anabranch.runtime.real import real_runtime

KIND = "metadata"


def started(attempt: str = "one") -> Started:
    return Started("alice", attempt, {"target": "b"}, ("broker-1",))


class ForgetfulStore(MemoryStore):
    """Carries a write out, or not, and does not say which."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.clock)
        self.lost: list[bool] = []
        """Of the next writes whose answers are lost, whether each is carried out."""

    async def put(self, *arguments: Any, **options: Any) -> Stat:
        if not self.lost:
            return await super().put(*arguments, **options)
        if self.lost.pop(0):
            await super().put(*arguments, **options)
        raise OutcomeUnknown("no answer")


@pytest.fixture
def runtime() -> Runtime:
    return real_runtime()


@pytest.fixture
def store(runtime: Runtime) -> ForgetfulStore:
    return ForgetfulStore(runtime)


@pytest.fixture
def journal(store: ForgetfulStore, runtime: Runtime) -> Journal:
    return Journal(store, runtime, KIND, TABLE)


@pytest.mark.goal("454.A3", part="engine", broken_by="second_start_replaces_the_first")
async def test_a_second_start_is_refused_and_changes_nothing(journal: Journal) -> None:
    await journal.change(started("one"))
    before = await journal.store.get(journal.path)
    with pytest.raises(Refused, match="attempt one is preparing"):
        await journal.change(started("two"))
    assert await journal.store.get(journal.path) == before


@pytest.mark.parametrize("carried_out", [True, False])
async def test_a_lost_answer_makes_no_event_count_twice(
    journal: Journal, store: ForgetfulStore, carried_out: bool
) -> None:
    await journal.change(started())
    store.lost = [carried_out]
    await journal.change(TookOver("broker-1"))
    state = await journal.read()
    assert state is not None
    assert [line.what for line in state.trail] == ["start", "take over"]
    assert state.announced.epoch == 2


@pytest.mark.goal("rel.A5", part="engine", broken_by="old_epoch_is_heard")
async def test_what_a_replaced_driver_writes_is_refused(journal: Journal) -> None:
    await journal.change(started())
    first, _ = await journal.change(TookOver("broker-1"))
    await journal.change(TookOver("broker-2"))
    old = first.announced
    for event in (StepDone(old.epoch, old.serial), Kept(old.epoch, old.serial, {"at": 1})):
        with pytest.raises(Fenced, match="broker-2 drives attempt one with epoch 3"):
            await journal.change(event)
    state = await journal.read()
    assert state is not None
    assert (state.phase, state.checkpoint) == ("preparing", {})


async def test_an_attempt_that_ended_is_kept_when_the_next_one_starts(journal: Journal) -> None:
    await journal.change(started("one"))
    await journal.change(TookOver("broker-1"))
    state, _ = await journal.change(Asked("alice", Verb.ABORT, "too slow"))
    await journal.change(StepDone(state.announced.epoch, state.announced.serial))
    assert await journal.past() == []
    second, _ = await journal.change(started("two"))
    assert second.announced.number == 2
    assert second.announced.epoch == state.announced.epoch + 1
    (past,) = await journal.past()
    assert (past.announced.attempt, past.phase) == ("one", "aborted")
    assert [line.what for line in past.trail] == ["start", "take over", "abort", "done"]
    assert past.trail[2].why == "too slow"


async def test_a_checkpoint_that_is_too_large_is_refused(journal: Journal) -> None:
    await journal.change(started())
    state, _ = await journal.change(TookOver("broker-1"))
    announced = state.announced
    with pytest.raises(InputError, match="too large for the journal"):
        await journal.change(Kept(announced.epoch, announced.serial, {"at": "x" * 70_000}))


def test_a_journal_is_what_it_was_after_writing_and_reading() -> None:
    state = State(Announced("one", 1, 2, "copying", {"target": "b"}, 3), expected=("a", "b"))
    assert read_journal(write_journal(Written(state, "w")), TABLE) == Written(state, "w")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"magic": "other"}, "does not begin with the magic"),
        ({"version": 2}, "has version 2"),
        ({"announced": None}, "does not say which phase"),
        ({"driver": ...}, "lacks something"),
    ],
)
def test_a_journal_that_nobody_knows_is_refused(changes: dict[str, Any], why: str) -> None:
    state = State(Announced("one", 1, 2, "copying", {}, 3))
    document = json.loads(write_journal(Written(state, "w")))
    document.update(changes)
    kept = {name: value for name, value in document.items() if value is not ...}
    with pytest.raises(FormatError, match=why):
        read_journal(json.dumps(kept).encode(), TABLE)


def test_a_phase_that_nobody_knows_is_refused() -> None:
    state = State(Announced("one", 1, 2, "dancing", {}, 3))
    with pytest.raises(FormatError, match="dancing"):
        read_journal(write_journal(Written(state, "w")), TABLE)


def test_bytes_that_are_no_document_are_refused() -> None:
    for read in (read_announced, read_report):
        with pytest.raises(FormatError, match="is not JSON"):
            read(b"{")


def test_a_report_is_what_it_was_and_bears_fields_of_later_builds() -> None:
    report = Report("a", "broker", "host", "1.2", phase="copying", lag=3, error="no")
    document = json.loads(write_report(report))
    document["report"]["mood"] = "good"
    assert read_report(json.dumps(document).encode()) == report
    del document["report"]["role"]
    with pytest.raises(FormatError, match="role"):
        read_report(json.dumps(document).encode())


def test_what_belongs_to_operations_is_in_no_copy() -> None:
    assert stays_behind(journal_path(KIND))
    assert stays_behind(past_path(KIND, 1))
    assert not stays_behind("/anabranch/features")


async def test_the_trail_is_bounded_and_says_what_it_dropped(journal: Journal) -> None:
    await journal.change(started())
    for number in range(TRAIL_LINES_MAX + 5):
        await journal.change(TookOver(f"broker-{number}"))
    state = await journal.read()
    assert state is not None
    assert len(state.trail) == TRAIL_LINES_MAX
    assert state.trail_dropped == 6
