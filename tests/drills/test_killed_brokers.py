"""Three brokers on a real ZooKeeper and real bookies: the owner is killed, and nothing is lost.

The metadata are prepared by our own tool; real bookies start on them.
"""

from pathlib import Path

import pytest

from anabranch.testing.broker_drill import BrokerDrillSettings, drill
from anabranch.testing.made_histories import broken_rules

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]

SLOWNESS = {"C14"}
"""How soon another broker takes over depends on what else the machine does."""


@pytest.mark.goal("core.B14", part="processes")
def test_others_take_over_when_the_owner_is_killed(tmp_path: Path) -> None:
    settings = BrokerDrillSettings(faults=2, seed=30, gap_s=1.0, rate=100.0)
    verdict = drill(settings, tmp_path, session_timeout_s=4.0)
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    checked = {rule.id: rule.checked for rule in verdict.rules}
    assert checked["C13"] == verdict.counts["acknowledged"]
