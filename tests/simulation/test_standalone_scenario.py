"""The standalone server under faults: fifty seeds, and planted bugs that those seeds find."""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SEEDS = 50
SEEDS_PER_TEST = 5
SEEDS_UNTIL_FOUND = 30


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
@pytest.mark.goal("check.C1", part="simulation", broken_by="journal_skips_sync")
@pytest.mark.goal("check.C6", part="simulation", broken_by="read_outlives_rewind")
@pytest.mark.goal("core.L2", part="simulation", broken_by="journal_skips_sync")
def test_nothing_acknowledged_is_lost(first: int) -> None:
    played = load_scenarios()["standalone"]
    for seed in range(first, first + SEEDS_PER_TEST):
        outcome = run_seed(played, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= 2000


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug",
    [
        "journal_skips_sync",
        "leaver_takes_its_messages_along",
        "read_outlives_rewind",
        "ack_answered_before_durable",
    ],
)
def test_planted_bugs_are_found(bug: str) -> None:
    played = load_scenarios()["standalone"]
    with applied(bug):
        assert any(run_seed(played, seed).failure for seed in range(SEEDS_UNTIL_FOUND)), bug


def test_the_same_seed_tells_the_same_story_twice() -> None:
    played = load_scenarios()["standalone"]
    assert run_seed(played, 7).digest == run_seed(played, 7).digest
