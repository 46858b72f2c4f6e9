"""The metadata store is replaced on simulated services, and what the scenario would notice.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.metadata_switched import metadata_switched
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

(PLAYED,) = [played for played in load_scenarios().values() if played.main is metadata_switched]
CLIENT_OPERATIONS_MIN = 2000


@pytest.mark.timeout(600)
@pytest.mark.goal("check.C12", part="simulation", broken_by="copy_is_not_verified")
@pytest.mark.goal("454.A19", part="simulation", broken_by="losers_make_nodes_anew")
@pytest.mark.goal("rel.A24", part="owners", broken_by="losers_make_nodes_anew")
@pytest.mark.goal("rel.A24", part="counters", broken_by="counters_are_not_carried")
@pytest.mark.goal("454.A10", part="simulation", broken_by="conditional_writes_pass_the_gate")
@pytest.mark.goal("trap.U1", part="simulation", broken_by="gate_looks_then_counts")
@pytest.mark.goal("trap.U5", part="simulation", broken_by="failed_attempt_keeps_its_target")
def test_store_is_replaced_without_a_broken_promise(seeds: Seeds) -> None:
    for seed in seeds(1):
        outcome = run_seed(PLAYED, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN


@pytest.mark.timeout(600)
@pytest.mark.goal("trap.U10", part="own documents", broken_by="journal_is_copied")
@pytest.mark.goal("trap.U10", part="own documents", broken_by="pulsars_flag_is_copied")
def test_neither_the_journal_nor_pulsars_flag_goes_with_a_copy(seeds: Seeds) -> None:
    for seed in seeds(1):
        outcome = run_seed(PLAYED, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        # A copy with a journal never becomes the same as the source, in which that goes on.
        assert outcome.reached["two stores compared"], "no copy was looked at"
