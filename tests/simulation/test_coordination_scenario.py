"""Locks, elections, caches and counters under faults, and what the scenario would notice.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.scenario import Outcome, load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 2000
FAULTS_MIN = 5


def play(name: str, seed: int) -> Outcome:
    return run_seed(load_scenarios()[name], seed)


def problem(outcome: Outcome) -> str:
    """What is wrong with it; empty if nobody acted for somebody else, and much happened."""
    if outcome.failure:
        return f"{outcome.replay}\n{outcome.failure}"
    if (operations := outcome.reached["operations"]) < CLIENT_OPERATIONS_MIN:
        return f"{outcome.replay}: only {operations} operations"
    faults = sum(times for mark, times in outcome.reached.items() if mark.startswith("fault "))
    return "" if faults >= FAULTS_MIN else f"{outcome.replay}: only {faults} faults"


@pytest.mark.timeout(300)
@pytest.mark.goal("core.M10", part="simulation", broken_by="held_ignores_lease")
@pytest.mark.goal("core.M10", part="simulation", broken_by="release_without_version")
@pytest.mark.goal("core.M10", part="simulation", broken_by="token_reused")
@pytest.mark.goal("core.M10", part="simulation", broken_by="guard_skipped")
@pytest.mark.goal("core.M10", part="simulation", broken_by="trusts_value_of_other_session")
@pytest.mark.goal("core.M10", part="simulation", broken_by="own_write_not_seen")
@pytest.mark.goal("core.M10", part="simulation", broken_by="follower_never_tries_again")
@pytest.mark.goal("core.M10", part="simulation", broken_by="resigned_leader_stays")
@pytest.mark.goal("core.M4", part="simulation", broken_by="unknown_block_is_used")
def test_nobody_acts_for_somebody_else() -> None:
    for seed in range(12):
        assert not problem(play("coordination", seed))


@pytest.mark.timeout(300)
@pytest.mark.goal("core.M10", part="served", broken_by="held_ignores_lease")
def test_nobody_acts_for_somebody_else_on_a_served_store() -> None:
    for seed in range(3):
        assert not problem(play("coordination_served", seed))


def test_the_same_seed_tells_the_same_story_twice() -> None:
    first, second = play("coordination", 3), play("coordination", 3)
    assert first.digest == second.digest
    assert first.reached == second.reached


@pytest.mark.parametrize("bug", ["block_is_not_reserved", "busy_lock_is_taken_over"])
def test_other_planted_bugs_are_found(bug: str) -> None:
    with applied(bug):
        assert any(play("coordination", seed).failure for seed in range(3)), bug
