"""Locks, elections and counters with the clients for ZooKeeper and Oxia on models of their servers.

Their sets of seeds are played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.planted_run import Seeds
from anabranch.testing.scenarios.coordination_oxia import coordination_oxia
from anabranch.testing.scenarios.coordination_zookeeper import coordination_zookeeper
from anabranch.testing.simulation.outcomes import outcome_of
from anabranch.testing.simulation.scenario import Scenario, load_scenarios, run_seed

SCENARIOS = {played.main: played for played in load_scenarios().values()}
ZOOKEEPER, OXIA = SCENARIOS[coordination_zookeeper], SCENARIOS[coordination_oxia]
CLIENT_OPERATIONS_MIN = 2000
SEEDS = 3


def failure_of(played: Scenario, seed: int) -> str:
    """What went wrong with a seed, or how it fell short of a long story."""
    outcome = outcome_of(played, seed)
    if outcome.failure:
        return f"{outcome.replay}\n{outcome.failure}"
    done = outcome.reached["operations"]
    return "" if done >= CLIENT_OPERATIONS_MIN else f"seed {seed} did {done} operations"


@pytest.mark.timeout(400)
@pytest.mark.xdist_group(ZOOKEEPER.name)
@pytest.mark.goal("core.M10", part="zookeeper", broken_by="held_ignores_lease")
@pytest.mark.goal("core.M10", part="zookeeper", broken_by="zk_removals_side_by_side")
@pytest.mark.goal("core.M10", part="zookeeper", broken_by="follower_never_tries_again")
@pytest.mark.goal("core.M10", part="zookeeper", broken_by="resigned_leader_stays")
@pytest.mark.goal("core.M5", part="zookeeper", broken_by="zk_watches_are_not_put_back")
@pytest.mark.goal("core.M2", part="zookeeper", broken_by="zk_lost_writes_are_repeated")
@pytest.mark.goal("core.M2", part="zookeeper", broken_by="zk_answers_go_to_the_newest")
def test_nobody_acts_for_somebody_else_on_zookeeper(seeds: Seeds) -> None:
    for seed in seeds(SEEDS):
        assert failure_of(ZOOKEEPER, seed) == ""


@pytest.mark.timeout(400)
@pytest.mark.xdist_group(OXIA.name)
@pytest.mark.goal("core.M10", part="oxia", broken_by="held_ignores_lease")
@pytest.mark.goal("core.M10", part="oxia", broken_by="oxia_creates_over_others")
@pytest.mark.goal("core.M10", part="oxia", broken_by="oxia_next_session_vouches")
@pytest.mark.goal("core.M10", part="oxia", broken_by="follower_never_tries_again")
@pytest.mark.goal("core.M10", part="oxia", broken_by="resigned_leader_stays")
@pytest.mark.goal("core.M2", part="oxia", broken_by="oxia_lost_writes_are_repeated")
def test_nobody_acts_for_somebody_else_on_oxia(seeds: Seeds) -> None:
    for seed in seeds(SEEDS):
        assert failure_of(OXIA, seed) == ""


@pytest.mark.parametrize(
    "played",
    [
        pytest.param(each, id=name, marks=pytest.mark.xdist_group(each.name))
        for name, each in (("zookeeper", ZOOKEEPER), ("oxia", OXIA))
    ],
)
def test_the_same_seed_tells_the_same_story_twice(played: Scenario) -> None:
    assert run_seed(played, 3).digest == outcome_of(played, 3).digest
