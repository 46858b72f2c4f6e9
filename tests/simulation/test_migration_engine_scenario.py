"""The migration engine under faults, and what its scenario would notice.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.simulation.scenario import Outcome, load_scenarios, run_seed

SEEDS = 8
FAULTS_MIN = 5


def play(seed: int) -> Outcome:
    return run_seed(load_scenarios()["migration_engine"], seed)


@pytest.mark.timeout(300)
@pytest.mark.goal("trap.U2", part="engine", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("trap.U3", part="engine", broken_by="phase_written_without_epoch")
@pytest.mark.goal("trap.U7", part="engine", broken_by="failed_check_goes_on")
@pytest.mark.goal("trap.U10", part="engine", broken_by="operations_are_copied")
@pytest.mark.goal("454.A26", part="engine", broken_by="crashed_driver_is_not_replaced")
@pytest.mark.goal("454.A30", part="engine", broken_by="aborted_participant_stays_frozen")
def test_brokers_replace_their_store_through_faults() -> None:
    for seed in range(SEEDS):
        outcome = play(seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        faults = sum(times for mark, times in outcome.reached.items() if mark.startswith("fault "))
        assert faults >= FAULTS_MIN


def test_the_same_seed_tells_the_same_story_twice() -> None:
    first, second = play(3), play(3)
    assert first.digest == second.digest
    assert first.reached == second.reached
