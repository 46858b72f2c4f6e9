"""Three voters under faults: long stories, and planted bugs that are found in few seeds."""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SEEDS_UNTIL_FOUND = 100
CLIENT_OPERATIONS_MIN = 2000


@pytest.mark.timeout(300)
def test_a_seed_is_a_long_story_and_the_same_twice() -> None:
    played = load_scenarios()["three_voters"]
    outcome = run_seed(played, 2)
    assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
    assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
    assert sum(times for mark, times in outcome.reached.items() if mark.startswith("fault")) >= 5
    assert run_seed(played, 2).digest == outcome.digest


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "bug",
    [
        "vote_told_before_durable",
        "older_terms_are_counted",
        "conflicting_tail_is_kept",
        "cut_is_not_written",
        "two_votes_in_a_term",
    ],
)
def test_planted_bugs_are_found(bug: str) -> None:
    played = load_scenarios()["three_voters"]
    with applied(bug):
        assert any(run_seed(played, seed).failure for seed in range(SEEDS_UNTIL_FOUND)), bug
