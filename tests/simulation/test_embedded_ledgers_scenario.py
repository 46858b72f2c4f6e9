"""Ledgers written by three processes through a store under faults; planted bugs are found."""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SCENARIO = load_scenarios()["embedded_ledgers"]
pytestmark = pytest.mark.xdist_group(SCENARIO.name)
SEEDS_UNTIL_FOUND = 20
PROVING_SEEDS = (0, 8)
"""Damage falls where it would be taken for a torn tail in few of them; in the last one it does."""
CLIENT_OPERATIONS_MIN = 2000


@pytest.mark.timeout(300)
@pytest.mark.goal("core.L2", part="simulation", broken_by="failed_write_counts_as_done")
@pytest.mark.goal("core.L2", part="simulation", broken_by="damaged_record_is_served")
@pytest.mark.goal("core.L2", part="simulation", broken_by="damage_is_cut_as_a_tail")
@pytest.mark.goal("core.L2", part="simulation", broken_by="unproven_tail_is_cut")
@pytest.mark.goal("core.L2", part="simulation", broken_by="compaction_loses_facts")
@pytest.mark.goal("core.L1", part="embedded", broken_by="open_does_not_fence")
def test_promises_hold_and_rot_is_named() -> None:
    for seed in PROVING_SEEDS:
        outcome = outcome_of(SCENARIO, seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        assert outcome.reached["compacted"] > 0
        assert outcome.reached["deleted"] > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", ["journal_skips_sync", "acknowledged_before_written"])
def test_other_planted_bugs_are_found_in_ledgers(bug: str) -> None:
    with applied(bug):
        assert any(run_seed(SCENARIO, seed).failure for seed in range(SEEDS_UNTIL_FOUND)), bug


def test_the_same_seed_writes_the_same_ledgers_twice() -> None:
    assert run_seed(SCENARIO, 7).digest == outcome_of(SCENARIO, 7).digest
