"""Writers are stopped between the look at the gate and the end of a write.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.writers_at_the_gate import writers_at_the_gate
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

(PLAYED,) = [p for p in load_scenarios().values() if p.main is writers_at_the_gate]


@pytest.mark.timeout(600)
@pytest.mark.goal("rel.A11", part="ten thousand seeds", broken_by="gate_looks_then_counts")
def test_no_write_is_lost_whoever_is_stopped(seeds: Seeds) -> None:
    for seed in seeds(5):
        outcome = run_seed(PLAYED, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["write answered"] > 0
