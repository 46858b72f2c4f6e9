"""The standalone server under faults finds planted bugs; its set of seeds is played elsewhere."""

import pytest

from anabranch.testing.planted import applied
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

SEEDS_UNTIL_FOUND = 30
CLIENT_OPERATIONS_MIN = 2000


@pytest.mark.timeout(300)
@pytest.mark.goal("check.C1", part="simulation", broken_by="journal_skips_sync")
@pytest.mark.goal("check.C6", part="simulation", broken_by="read_outlives_rewind")
@pytest.mark.goal("core.L2", part="simulation", broken_by="journal_skips_sync")
@pytest.mark.goal("core.B6", part="simulation", broken_by="ack_answered_before_durable")
@pytest.mark.parametrize("seed", [2, 5, 11])
def test_a_seed_is_a_long_story(seed: int) -> None:
    outcome = run_seed(load_scenarios()["standalone"], seed)
    assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
    assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "bug",
    [
        "journal_skips_sync",
        "leaver_takes_its_messages_along",
        "read_outlives_rewind",
        "ack_answered_before_durable",
    ],
)
def test_planted_bugs_are_found(bug: str) -> None:
    played = load_scenarios()["standalone"]
    with applied(bug):
        assert any(run_seed(played, seed).failure for seed in range(SEEDS_UNTIL_FOUND)), bug


@pytest.mark.timeout(300)
def test_the_same_seed_tells_the_same_story_twice() -> None:
    played = load_scenarios()["standalone"]
    assert run_seed(played, 7).digest == run_seed(played, 7).digest
