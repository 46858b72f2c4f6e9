"""Barriers: what counts as being there."""

from dataclasses import replace

import pytest

from anabranch.metadata.announced import Announced, Report
from anabranch.migrations.engine import barrier

NOW = Announced("two", 2, 7, "freezing", {}, 12)
THERE = Report("ash", "broker", "h", "1", attempt="two", serial=12, phase="freezing")


@pytest.mark.goal("trap.U4", part="engine", broken_by="old_reports_open_the_barrier")
def test_what_was_reported_before_counts_for_nothing() -> None:
    earlier_attempt = replace(THERE, id="birch", attempt="one")
    earlier_visit = replace(THERE, id="cedar", serial=9)
    new = Report("doum", "broker", "h", "1")
    found = barrier.barrier(NOW, [THERE, earlier_attempt, earlier_visit, new])
    assert found.waits_for == ("birch", "cedar", "doum")
    assert not found.open
    assert barrier.barrier(NOW, [THERE, replace(THERE, id="birch")]).open


def test_who_cannot_get_there_closes_it_and_says_why() -> None:
    found = barrier.barrier(NOW, [THERE, replace(THERE, id="birch", error="no route")])
    assert found.failed == (("birch", "no route"),)
    assert not found.open
    assert not found.waits_for
