"""The metadata store is replaced under locks, elections, counters and caches, through faults.

A seed takes long, so its set of them is small; those that once failed are played with all others.
"""

import pytest

from anabranch.testing.scenarios.metadata_replaced import metadata_replaced
from anabranch.testing.simulation.scenario import load_scenarios, run_seed

(PLAYED,) = [played for played in load_scenarios().values() if played.main is metadata_replaced]
SEED = 2


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_locks_stay_safe() -> None:
    outcome = run_seed(PLAYED, SEED)
    assert not outcome.failure, f"{outcome.replay}\n{outcome.failure}"
    assert outcome.reached["operations"] >= 2000
