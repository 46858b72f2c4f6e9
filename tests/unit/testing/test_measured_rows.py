"""Rows about speed: judged by the figures that a benchmark left, and by nothing else."""

import json
from pathlib import Path

import pytest

from anabranch.errors import FormatError
from anabranch.testing.drill import DRILL_COLUMNS, DRILL_RECORD
from anabranch.testing.drills import DRILLS
from anabranch.testing.measured import (
    BOUNDS,
    DRILL_BOUNDS,
    RESULTS,
    Bound,
    DrillBound,
    measured_rows,
    save,
)
from anabranch.testing.run_records import save_rows

FAST = Bound("core.L12", "ledger_append", "16 x 64 KiB", "plain loop", least=0.8)
SMALL = Bound("core.L12", "ledger_append", "memory", "plain loop", most=0.4)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("src/anabranch/ledgers/store.py", "benchmarks/ledger_append.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("code\n")
    return tmp_path


def measure(root: Path, fast: list[float], small: list[float]) -> None:
    ratios = {(FAST.measure, "plain loop"): fast, (SMALL.measure, "plain loop"): small}
    save("ledger_append", ratios, root)


def test_every_bound_must_be_met_by_the_median(root: Path) -> None:
    measure(root, [0.7, 0.9, 0.8], [0.1, 0.3, 0.9])
    row = measured_rows(root, [FAST, SMALL], [])["core.L12"]
    assert row.met
    assert row.lines[0].endswith("0.8 (0.7 to 0.9, 3 pairs), wanted at least 0.8: met")
    measure(root, [0.7, 0.9, 0.79], [0.1, 0.3, 0.9])
    row = measured_rows(root, [FAST, SMALL], [])["core.L12"]
    assert not row.met
    assert [line.rpartition(": ")[2] for line in row.lines] == ["not met", "met"]


def test_what_was_not_measured_is_not_met(root: Path) -> None:
    assert not measured_rows(root, [FAST], [])["core.L12"].met
    measure(root, [1.0, 1.0], [0.1, 0.1])
    assert not (root / RESULTS).exists(), "a short run is none for the record"
    save("ledger_append", {("else", "plain loop"): [1.0] * 3}, root)
    row = measured_rows(root, [FAST], [])["core.L12"]
    assert (row.met, "not measured" in row.lines[0]) == (False, True)


def test_a_load_that_was_left_out_does_not_take_the_others_off_the_record(root: Path) -> None:
    measure(root, [1.0] * 3, [])
    rows = measured_rows(root, [FAST, SMALL], [])["core.L12"]
    assert [line.rpartition(": ")[2] for line in rows.lines] == [
        "met",
        "not measured, wanted at most 0.4",
    ]


def test_a_run_of_some_loads_keeps_what_is_known_of_the_others(root: Path) -> None:
    measure(root, [1.0] * 3, [0.1] * 3)
    (root / "src/anabranch/ledgers/store.py").write_text("other\n")
    measure(root, [], [0.2] * 5)
    rows = measured_rows(root, [FAST, SMALL], [])["core.L12"]
    assert ["3 pairs, stale" in rows.lines[0], "0.2 (0.2 to 0.2, 5 pairs)" in rows.lines[1]] == [
        True,
        True,
    ]


def test_figures_of_other_code_are_called_stale(root: Path) -> None:
    measure(root, [1.0] * 3, [0.1] * 3)
    (root / "src/anabranch/ledgers/store.py").write_text("other\n")
    row = measured_rows(root, [FAST], [])["core.L12"]
    assert row.met
    assert "3 pairs, stale" in row.lines[0]


def test_another_format_is_refused(root: Path) -> None:
    measure(root, [1.0] * 3, [0.1] * 3)
    path = root / RESULTS / "ledger_append.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1}))
    with pytest.raises(FormatError, match="ledger_append"):
        measured_rows(root, [FAST], [])


def test_rows_that_are_measured_exist() -> None:
    rows = {"core.M12", "core.L12", "core.B28", "spark.C18", "454.A13"}
    assert {bound.goal for bound in BOUNDS} == rows
    assert all((bound.least > 0) != (bound.most < 10) for bound in BOUNDS)


@pytest.mark.parametrize(
    ("runs", "met", "said"),
    [
        ([], False, "not measured"),
        ([("10000", "passed", "freeze_s=0.5")], False, "not measured"),
        ([("1000000", "passed", "freeze_s=0.5 nodes=1000000")], True, "0.5 (passed)"),
        ([("1000000", "passed", "freeze_s=1.5")], False, "1.5 (passed)"),
        ([("1000000", "failed", "freeze_s=0.5")], False, "0.5 (failed)"),
        ([("1000000", "failed", "")], False, "failed without it"),
        (
            [("1000000", "passed", "freeze_s=0.5"), ("2000000", "failed", "freeze_s=3")],
            False,
            "3 (failed)",
        ),
        (
            [("1000000", "failed", "freeze_s=3"), ("1000000", "passed", "freeze_s=0.5")],
            True,
            "0.5 (passed)",
        ),
    ],
)
def test_the_newest_large_run_of_a_drill_decides(
    root: Path, runs: list[tuple[str, str, str]], met: bool, said: str
) -> None:
    bound = DrillBound("454.A13", "large", 1_000_000, "freeze_s", most=1.0)
    rows = [("large", "d", size, "1", result, figures) for size, result, figures in runs]
    save_rows(root / DRILL_RECORD, DRILL_COLUMNS, [("other", "d", "9", "1", "passed", ""), *rows])
    found = measured_rows(root, [], [bound])["454.A13"]
    assert found.met is met
    (line,) = found.lines
    assert said in line


def test_a_row_of_both_kinds_needs_both(root: Path) -> None:
    measure(root, [1.0] * 3, [0.1] * 3)
    drill = DrillBound(FAST.goal, "large", 10, "freeze_s", most=1.0)
    assert not measured_rows(root, [FAST], [drill])[FAST.goal].met
    save_rows(
        root / DRILL_RECORD, DRILL_COLUMNS, [("large", "d", "10", "1", "passed", "freeze_s=1")]
    )
    assert measured_rows(root, [FAST], [drill])[FAST.goal].met


def test_drills_that_are_judged_exist_and_are_large_enough_in_full() -> None:
    full = {drill.name: drill.full for drill in DRILLS}
    assert all(full[bound.drill] >= bound.size for bound in DRILL_BOUNDS)
