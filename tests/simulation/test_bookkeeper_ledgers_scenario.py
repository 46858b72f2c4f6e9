"""Ledgers on model bookies under faults, and the mistakes that the scenario would notice.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`. Both defects of the
protocol that model checking found in BookKeeper are among the mistakes, and the loss by an ensemble
that changes beside adds. Reads of a recovery that do not fence show only when three bookies are
late, each in its own way, while the writer has entries under way: that is also told step by step in
`test_recovery_beside_a_live_writer.py`. What needs messages of one connection to overtake each
other is found by walks in `test_bookkeeper_protocol_walks.py`.
"""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SCENARIO = load_scenarios()["bookkeeper_ledgers"]
pytestmark = pytest.mark.xdist_group(SCENARIO.name)
CLIENT_OPERATIONS_MIN = 2000
FAULTS_MIN = 5
PROVING_SEEDS = (7, 10, 46)
"""Each of the mistakes shows in one of these."""


@pytest.mark.timeout(300)
@pytest.mark.goal("core.L3", part="simulation", broken_by="confirms_while_the_ensemble_changes")
@pytest.mark.goal("core.L3", part="simulation", broken_by="new_bookie_misses_entries")
@pytest.mark.goal("core.L3", part="simulation", broken_by="ensemble_changes_unconditionally")
@pytest.mark.goal("core.L4", part="simulation", broken_by="recovery_reads_do_not_fence")
@pytest.mark.goal("core.L4", part="simulation", broken_by="recovery_begins_before_the_segment")
@pytest.mark.goal("core.L4", part="simulation", broken_by="one_absent_is_the_end")
def test_acknowledged_entries_outlive_faults_and_recoveries() -> None:
    for seed in PROVING_SEEDS:
        outcome = outcome_of(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        faults = sum(times for mark, times in outcome.reached.items() if mark.startswith("fault "))
        assert faults >= FAULTS_MIN
        assert outcome.reached["recovered"] > 0
        assert outcome.reached["segments"] > 0


@pytest.mark.timeout(600)
def test_a_damaged_packet_is_found() -> None:
    with applied("damaged_packet_is_served"):
        assert any(run_seed(SCENARIO, seed).failure for seed in PROVING_SEEDS)


def test_the_same_seed_tells_the_same_story_of_bookies_twice() -> None:
    first, second = outcome_of(SCENARIO, 3), run_seed(SCENARIO, 3)
    assert first.digest == second.digest
    assert first.reached == second.reached
