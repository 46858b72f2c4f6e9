"""Ledgers on model bookies under faults, and the mistakes that the scenario would notice.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`. Reads of a recovery
that do not fence show only when three bookies are late each in its own way while the writer has
entries under way: that is told step by step in `test_recovery_beside_a_live_writer.py`, and found
by walks in `test_bookkeeper_protocol_walks.py`, as is what needs messages of one connection to
overtake each other.
"""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.scenario import Outcome, load_scenarios, run_seed

SEEDS_UNTIL_FOUND = 50
CLIENT_OPERATIONS_MIN = 2000
FAULTS_MIN = 5
PROVING_SEEDS = (0, 7, 10, 11)
"""Each of the bugs that are named with them shows in one of these."""


def play(seed: int) -> Outcome:
    return run_seed(load_scenarios()["bookkeeper_ledgers"], seed)


@pytest.mark.timeout(300)
@pytest.mark.goal("core.L3", part="simulation", broken_by="confirms_while_the_ensemble_changes")
@pytest.mark.goal("core.L3", part="simulation", broken_by="new_bookie_misses_entries")
@pytest.mark.goal("core.L3", part="simulation", broken_by="ensemble_changes_unconditionally")
@pytest.mark.goal("core.L4", part="simulation", broken_by="recovery_begins_before_the_segment")
@pytest.mark.goal("core.L4", part="simulation", broken_by="one_absent_is_the_end")
def test_acknowledged_entries_outlive_faults_and_recoveries() -> None:
    for seed in PROVING_SEEDS:
        outcome = play(seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        faults = sum(times for mark, times in outcome.reached.items() if mark.startswith("fault "))
        assert faults >= FAULTS_MIN
        assert outcome.reached["recovered"] > 0
        assert outcome.reached["segments"] > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug",
    [
        "recovery_begins_before_the_segment",
        "confirms_while_the_ensemble_changes",
        "new_bookie_misses_entries",
        "one_absent_is_the_end",
        "ensemble_changes_unconditionally",
        "damaged_packet_is_served",
    ],
)
def test_mistakes_in_the_protocol_are_found(bug: str) -> None:
    with applied(bug):
        assert any(play(seed).failure for seed in range(SEEDS_UNTIL_FOUND)), bug


def test_the_same_seed_tells_the_same_story_of_bookies_twice() -> None:
    first, second = play(3), play(3)
    assert first.digest == second.digest
    assert first.reached == second.reached
