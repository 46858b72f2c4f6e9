"""Three brokers whose topics change hands while they are hurt.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.three_brokers import three_brokers
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 1000
SCENARIO = next(played for played in load_scenarios().values() if played.main is three_brokers)


@pytest.mark.timeout(400)
@pytest.mark.goal("core.B14", part="simulation", broken_by="lookup_believes_an_old_answer")
@pytest.mark.goal("core.B14", part="simulation", broken_by="lookup_sends_nobody_on")
@pytest.mark.goal("core.B14", part="simulation", broken_by="stale_owner_answers_lookups")
@pytest.mark.goal("core.B14", part="simulation", broken_by="topics_open_without_asking")
@pytest.mark.goal("core.B14", part="simulation", broken_by="clients_leave_before_the_lock")
@pytest.mark.goal("core.B14", part="simulation", broken_by="lost_bundle_is_kept")
@pytest.mark.goal("core.B14", part="simulation", broken_by="unload_answers_before_it_is_done")
@pytest.mark.goal("core.B14", part="simulation", broken_by="topic_epoch_is_kept_in_memory")
@pytest.mark.goal("check.C4", part="simulation", broken_by="sequence_ids_are_not_replayed")
@pytest.mark.goal("check.C5", part="take-over", broken_by="gaps_are_forgotten_at_take_over")
def test_topics_change_brokers_without_a_broken_promise(seeds: Seeds) -> None:
    for seed in seeds(1):
        outcome = run_seed(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        assert outcome.reached["taken over"] > 2
