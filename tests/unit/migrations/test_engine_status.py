"""How an operation is, for programs, for people and for Prometheus."""

from dataclasses import replace

import pytest

from anabranch.metadata.announced import Announced, Report
from anabranch.migrations.engine.progress import Shown
from anabranch.migrations.engine.state import Line, State
from anabranch.migrations.engine.status import Status
from anabranch.migrations.engine.steps import Progress
from anabranch.migrations.engine.table import Outward
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.telemetry.metrics import render

HERE = Announced("one", 2, 5, "freezing", {"target": "oxia://b"}, 9)
TRAIL = (
    Line(1_000, "ash", "done", "freezing", 4),
    Line(1_250, "ash", "failure", "failing", 4, "no"),
    Line(2_000, "ash", "done", "freezing", 5),
)
READY = Report("ash", "broker", "h1", "0.1", attempt="one", serial=9, phase="freezing")
LATE = Report("birch", "broker", "h2", "0.1", attempt="one", serial=8, phase="verifying", lag=4)
BROKEN = Report("cedar", "broker", "h3", "0.1", attempt="one", serial=9, error="disk full")
SHOWN = Shown("one", 5, "freezing", Progress(3, 6, 100, 2), waits_for=("birch",))


def status(state: State | None = None) -> Status:
    state = state or State(HERE, driver="ash", trail=TRAIL, error="earlier", held_ms=250)
    return Status("metadata", TABLE, state, [READY, LATE, BROKEN], SHOWN)


@pytest.mark.goal("454.A41", part="programs", broken_by="progress_is_not_shown")
def test_programs_learn_everything() -> None:
    found = status().as_json()
    assert (found["phase"], found["outward"], found["epoch"]) == ("freezing", "COPYING", 5)
    assert (found["driver"], found["holds_writes"], found["held_ms"]) == ("ash", True, 250)
    assert found["verbs"] == ["abort"]
    progress = found["progress"] or {}
    shown = [progress.get(name) for name in ("done", "total", "bytes", "lag", "waits_for")]
    assert shown == [3, 6, 100, 2, ["birch"]]
    for each in found["participants"]:
        assert {"id", "role", "host", "version", "epoch", "phase", "lag", "error"} <= set(each)
    there = {each["id"]: (each["there"], each["error"]) for each in found["participants"]}
    assert there == {"ash": (True, ""), "birch": (False, ""), "cedar": (False, "disk full")}
    assert [line["what"] for line in found["trail"]] == ["done", "failure", "done"]


def test_people_see_it_in_lines() -> None:
    assert list(status().lines()) == [
        "metadata: freezing, writes wait (writes wait, those under way end, the last changes and "
        "the counters are copied)",
        "attempt   one, number 2, epoch 5",
        "target    oxia://b",
        "driver    ash",
        "progress  3 of 6 (50%), 100 bytes, lag 2, waits for birch",
        "because   earlier",
        "held      250 ms so far",
        "  + ash (broker 0.1, h1): freezing, lag 0",
        "  . birch (broker 0.1, h2): verifying, lag 4",
        "  ! cedar (broker 0.1, h3): disk full",
        "you may   abort",
    ]


@pytest.mark.goal("454.A41", part="figures", broken_by="progress_is_not_shown")
def test_figures_are_there_for_prometheus() -> None:
    page = "".join(render(status().metrics()))
    for line in (
        'anabranch_migration_phase{operation="metadata",phase="freezing"} 1',
        'anabranch_migration_epoch{operation="metadata"} 5',
        'anabranch_migration_held_seconds{operation="metadata"} 0.25',
        'anabranch_migration_participants_waited_for{operation="metadata"} 2',
        'anabranch_migration_lag{operation="metadata"} 2',
        'anabranch_migration_troubled{operation="metadata"} 0',
    ):
        assert line in page.splitlines()
    tried_again = replace(status(), shown=replace(SHOWN, trouble="no answer"))
    page = "".join(render(tried_again.metrics()))
    assert 'anabranch_migration_troubled{operation="metadata"} 1' in page.splitlines()


def test_before_the_first_start_there_is_little_to_say() -> None:
    never = Status("metadata", TABLE, None, [], None)
    assert never.outward is Outward.NOT_STARTED
    assert never.as_json() == {"kind": "metadata", "phase": None, "verbs": ["start"]}
    assert list(never.lines()) == ["metadata: never started"]
    assert len(list(never.metrics())) == 1


@pytest.mark.parametrize(
    ("phase", "paused", "verbs"),
    [
        ("copying", False, ["pause", "abort"]),
        ("copying", True, ["resume", "abort"]),
        ("switched", False, ["rollback", "finalize"]),
        ("failing", False, []),
        ("failed", False, ["start"]),
    ],
)
def test_a_status_says_what_can_be_asked(phase: str, paused: bool, verbs: list[str]) -> None:
    state = State(Announced("one", 1, 1, phase, {}, 1), paused=paused)
    assert Status("metadata", TABLE, state, [], None).verbs == verbs


def test_progress_of_another_phase_is_not_shown() -> None:
    state = State(Announced("one", 1, 1, "copying", {}, 1))
    assert status(state).as_json()["progress"] is None
