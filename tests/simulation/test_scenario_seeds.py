"""Every scenario with its set of seeds, and every seed that once failed."""

from collections import Counter
from pathlib import Path

import pytest

from anabranch.testing.simulation.scenario import (
    Outcome,
    load_scenarios,
    missing_marks,
    run_seed,
)

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


def check(outcome: Outcome) -> None:
    if outcome.failure:
        tail = "".join(outcome.tail)
        pytest.fail(f"{tail}\n{outcome.failure}\nreplay with: {outcome.replay}", pytrace=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_set_of_seeds(name: str) -> None:
    reached: Counter[str] = Counter()
    for seed in range(SCENARIOS[name].set_seeds):
        outcome = run_seed(SCENARIOS[name], seed)
        check(outcome)
        reached += outcome.reached
    assert missing_marks(SCENARIOS[name], reached) == []


@pytest.mark.parametrize(("name", "seed"), kept_seeds())
def test_seed_that_once_failed(name: str, seed: int) -> None:
    check(run_seed(SCENARIOS[name], seed))
