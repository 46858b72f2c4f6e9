"""The goal map: which wanted behaviours are proven, claimed or open.

    python -m anabranch.testing.goals [--group core] [--output json]

`tests/goals.tsv` lists every wanted behaviour. A test that shows one carries
`@pytest.mark.goal(id, part=..., broken_by=...)`; each run of the tests leaves its outcomes in
`tests/.results/`. A row is *proven* when all its tests passed and each names a planted bug that
is recorded to make it fail in the present code, or is one with a real peer; *claimed* when its
tests passed without that; *open* when wanted now and neither; *later* otherwise.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
GOALS = ROOT / "tests" / "goals.tsv"
RESULTS = ROOT / "tests" / ".results"
PLANTED_RECORD = ROOT / "tests" / "planted_record.tsv"
STATE = ROOT / "tests" / "goals_state.tsv"
_RANK = {"later": 0, "open": 0, "claimed": 1, "proven": 2}


class Goal(NamedTuple):
    """One row of the map."""

    when: str
    words: str


class Shown(NamedTuple):
    """The outcome of one test that shows a row."""

    goal: str
    part: str
    test: str
    broken_by: str
    peer: bool
    passed: bool


def load_goals() -> dict[str, Goal]:
    """Every wanted behaviour by its id."""
    rows = [line.split("\t") for line in GOALS.read_text().splitlines()[1:]]
    return {row[0]: Goal(row[1], row[2]) for row in rows}


def load_results() -> dict[str, list[Shown]]:
    """The newest outcome of each test, by row."""
    newest: dict[tuple[str, str], Shown] = {}
    for path in sorted(RESULTS.glob("goals-*.tsv"), key=lambda file: file.stat().st_mtime):
        for line in path.read_text().splitlines():
            goal, part, test, broken_by, peer, passed = line.split("\t")
            shown = Shown(goal, part, test, broken_by, peer == "1", passed == "1")
            newest[goal, test] = shown
    by_goal: dict[str, list[Shown]] = defaultdict(list)
    for shown in newest.values():
        by_goal[shown.goal].append(shown)
    return by_goal


def code_digest() -> str:
    """A fingerprint of the product's sources, so that a proof is bound to what it was made on."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def recorded_bugs() -> set[str]:
    """Planted bugs that were found in the present code."""
    if not PLANTED_RECORD.exists():
        return set()
    present = code_digest()
    rows = [line.split("\t") for line in PLANTED_RECORD.read_text().splitlines()[1:]]
    return {row[0] for row in rows if row[1] == present}


def status_of(goal: Goal, shown: list[Shown], bugs: set[str]) -> str:
    """Where one row stands."""
    if not shown or not all(each.passed for each in shown):
        return "later" if goal.when == "later" and not shown else "open"
    if all(each.peer or (each.broken_by and each.broken_by in bugs) for each in shown):
        return "proven"
    return "claimed"


def fallen_back(statuses: dict[str, str]) -> list[str]:
    """Rows that stand lower than the committed state says."""
    if not STATE.exists():
        return []
    rows = [line.split("\t") for line in STATE.read_text().splitlines()[1:]]
    return [f"{row[0]}: {row[1]} -> {statuses.get(row[0], 'gone')}" for row in rows
            if _RANK[statuses.get(row[0], "open")] < _RANK[row[1]]]  # fmt: skip


def main() -> int:
    """Print the map; fail on unknown ids and on rows that fell back."""
    parser = argparse.ArgumentParser(description="Which wanted behaviours are shown by tests.")
    parser.add_argument("--group", help="only rows of this group, such as core")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--all", action="store_true", help="also print rows that are open or later")
    options = parser.parse_args()
    goals, results, bugs = load_goals(), load_results(), recorded_bugs()
    unknown = sorted(set(results) - set(goals))
    statuses = {name: status_of(goal, results.get(name, []), bugs) for name, goal in goals.items()}
    chosen = {n: s for n, s in statuses.items() if options.group in (None, n.split(".")[0])}
    if options.output == "json":
        print(json.dumps({"rows": chosen, "unknown": unknown}, indent=1))
    else:
        for name, status in chosen.items():
            if options.all or status in ("proven", "claimed"):
                parts = sorted({each.part for each in results.get(name, []) if each.part})
                suffix = f"  [{', '.join(parts)}]" if parts else ""
                print(f"{name:10} {status:8} {goals[name].words}{suffix}")
        groups: dict[str, Counter[str]] = defaultdict(Counter)
        for name, status in chosen.items():
            groups[name.split(".")[0]][status] += 1
        for group, counts in groups.items():
            print(f"{group:6}", *(f"{counts[status]} {status}" for status in _RANK), sep="  ")
    fallen = fallen_back(statuses) if results else []
    for line in [*(f"unknown goal id: {name}" for name in unknown), *fallen]:
        print(line, file=sys.stderr)
    return 1 if unknown or fallen else 0


if __name__ == "__main__":
    sys.exit(main())
