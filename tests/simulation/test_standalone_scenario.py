"""The standalone server under faults, long enough to notice bugs; its set is played elsewhere."""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.standalone import standalone
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 2000
SCENARIO = next(played for played in load_scenarios().values() if played.main is standalone)
pytestmark = pytest.mark.xdist_group(SCENARIO.name)


@pytest.mark.timeout(400)
@pytest.mark.goal("check.C1", part="simulation", broken_by="journal_skips_sync")
@pytest.mark.goal("check.C5", part="simulation", broken_by="ack_answered_before_durable")
@pytest.mark.goal("check.C6", part="simulation", broken_by="read_outlives_rewind")
@pytest.mark.goal("check.C11", part="simulation", broken_by="redelivery_moves_the_cursor_back")
@pytest.mark.goal("core.L2", part="simulation", broken_by="journal_skips_sync")
@pytest.mark.goal("core.B4", part="shared", broken_by="leaver_takes_its_messages_along")
@pytest.mark.goal("core.B5", part="start positions", broken_by="start_is_skipped")
@pytest.mark.goal("core.B5", part="seek by id", broken_by="seek_goes_too_far")
@pytest.mark.goal("core.B6", part="simulation", broken_by="ack_answered_before_durable")
def test_a_seed_is_a_long_story_without_a_broken_promise(seeds: Seeds) -> None:
    for seed in seeds(3):
        outcome = outcome_of(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN


@pytest.mark.timeout(300)
def test_the_same_seed_tells_the_same_story_twice() -> None:
    assert run_seed(SCENARIO, 7).digest == outcome_of(SCENARIO, 7).digest
