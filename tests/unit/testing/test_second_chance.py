"""Which failures are asked again: few, and of tests that real time can hurt."""

import json
from pathlib import Path

import pytest

from anabranch.testing import second_chance
from anabranch.testing.second_chance import FAILED_FILE, TESTS_MAX, refusal

REAL = "tests/interop/test_brokers_of_a_cluster.py::test_a_topic_is_taken_over"


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([], "no test is known"),
        ([f"{REAL}[{number}]" for number in range(TESTS_MAX + 1)], "4 tests failed"),
        ([REAL, "tests/simulation/test_three_brokers.py::test_seeds"], "the same way every time"),
        (["tests/interop/test_brokers_of_a_cluster.py"], "could not be collected"),
    ],
)
def test_a_second_chance_is_refused(failed: list[str], why: str) -> None:
    assert why in (refusal(failed) or "")


def test_a_few_tests_on_real_processes_are_asked_again() -> None:
    assert refusal([f"{REAL}[{number}]" for number in range(TESTS_MAX)]) is None


@pytest.mark.parametrize(("body", "code"), [("assert True", 0), ("assert False", 1)])
def test_what_fails_again_has_failed(
    body: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "test_asked.py").write_text(f"def test_it():\n    {body}\n")
    (tmp_path / FAILED_FILE).parent.mkdir(parents=True)
    (tmp_path / FAILED_FILE).write_text(json.dumps({"test_asked.py::test_it": True}))
    monkeypatch.chdir(tmp_path)
    assert second_chance.main() == code
    said = "UNSTEADY: test_asked.py::test_it" in capfd.readouterr().out
    assert said == (code == 0)


def test_nothing_failed_is_not_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert second_chance.main() == 1
