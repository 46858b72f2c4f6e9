"""Runs of pytest with a planted bug: what is in place, what is reported, what counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.errors import Corruption
from anabranch.testing import prove
from anabranch.testing.goal_results import Claim, Outcome
from anabranch.testing.planted import PlantedBug, load_bugs
from anabranch.testing.planted_run import why_suspicious
from anabranch.testing.proofs import Proof
from anabranch.testing.prove import (
    Candidate,
    NotProven,
    candidates_of,
    green_by_results,
    verdict_on,
)
from anabranch.testing.simulation.process import ProcessFailed

pytestmark = pytest.mark.timeout(300)  # each starts pytest, which takes long on a busy machine
BUG = "tasks_swallow_failures"
PYTEST = (
    *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
    *("-p", "anabranch.testing.planted_run"),
)
HEAD = "import pytest\nfrom anabranch.runtime.tasks import Tasks\n"


@pytest.fixture
def run(tmp_path: Path):
    """Run pytest on one file with the plugin; returns exit code, output and report."""

    def call(text: str, *options: str) -> tuple[int, str, list[dict[str, str]]]:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "test_it.py").write_text(HEAD + text)
        report = tmp_path / "report.json"
        done = subprocess.run(
            [*PYTEST, "--planted-report", str(report), *options],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        notes = json.loads(report.read_text()) if report.exists() else []
        return done.returncode, done.stdout + done.stderr, notes

    return call


def test_the_bug_is_in_place_from_the_import_of_the_test_on(run) -> None:
    text = f"NAME = Tasks._finished.__name__\ndef test_x(): assert NAME == '{BUG}'\n"
    assert run(text, "--planted", BUG)[0] == 0
    code, _, notes = run(text)
    assert code == 1
    assert [note["phase"] for note in notes] == ["call"]


def test_an_unknown_bug_stops_the_run(run) -> None:
    code, output, notes = run("def test_x(): pass\n", "--planted", "no_such_bug")
    assert code == 4
    assert "no planted bug 'no_such_bug'" in output
    assert notes == []


def test_failures_are_reported_with_phase_and_seed(run) -> None:
    text = """
def test_seeds(seeds):
    for seed in seeds(3):
        assert seed < 7

@pytest.mark.parametrize("seed", [4])
def test_parameter(seed):
    assert not seed

@pytest.fixture
def broken():
    raise RuntimeError("no")

def test_setup(broken): pass
"""
    code, _, notes = run(text, "--planted", BUG, "--seeds", "20")
    assert code == 1
    assert [(n["phase"], n["seed"]) for n in notes] == [
        ("call", "7"),
        ("call", "4"),
        ("setup", "-"),
    ]
    assert notes[0]["error"].startswith("AssertionError")


def test_seeds_are_as_many_as_the_test_asks_for_unless_told(run) -> None:
    text = "def test_x(seeds): assert list(seeds(3)) == [0, 1, 2]\n"
    assert run(text)[0] == 0
    assert run(text, "--seeds", "4")[0] == 1
    assert run("def test_x(seeds): assert list(seeds(3)) == []\n", "--seed-minutes", "-1")[0] == 0
    text = "def test_x(seeds): assert list(seeds(3)) == [17]\n"
    assert run(text, "--only-seed", "17")[0] == 0


def test_hypothesis_does_not_waste_time_on_small_examples(run) -> None:
    text = """
from hypothesis import Phase, given, settings, strategies as st

@given(st.integers())
def test_x(n):
    assert Phase.shrink not in settings().phases
"""
    assert run(text, "--planted", BUG)[0] == 0


def nested(error: BaseException) -> BaseException:
    failure = ProcessFailed("server ended")
    failure.__cause__ = error
    return failure


def in_bugs(statement: str) -> BaseException:
    """What a statement raises in a function of a module of bugs."""
    code = compile(statement, "/somewhere/testing/bugs/broker.py", "exec")
    try:
        exec(code, {})  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError(statement)


PRINTED = """Traceback (most recent call last):
  File "/somewhere/testing/bugs/broker.py", line 9, in bug
    return self.nothing
           ^^^^^^^^^^^^
AttributeError: 'X' object has no attribute 'nothing'
"""
DEEPER = PRINTED.replace(
    "AttributeError", '  File "/somewhere/broker/topic.py", line 7, in topic\nAttributeError'
)


@pytest.mark.parametrize(
    ("error", "doubt"),
    [
        (AssertionError("1 != 2"), ""),
        (pytest.fail.Exception("DID NOT RAISE"), ""),
        (Corruption("file", 4, "torn"), ""),
        (TimeoutError(), ""),
        (ConnectionResetError(), ""),
        (ExceptionGroup("two", [AssertionError(), OSError()]), ""),
        (nested(ValueError("of the product")), ""),
        (KeyError("x"), "KeyError is no way for a test to notice a bug"),
        (ExceptionGroup("two", [AssertionError(), KeyError()]), "KeyError is no way"),
        (TypeError("bug() missing 1 argument"), "the bug itself raised TypeError: bug() missing"),
        (nested(TypeError("bug() takes 1 argument")), "the bug itself raised TypeError"),
        (nested(in_bugs("nothing")), "the bug itself raised NameError"),
        (nested(in_bugs("raise ValueError")), "the bug itself raised ValueError"),
        (nested(in_bugs("assert False")), "the bug itself raised AssertionError"),
        (nested(in_bugs("import asyncio; raise asyncio.CancelledError")), ""),
        (AssertionError(DEEPER), ""),
        (
            AssertionError(PRINTED.replace("AttributeError: ", "x.y.Odd: ")),
            "the bug itself raised x",
        ),
        (AssertionError(PRINTED), "the bug itself raised AttributeError: 'X' object"),
        (AssertionError("x\nTypeError: bug() takes 2"), "the bug itself raised TypeError: bug()"),
    ],
    ids=str,
)
def test_a_mistake_in_the_bug_is_told_from_a_test_that_noticed_it(
    error: BaseException, doubt: str
) -> None:
    found = why_suspicious(error, "bug")
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)


def test_the_first_red_case_of_a_test_is_enough(run) -> None:
    text = """
@pytest.mark.parametrize("number", range(4))
def test_x(number): assert number == 0

def test_y(): assert False
"""
    _, output, notes = run(text, "--planted", BUG)
    assert [note["test"] for note in notes] == ["test_it.py::test_x[1]", "test_it.py::test_y"]
    assert "2 failed, 1 passed, 2 skipped" in output


def note(**changes: str) -> dict[str, str]:
    return {"phase": "call", "error": "AssertionError: 1", "doubt": "", "seed": "-", **changes}


@pytest.mark.parametrize(
    ("found", "exit_code", "reason"),
    [
        (None, 0, "no test noticed it"),
        (None, 1, "no test noticed it"),
        (None, 2, "did not run:\nE import error"),
        (note(phase="setup"), 1, "failed in its setup"),
        (note(doubt="the bug itself raised"), 1, "suspicious: the bug itself"),
    ],
)
def test_only_a_test_that_noticed_the_bug_is_a_proof(
    found: dict[str, str] | None, exit_code: int, reason: str
) -> None:
    with pytest.raises(NotProven, match=reason):
        verdict_on(found, exit_code=exit_code, output="E import error")
    assert verdict_on(note(seed="17"), exit_code=1, output="")["seed"] == "17"


HUNT = """
from anabranch.runtime.tasks import Tasks

def test_x(seeds):
    for seed in seeds(3):
        assert seed < 7, "this seed fails anyway"

def test_y(seeds):
    for seed in seeds(3):
        assert seed < 5 or Tasks._finished.__name__ != "tasks_swallow_failures"
"""


def test_a_seed_that_fails_without_the_bug_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_hunt.py").write_text(HUNT)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p anabranch.testing.planted_run\n")
    monkeypatch.setattr(prove, "ROOT", tmp_path)
    monkeypatch.setattr(prove, "digest_of", lambda *_: "d")
    bug = load_bugs()[BUG]
    both = [
        Candidate(bug, name, [name]) for name in ("test_hunt.py::test_x", "test_hunt.py::test_y")
    ]
    unproven, proven = prove.prove(BUG, both).values()
    assert isinstance(unproven, NotProven)
    assert str(unproven).startswith("seed 7 fails without the bug: AssertionError: this seed")
    assert isinstance(proven, Proof)
    assert (proven.test, proven.seed) == ("test_hunt.py::test_y", "5")


def claim(test: str, bug: str = "bug", *, peer: bool = False) -> Claim:
    return Claim("core.M1", "", test, bug, peer)


def test_a_test_is_green_if_all_its_cases_passed() -> None:
    results = {
        claim("a.py::x[1]"): Outcome.PASSED,
        claim("a.py::x[2]"): Outcome.PASSED,
        claim("a.py::y[1]"): Outcome.PASSED,
        claim("a.py::y[2]"): Outcome.FAILED,
        claim("a.py::z"): Outcome.NOT_RUN,
    }
    assert green_by_results(results) == {"a.py::x"}


def test_candidates_are_test_functions_with_the_cases_that_name_the_bug() -> None:
    bugs = {name: PlantedBug(name, "m:f", len) for name in ("bug", "other")}
    claims = [
        claim("a.py::x[1]"),
        claim("a.py::x[2]", "other"),
        claim("a.py::x[3]"),
        claim("a.py::x[3]"),
        claim("a.py::y", ""),
        claim("a.py::z", peer=True),
    ]
    found = candidates_of(claims, bugs)
    assert {key: candidate.cases for key, candidate in found.items()} == {
        ("bug", "a.py::x"): ["a.py::x[1]", "a.py::x[3]"],
        ("other", "a.py::x"): ["a.py::x[2]"],
    }
