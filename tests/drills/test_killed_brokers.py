"""Three brokers on a real ZooKeeper or Oxia and real bookies: the owner is hurt, nothing is lost.

The metadata are prepared by our own tool; real bookies start on them.
"""

from pathlib import Path

import pytest

from anabranch.testing.broker_drill import BrokerDrillSettings, MetadataKind, drill
from anabranch.testing.made_histories import broken_rules
from anabranch.verify.workload import ClientKind

pytestmark = [pytest.mark.peer, pytest.mark.timeout(500)]

SLOWNESS = {"C14"}
"""How soon another broker takes over depends on what else the machine does."""


@pytest.mark.goal("core.B14", part="processes", broken_by="lookup_believes_an_old_answer")
@pytest.mark.goal("core.B3", part="take-over", broken_by="sequence_ids_are_not_replayed")
@pytest.mark.goal("check.C4", broken_by="sequence_ids_are_not_replayed")
def test_others_take_over_when_the_owner_is_killed(tmp_path: Path) -> None:
    """And know what was stored before: clients send again what they have no receipt for."""
    settings = BrokerDrillSettings(
        faults=2, seed=30, gap_s=1.0, rate=100.0, dedup=True, unanswered_s=0.5
    )
    verdict = drill(settings, tmp_path, session_timeout_s=4.0)
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    assert verdict.figures["gap_max_s"] > 0.5, "publishing stood still while nobody had the topic"
    rules = {rule.id: rule for rule in verdict.rules}
    # Receipts of what was there already say no place.
    assert 300 < rules["C13"].checked <= verdict.counts["acknowledged"]
    assert rules["C4"].checked >= verdict.counts["acknowledged"]
    assert rules["C4"].tolerated == 0


@pytest.mark.goal("core.B14", part="processes", broken_by="lookup_believes_an_old_answer")
def test_others_take_over_on_oxia_when_the_owner_is_killed(tmp_path: Path) -> None:
    """Where no lock is checked in the moment of a write; what was confirmed is not undone."""
    settings = BrokerDrillSettings(
        faults=2,
        seed=32,
        gap_s=1.0,
        rate=100.0,
        client=ClientKind.SDK,
        metadata=MetadataKind.OXIA,
    )
    verdict = drill(settings, tmp_path, session_timeout_s=4.0)
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    assert verdict.figures["judged_C5"] > 300
    assert verdict.figures["judged_C11"] > 10


@pytest.mark.goal("core.B14", part="processes", broken_by="stale_owner_answers_lookups")
@pytest.mark.parametrize("metadata", list(MetadataKind))
def test_the_sdk_goes_on_after_the_owner_was_cut_off(
    metadata: MetadataKind, tmp_path: Path
) -> None:
    """From its metadata store, its bookies, or both: it hears that it is no longer the owner."""
    settings = BrokerDrillSettings(
        faults=3,
        seed=33,
        gap_s=1.0,
        rate=100.0,
        cut_s=15.0,
        client=ClientKind.SDK,
        metadata=metadata,
    )
    verdict = drill(settings, tmp_path, session_timeout_s=5.0)
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    told = [log.read_text() for log in (tmp_path / "brokers").rglob("*.log")]
    assert sum(each.count("bundle_lost") for each in told) >= 2
    assert any("bookie_connection_lost" in each for each in told), "also bookies were away"


@pytest.mark.goal("core.B14", part="paused", broken_by="stale_owner_answers_lookups")
def test_the_stock_client_goes_on_after_the_owner_stood_still(tmp_path: Path) -> None:
    """For 40 s, which outlives its session: another one has the topic when it wakes up."""
    settings = BrokerDrillSettings(faults=1, seed=31, gap_s=1.0, rate=100.0, pause_s=40.0)
    verdict = drill(settings, tmp_path, session_timeout_s=10.0)
    assert broken_rules(verdict) <= SLOWNESS, verdict.as_text()
    assert verdict.reasons == []
    assert verdict.counts["acknowledged"] > 300
    assert verdict.counts["deliveries"] > verdict.counts["acknowledged"]
    checked = {rule.id: rule.checked for rule in verdict.rules}
    assert checked["C13"] == verdict.counts["acknowledged"]
    told = "".join(log.read_text() for log in (tmp_path / "brokers").rglob("*.log"))
    assert "bundle_lost" in told, "who stood still hears that it is no longer the owner"
