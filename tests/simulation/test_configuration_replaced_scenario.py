"""Two stores that are one tree are replaced on simulated services, and what would be noticed.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.configuration_replaced import configuration_replaced
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

(PLAYED,) = [each for each in load_scenarios().values() if each.main is configuration_replaced]


@pytest.mark.timeout(600)
@pytest.mark.goal("454.A37", part="separately", broken_by="conditional_writes_pass_the_gate")
@pytest.mark.goal("454.A37", part="separately", broken_by="everything_is_local")
def test_either_store_is_replaced_without_a_broken_promise(seeds: Seeds) -> None:
    for seed in seeds(1):
        outcome = run_seed(PLAYED, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["both at once"], "one waited for the other"
