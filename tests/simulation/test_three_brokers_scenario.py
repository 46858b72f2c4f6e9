"""Three brokers whose topics change hands while they are hurt.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.simulation.scenario import Outcome, load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 2000
PROVING_SEEDS = (0,)


def play(seed: int) -> Outcome:
    return run_seed(load_scenarios()["three_brokers"], seed)


@pytest.mark.timeout(300)
def test_others_take_over_and_nothing_is_lost() -> None:
    for seed in PROVING_SEEDS:
        outcome = play(seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        assert outcome.reached["taken over"] > 2
