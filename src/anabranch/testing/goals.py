"""The goal map: which wanted behaviours are proven, claimed or open.

    python -m anabranch.testing.goals [--group core] [--output json] [--all] [--record]

`tests/goals.tsv` lists every wanted behaviour. A test that shows one carries
`@pytest.mark.goal(id, part=..., broken_by=...)`; each run of the tests leaves its outcomes behind.
A row is *proven* when all its tests passed and each names a planted bug that is recorded to make
it fail in the present code, or is one with a real peer; *claimed* when its tests passed without
that; *open* when wanted now and neither; *later* otherwise. A row may list parts that it must
have: while a test of one of them is missing, the row is open, whatever the others show.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from anabranch.testing.goal_results import Claim, Outcome, load_results

ROOT = Path(__file__).parents[3]
GOALS = ROOT / "tests" / "goals.tsv"
PLANTED_RECORD = ROOT / "tests" / "planted_record.tsv"
STATE = ROOT / "tests" / "goals_state.tsv"
_RANK = {"later": 0, "open": 0, "claimed": 1, "proven": 2}


class Goal(NamedTuple):
    """One row of the map."""

    when: str
    words: str
    parts: frozenset[str] = frozenset()
    """Parts without which the row is not complete; tests may show more."""


Shown = tuple[Claim, Outcome]
"""A test that shows a row, and how its newest run ended."""


def load_goals() -> dict[str, Goal]:
    """Every wanted behaviour by its id."""
    rows = [line.split("\t") for line in GOALS.read_text().splitlines()[1:]]
    return {
        name: Goal(when, words, frozenset(filter(None, parts.split(", "))))
        for name, when, words, parts in rows
    }


def load_state() -> dict[str, str]:
    """Where rows stood when that was last committed; rows that were open are left out."""
    if not STATE.exists():
        return {}
    rows = [line.split("\t") for line in STATE.read_text().splitlines()[1:]]
    return {row[0]: row[1] for row in rows}


def save_state(statuses: Mapping[str, str]) -> None:
    """Note where rows stand, to be committed."""
    rows = [f"{name}\t{status}\n" for name, status in statuses.items() if _RANK[status]]
    STATE.write_text("id\tstatus\n" + "".join(rows))


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


def status_of(goal: Goal, shown: Sequence[Shown], bugs: Collection[str]) -> str:
    """Where one row stands. A test that was not run counts neither for nor against a claim."""
    outcomes = {outcome for _, outcome in shown}
    if not shown:
        return "later" if goal.when == "later" else "open"
    if Outcome.FAILED in outcomes or Outcome.PASSED not in outcomes or missing_parts(goal, shown):
        return "open"
    if Outcome.NOT_RUN not in outcomes and all(_is_proof(claim, bugs) for claim, _ in shown):
        return "proven"
    return "claimed"


def missing_parts(goal: Goal, shown: Sequence[Shown]) -> list[str]:
    """Parts that no test shows."""
    return sorted(goal.parts - {claim.part for claim, _ in shown})


def _is_proof(claim: Claim, bugs: Collection[str]) -> bool:
    return claim.peer or claim.broken_by in bugs


def fallen_back(
    committed: Mapping[str, str],
    statuses: Mapping[str, str],
    shown: Mapping[str, Sequence[Shown]],
) -> list[str]:
    """Rows that stand lower than the committed state says.

    A row with tests that were not run here is not judged. Neither is a proof whose tests still
    pass: it is bound to the code it was made on, and waits to be made again.
    """
    fallen = []
    for name, before in committed.items():
        now = statuses.get(name, "gone")
        unknown = any(outcome is Outcome.NOT_RUN for _, outcome in shown.get(name, ()))
        if _RANK.get(now, 0) == 0 < _RANK[before] and not unknown:
            fallen.append(f"{name}: was {before}, is {now}")
    return fallen


def _parts(goal: Goal, shown: Sequence[Shown]) -> str:
    parts = sorted({claim.part for claim, _ in shown if claim.part})
    missing = missing_parts(goal, shown)
    shows = f"  [{', '.join(parts)}]" if parts else ""
    return f"{shows}  lacks: {', '.join(missing)}" if missing else shows


def _print_map(
    goals: Mapping[str, Goal],
    statuses: Mapping[str, str],
    shown: Mapping[str, Sequence[Shown]],
    *,
    everything: bool,
) -> None:
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for name, status in statuses.items():
        groups[name.split(".")[0]][status] += 1
        if everything or shown.get(name):
            print(f"{name:10} {status:8} {goals[name].words}{_parts(goals[name], shown[name])}")
    for group, counts in groups.items():
        print(f"{group:6}", *(f"{counts[status]} {status}" for status in _RANK), sep="  ")


def main() -> int:
    """Print the map; fail on unknown ids and on rows that fell back."""
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.goals",
        description="Which wanted behaviours are shown by tests.",
    )
    parser.add_argument("--group", help="only rows of this group, such as core")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--all", action="store_true", help="also print rows that no test shows")
    parser.add_argument("--record", action="store_true", help=f"write tests/{STATE.name}")
    options = parser.parse_args()
    goals, bugs = load_goals(), recorded_bugs()
    shown: dict[str, list[Shown]] = defaultdict(list)
    for claim, outcome in load_results(ROOT).items():
        shown[claim.goal].append((claim, outcome))
    unknown = sorted(set(shown) - set(goals))
    statuses = {name: status_of(goal, shown[name], bugs) for name, goal in goals.items()}
    chosen = {n: s for n, s in statuses.items() if options.group in (None, n.split(".")[0])}
    if not chosen:
        parser.error(f"no group {options.group!r}")
    if options.output == "json":
        print(json.dumps({"rows": chosen, "unknown": unknown}, indent=1))
    else:
        _print_map(goals, chosen, shown, everything=options.all)
    if not any(shown.values()):
        print("no test has run here, so nothing is shown: `make test` first", file=sys.stderr)
    fallen = fallen_back(load_state(), statuses, shown) if any(shown.values()) else []
    for line in [*(f"unknown goal id: {name}" for name in unknown), *fallen]:
        print(line, file=sys.stderr)
    if options.record and not unknown:
        save_state(statuses)
    return 1 if unknown or fallen else 0


if __name__ == "__main__":
    sys.exit(main())
