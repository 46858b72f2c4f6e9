"""Topics on model bookies whose owners take each other's over.

Its set of seeds is played with all the others, in `test_scenario_seeds.py`.
"""

import pytest

from anabranch.testing.simulation.scenario import Outcome, load_scenarios, run_seed

CLIENT_OPERATIONS_MIN = 2000
PROVING_SEEDS = (0, 1)
"""Each of the mistakes shows in one of these."""


def play(seed: int) -> Outcome:
    return run_seed(load_scenarios()["bookkeeper_topics"], seed)


@pytest.mark.timeout(300)
@pytest.mark.goal("check.C11", part="bookkeeper", broken_by="ack_answered_before_durable")
@pytest.mark.goal("check.C8", part="simulation", broken_by="cached_entries_of_another_ledger")
@pytest.mark.goal(
    "core.L7", part="batch acks survive crashes", broken_by="batch_acks_are_not_stored"
)
@pytest.mark.goal(
    "core.L7", part="batch acks survive crashes", broken_by="cursor_ledger_is_not_read"
)
@pytest.mark.goal(
    "core.L3", part="taken by a repair", broken_by="what_was_under_way_counts_as_stored"
)
@pytest.mark.goal(
    "core.L3", part="taken by a repair", broken_by="what_a_taken_ledger_has_is_written_again"
)
def test_every_owner_finds_what_was_promised() -> None:
    for seed in PROVING_SEEDS:
        outcome = play(seed)
        assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
        assert outcome.reached["operations"] >= CLIENT_OPERATIONS_MIN
        assert outcome.reached["taken over"] > 1
        assert outcome.reached["flushed"] > 0
        assert outcome.reached["part of a batch taken over"] > 0
        assert outcome.reached["went on behind a repair"] > 0
