"""The goal map: which wanted behaviours are proven, claimed or open.

    python -m anabranch.testing.goals [--group core] [--output json] [--all] [--record]

`tests/goals.tsv` lists every wanted behaviour. A test that shows one carries
`@pytest.mark.goal(id, part=..., broken_by=...)`; each run of the tests leaves its outcomes behind.
A row is *proven* when all its tests passed and each names a planted bug that `make prove` recorded
to make it fail, or is one with a real peer; *claimed* when its tests passed without that; *open*
when wanted now and neither; *later* otherwise. A proof is stale when the code it was made of
changed, and then counts for nothing. A row may list parts that it must have: while a test of one
of them is missing, the row is open, whatever the others show. A test that did not run here counts
neither for nor against its row, and a row with such a test falls back only if another one failed.
A row about speed is *measured* when the committed figures of its benchmarks are good enough; of a
row with a part `speed` that part is judged so, and the others by their tests.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch.errors import InputError
from anabranch.testing.claims import collect_claims
from anabranch.testing.goal_results import Claim, Outcome, load_results
from anabranch.testing.measured import Measured, measured_rows
from anabranch.testing.planted import load_bugs
from anabranch.testing.proofs import ROOT, Key, function_of, load_record, valid_proofs

GOALS = ROOT / "tests" / "goals.tsv"
STATE = ROOT / "tests" / "goals_state.tsv"
SPEED = "speed"
"""The part of a row that figures show."""
_RANK = {"later": 0, "open": 0, "claimed": 1, "measured": 2, "proven": 2}


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


def status_of(goal: Goal, shown: Sequence[Shown], proofs: Collection[Key]) -> str:
    """Where one row stands. A test that was not run counts neither for nor against a claim."""
    outcomes = {outcome for _, outcome in shown}
    if not shown:
        return "later" if goal.when == "later" else "open"
    if Outcome.FAILED in outcomes or Outcome.PASSED not in outcomes or missing_parts(goal, shown):
        return "open"
    if Outcome.NOT_RUN not in outcomes and all(_is_proof(claim, proofs) for claim, _ in shown):
        return "proven"
    return "claimed"


def status_with_figures(
    goal: Goal, shown: Sequence[Shown], proofs: Collection[Key], figures: Measured | None
) -> str:
    """Where one row stands that may be about speed, as a whole or with its part `speed`."""
    if figures is None:
        return status_of(goal, shown, proofs)
    if not figures.met:
        return "open"
    if SPEED not in goal.parts:
        return "measured"
    return status_of(_by_tests(goal), shown, proofs)


def _by_tests(goal: Goal) -> Goal:
    """A row without what figures show of it."""
    return goal._replace(parts=goal.parts - {SPEED})


def missing_parts(goal: Goal, shown: Sequence[Shown]) -> list[str]:
    """Parts that no test shows."""
    return sorted(goal.parts - {claim.part for claim, _ in shown})


def _is_proof(claim: Claim, proofs: Collection[Key]) -> bool:
    return claim.peer or (claim.broken_by, function_of(claim.test)) in proofs


def _is_unknown(shown: Sequence[Shown]) -> bool:
    """Whether a row cannot be judged: a test was not run, and none failed, which would decide."""
    outcomes = {outcome for _, outcome in shown}
    return Outcome.NOT_RUN in outcomes and Outcome.FAILED not in outcomes


def fallen_back(
    committed: Mapping[str, str],
    statuses: Mapping[str, str],
    shown: Mapping[str, Sequence[Shown]],
) -> list[str]:
    """Rows that stand lower than the committed state says.

    A row with tests that were not run here is not judged, unless one failed. Neither is a row that
    only waits for `make prove`: every test of it passes and names a bug, but a proof is stale or
    not made yet.
    """
    fallen = []
    for name, before in committed.items():
        now = statuses.get(name, "gone")
        tests = shown.get(name, ())
        unknown = _is_unknown(tests)
        waits = now == "claimed" and all(claim.peer or claim.broken_by for claim, _ in tests)
        if _RANK.get(now, 0) < _RANK[before] and not unknown and not waits:
            fallen.append(f"{name}: was {before}, is {now}")
    return fallen


def state_to_keep(
    committed: Mapping[str, str],
    statuses: Mapping[str, str],
    shown: Mapping[str, Sequence[Shown]],
) -> dict[str, str]:
    """The state to commit next. Tests that were not run here take nothing away from a row."""
    kept = {}
    for name, now in statuses.items():
        unknown = _is_unknown(shown.get(name, ()))
        before = committed.get(name, "open")
        kept[name] = before if unknown and _RANK[before] > _RANK[now] else now
    return kept


def _parts(goal: Goal, shown: Sequence[Shown]) -> str:
    parts = sorted({claim.part for claim, _ in shown if claim.part})
    missing = missing_parts(goal, shown)
    not_run = sum(outcome is Outcome.NOT_RUN for _, outcome in shown)
    words = f"  [{', '.join(parts)}]" if parts else ""
    words += f"  lacks: {', '.join(missing)}" if missing else ""
    return f"{words}  not run here: {not_run} of {len(shown)}" if not_run else words


def unproven_tests(
    shown: Sequence[Shown], proofs: Collection[Key], stale: Collection[Key]
) -> list[str]:
    """The tests that keep a row from being proven, and what each of them lacks."""
    lines = []
    for claim, outcome in shown:
        key = claim.broken_by, function_of(claim.test)
        if outcome is not Outcome.PASSED:
            lines.append(f"{outcome}: {key[1]}")
        elif not _is_proof(claim, proofs):
            lack = "stale proof" if key in stale else "not proven" if key[0] else "no planted bug"
            lines.append(f"{lack}: {key[1]}" + (f" ({key[0]})" if key[0] else ""))
    return sorted(set(lines))


def _print_map(
    goals: Mapping[str, Goal],
    statuses: Mapping[str, str],
    shown: Mapping[str, Sequence[Shown]],
    why: Mapping[str, Sequence[str]],
    *,
    measured: Mapping[str, Measured],
    everything: bool,
) -> None:
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for name, status in statuses.items():
        groups[name.split(".")[0]][status] += 1
        if everything or shown.get(name) or name in measured:
            goal = _by_tests(goals[name]) if name in measured else goals[name]
            print(f"{name:10} {status:8} {goal.words}{_parts(goal, shown[name])}")
            for line in measured[name].lines if name in measured else ():
                print(f"{'':10} {line}")
            for line in why.get(name, ()):
                print(f"{'':10} {line}")
    for group, counts in groups.items():
        print(f"{group:6}", *(f"{counts[status]} {status}" for status in _RANK), sep="  ")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.goals",
        description="Which wanted behaviours are shown by tests.",
    )
    groups = sorted({name.split(".")[0] for name in load_goals()})
    parser.add_argument("--group", choices=groups, help="only rows of this group")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    parser.add_argument("--all", action="store_true", help="also print rows that no test shows")
    parser.add_argument("--why", action="store_true", help="say what keeps a row from being proven")
    parser.add_argument("--record", action="store_true", help=f"write tests/{STATE.name}")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Print the map; fail on unknown ids and on rows that fell back."""
    options = _parse(arguments)
    goals, record = load_goals(), load_record()
    proofs = valid_proofs(load_bugs(), record.values())
    results = load_results(ROOT)
    shown: dict[str, list[Shown]] = defaultdict(list)
    try:
        for claim in collect_claims(ROOT):
            shown[claim.goal].append((claim, results.get(claim, Outcome.NOT_RUN)))
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    measured = measured_rows()
    statuses = {
        name: status_with_figures(goal, shown[name], proofs, measured.get(name))
        for name, goal in goals.items()
    }
    chosen = {n: s for n, s in statuses.items() if options.group in (None, n.split(".")[0])}
    stale = set(record) - proofs
    why = {n: unproven_tests(shown[n], proofs, stale) for n, s in chosen.items() if s != "proven"}
    if options.output == "json":
        figures = {name: measured[name].lines for name in chosen if name in measured}
        told = {"rows": chosen, "why": {n: w for n, w in why.items() if w}, "measured": figures}
        print(json.dumps(told, indent=1))
    else:
        reasons = why if options.why else {}
        _print_map(goals, chosen, shown, reasons, measured=measured, everything=options.all)
    if not results:
        print("no test has run here, so nothing is shown: `make test` first", file=sys.stderr)
    if stale:
        print(f"{len(stale)} proofs are stale; `make prove` makes them again", file=sys.stderr)
    fallen = fallen_back(load_state(), statuses, shown)
    for line in fallen:
        print(line, file=sys.stderr)
    if options.record:
        save_state(state_to_keep(load_state(), statuses, shown))
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
