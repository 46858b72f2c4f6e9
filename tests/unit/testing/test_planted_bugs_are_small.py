"""How it is judged whether a planted bug is small."""

import subprocess
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.testing import smallness
from anabranch.testing.planted import PlantedBug
from anabranch.testing.smallness import check_smallness, count_outcomes, unit_tests_of


def made(target: str) -> PlantedBug:
    return PlantedBug("made", target, len)


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("F.\nFAILED a - 3 failed, 1 passed\n3 failed, 17 passed, 2 skipped in 4.00s\n", (20, 3)),
        ("20 passed in 1.00s\n", (20, 0)),
        ("1 failed, 8 passed, 1 error in 1.00s", (10, 2)),
        ("ERROR: file not found\n", (0, 0)),
    ],
)
def test_outcomes_are_counted_from_the_last_line(output: str, counts: tuple[int, int]) -> None:
    assert count_outcomes(output) == counts


def test_the_unit_tests_of_a_bug_are_those_of_the_folder_it_breaks(tmp_path: Path) -> None:
    (tmp_path / "tests" / "unit" / "broker").mkdir(parents=True)
    unit = tmp_path / "tests" / "unit"
    assert unit_tests_of(made("anabranch.broker.topic:Topic.x"), tmp_path) == unit / "broker"
    assert unit_tests_of(made("anabranch.ids:parse"), tmp_path) == unit / "test_ids.py"


@pytest.mark.parametrize(
    ("last_line", "code"), [("25 failed, 75 passed", 0), ("26 failed, 74 passed", 1), ("", 1)]
)
def test_a_bug_that_breaks_more_than_a_quarter_is_too_large(
    last_line: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert command[-3:-1] == ["--planted", "made"]
        return subprocess.CompletedProcess(command, 1, stdout=last_line)

    monkeypatch.setattr(smallness.subprocess, "run", run)
    assert check_smallness({"made": made("anabranch.ids:parse")}, []) == code
    assert ("too large: made" in capsys.readouterr().err) == bool(code)


def test_an_unknown_bug_is_refused() -> None:
    with pytest.raises(InputError, match="no planted bug nothing"):
        check_smallness({}, ["nothing"])
