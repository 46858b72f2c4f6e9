"""Every scenario with its set of seeds, and every seed that once failed."""

from collections import Counter
from pathlib import Path

import pytest

from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import Outcome, load_scenarios, missing_marks

SCENARIOS = {
    name: played
    for name, played in load_scenarios().items()
    if played.main.__module__.startswith("anabranch.")
}
REGRESSIONS = Path(__file__).with_name("regressions.tsv")


def kept_seeds() -> list[tuple[str, int]]:
    lines = [line for line in REGRESSIONS.read_text().splitlines() if not line.startswith("#")]
    assert lines[0].split("\t") == ["scenario", "seed", "reason"]
    rows = [line.split("\t") for line in lines[1:]]
    assert all(len(row) == 3 and row[2] for row in rows), "each seed has a sentence"
    return [(name, int(seed)) for name, seed, _ in rows]


def told(outcome: Outcome) -> str:
    return f"{''.join(outcome.tail)}\n{outcome.failure}\nreplay with: {outcome.replay}"


def in_one_process(name: str, *values: int) -> object:
    """What is asked of the seeds of one scenario is asked where they were played."""
    return pytest.param(name, *values, marks=pytest.mark.xdist_group(name))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [in_one_process(name) for name, played in SCENARIOS.items() if played.set_seeds]
)
def test_set_of_seeds(name: str) -> None:
    reached: Counter[str] = Counter()
    for seed in range(SCENARIOS[name].set_seeds):
        outcome = outcome_of(SCENARIOS[name], seed)
        assert not outcome.failure, told(outcome)
        reached += outcome.reached
    assert missing_marks(SCENARIOS[name], reached) == []


@pytest.mark.parametrize(("name", "seed"), [in_one_process(*kept) for kept in kept_seeds()])
def test_seed_that_once_failed(name: str, seed: int) -> None:
    outcome = outcome_of(SCENARIOS[name], seed)
    assert not outcome.failure, told(outcome)
