"""What test runs left behind about the rows of the goal map: one file, merged run by run.

`tests/conftest.py` gathers the outcomes of a run, `goals.py` judges them. A partial run changes
only the tests it ran; a test that is gone from a file that was collected is forgotten.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

RESULTS_FILE: Final = Path("tests") / ".results" / "goals.tsv"
"""Below the root of the repository; not committed."""
_HEADER: Final = "goal\tpart\ttest\tbroken_by\tpeer\toutcome\n"

NO_GOAL: Final = "-"
"""For a test that must notice a bug, whatever it is good for."""


class Outcome(StrEnum):
    """How the newest run of a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class Claim(NamedTuple):
    """A test's claim to show a row, as its marker states it."""

    goal: str
    part: str
    test: str
    broken_by: str
    peer: bool

    @property
    def file(self) -> str:
        """The file the test is in."""
        return self.test.partition("::")[0]


Results = dict[Claim, Outcome]


def merge(
    known: Mapping[Claim, Outcome],
    collected: Iterable[Claim],
    outcomes: Mapping[str, bool],
    whole_files: Collection[str],
) -> Results:
    """The results after one more run.

    Args:
        known: the results before it.
        collected: claims of all tests that the run saw, also of those it left out.
        outcomes: by test, whether it passed.
        whole_files: files of which the run saw every test: what it did not see there is gone.
    """
    seen = set(collected)
    merged = {
        claim: outcome
        for claim, outcome in known.items()
        if claim in seen or (claim.file not in whole_files and not _replaced(claim, seen))
    }
    for claim in seen:
        if claim.test in outcomes:
            passed = outcomes[claim.test]
            merged[claim] = Outcome.PASSED if passed else Outcome.FAILED
        else:
            merged.setdefault(claim, Outcome.NOT_RUN)
    return dict(sorted(merged.items()))


def _replaced(claim: Claim, seen: set[Claim]) -> bool:
    """Whether the test is still there but its marker says something else now."""
    return any(other.test == claim.test for other in seen)


def load_results(root: Path) -> Results:
    """What runs in this checkout left; tests whose file is gone are left out."""
    path = root / RESULTS_FILE
    results: Results = {}
    if not path.exists():
        return results
    for line in path.read_text().splitlines()[1:]:
        goal, part, test, broken_by, peer, outcome = line.split("\t")
        claim = Claim(goal, part, test, broken_by, peer == "1")
        if (root / claim.file).exists():
            results[claim] = Outcome(outcome)
    return results


def save_results(root: Path, results: Mapping[Claim, Outcome]) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    path = root / RESULTS_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        "\t".join((claim.goal, claim.part, claim.test, claim.broken_by, "01"[claim.peer], outcome))
        for claim, outcome in results.items()
    ]
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(_HEADER + "".join(f"{row}\n" for row in rows))
    new.replace(path)
