"""The record of proofs: what makes a proof stale, and what does not."""

import ast
from pathlib import Path
from typing import Any

import pytest

from anabranch.testing import proofs
from anabranch.testing.planted import PlantedBug
from anabranch.testing.proofs import (
    Proof,
    digest_of,
    function_of,
    load_record,
    save_record,
    source_of_bug,
    support_of,
    valid_proofs,
)

BUGS = '''
import json
FACTOR = 2
def _twice(x):
    return FACTOR * x
def bug(x):
    """Wrong."""
    return _twice(x)
def other():
    """Another bug."""
    return 1
'''
TEST = "tests/test_it.py::test_it"


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A product module, a module of bugs and a test, all in files that can be changed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "made_product.py").write_text("def right(x): return x\n")
    (tmp_path / "made_bugs.py").write_text(BUGS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("import beside\n")
    (tmp_path / "tests" / "beside.py").write_text("A = 1\n")
    proofs._file_of_module.cache_clear()
    yield tmp_path
    proofs._file_of_module.cache_clear()


def bug_of(folder: Path) -> PlantedBug:
    path = folder / "made_bugs.py"
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
    return PlantedBug("bug", "made_product:right", names["bug"])


def digest(folder: Path) -> str:
    return digest_of(bug_of(folder), TEST, folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "is_stale"),
    [
        ("made_product.py", "return x", "return x + 0", True),
        ("made_bugs.py", "_twice(x)\ndef other", "-_twice(x)\ndef other", True),
        ("made_bugs.py", "FACTOR = 2", "FACTOR = 3", True),
        ("made_bugs.py", "return 1", "return 2", False),
        ("tests/test_it.py", "import beside", "import beside  # why", True),
        ("tests/beside.py", "A = 1", "A = 2", True),
    ],
    ids=["target", "bug", "what the bug uses", "another bug", "test", "support of the test"],
)
def test_a_proof_is_stale_when_what_it_was_made_of_changed(
    workshop: Path, file: str, old: str, new: str, is_stale: bool
) -> None:
    before = digest(workshop)
    proof = Proof("bug", TEST, before, "-", 1.0)
    assert valid_proofs({"bug": bug_of(workshop)}, [proof], workshop) == {("bug", TEST)}
    path = workshop / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    held = valid_proofs({"bug": bug_of(workshop)}, [proof], workshop)
    assert held == (set() if is_stale else {("bug", TEST)})


def test_a_proof_of_a_bug_or_test_that_is_gone_does_not_hold(workshop: Path) -> None:
    proof = Proof("bug", TEST, digest(workshop), "-", 1.0)
    assert valid_proofs({}, [proof], workshop) == set()
    (workshop / "tests" / "test_it.py").unlink()
    assert valid_proofs({"bug": bug_of(workshop)}, [proof], workshop) == set()


def test_the_source_of_a_bug_is_what_it_needs(workshop: Path) -> None:
    source = source_of_bug(bug_of(workshop))
    names = {n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    assert names == {"_twice", "bug"}
    assert "FACTOR = 2" in source


def test_support_is_what_a_test_imports_from_testing_but_not_the_machinery(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text(
        "import asyncio\n"
        "from anabranch.testing.contracts import ledgers\n"
        "from anabranch.testing.planted import applied\n"
        "from anabranch.ledgers import factory\n"
    )
    names = [f"{file.parent.name}/{file.name}" for file in support_of(path)]
    assert names == ["contracts/__init__.py", "contracts/ledgers.py"]


def test_the_record_is_sorted_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "record.tsv"
    assert load_record(path) == {}
    rows = [Proof("b", "t.py::two", "d2", "17", 2.5), Proof("a", "t.py::one", "d1", "-", 0.1)]
    save_record({(row.bug, row.test): row for row in rows}, path)
    assert [line.split("\t")[0] for line in path.read_text().splitlines()] == ["bug", "a", "b"]
    assert sorted(load_record(path).values()) == sorted(rows)


@pytest.mark.parametrize("test", ["a.py::test", "a.py::test[x]", "a.py::test[x::y[0]]"])
def test_a_test_with_parameters_is_one_test(test: str) -> None:
    assert function_of(test) == "a.py::test"
