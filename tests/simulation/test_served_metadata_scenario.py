"""A served metadata store under faults, long enough to notice bugs; its set is played elsewhere."""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.served_metadata import OPERATIONS_MIN, served_metadata
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SCENARIO = next(played for played in load_scenarios().values() if played.main is served_metadata)
pytestmark = pytest.mark.xdist_group(SCENARIO.name)


@pytest.mark.timeout(400)
@pytest.mark.goal("core.M2", part="served", broken_by="write_sent_again_is_done_again")
@pytest.mark.goal("core.M3", part="served", broken_by="ephemeral_outlives_its_session")
@pytest.mark.goal("core.M4", part="served", broken_by="sequences_count_down")
@pytest.mark.goal("core.M5", part="served", broken_by="watch_resumes_one_early")
@pytest.mark.goal("core.M9", part="simulation", broken_by="journal_skips_sync")
def test_a_seed_is_a_long_story_without_a_broken_promise(seeds: Seeds) -> None:
    for seed in seeds(2):
        outcome = outcome_of(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= OPERATIONS_MIN


@pytest.mark.timeout(300)
def test_the_same_seed_tells_the_same_story_twice() -> None:
    assert run_seed(SCENARIO, 5).digest == outcome_of(SCENARIO, 5).digest
