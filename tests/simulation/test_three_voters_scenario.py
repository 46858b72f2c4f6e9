"""Three voters under faults: long stories in which every promise holds, unless a bug is planted."""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.three_voters import three_voters
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 2000
SCENARIO = next(played for played in load_scenarios().values() if played.main is three_voters)
pytestmark = pytest.mark.xdist_group(SCENARIO.name)


@pytest.mark.timeout(300)
def test_a_seed_is_a_long_story_and_the_same_twice() -> None:
    outcome = outcome_of(SCENARIO, 2)
    assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
    assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
    assert sum(times for mark, times in outcome.reached.items() if mark.startswith("fault")) >= 5
    assert run_seed(SCENARIO, 2).digest == outcome.digest


@pytest.mark.timeout(400)
@pytest.mark.broken_by("vote_told_before_durable")
@pytest.mark.broken_by("older_terms_are_counted")
@pytest.mark.broken_by("conflicting_tail_is_kept")
@pytest.mark.broken_by("cut_is_not_written")
@pytest.mark.broken_by("two_votes_in_a_term")
def test_promises_hold(seeds: Seeds) -> None:
    for seed in seeds(5):
        outcome = outcome_of(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
