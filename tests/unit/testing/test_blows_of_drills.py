"""Full runs of the drills of replacing the metadata store strike everybody in each phase."""

from itertools import product

from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing import replace_led_metadata as led
from anabranch.testing.phase_striker import BOOKIE, BROKER, DRIVER, TARGET
from anabranch.testing.replace_metadata_drill import BLOWS, FINAL, lives


def test_each_phase_has_three_blows() -> None:
    phases = [phase.name for phase in TABLE.phases.values() if not phase.ends]
    assert sorted(BLOWS) == sorted(product(phases, (DRIVER, BROKER, TARGET)))


def test_a_full_run_strikes_all_and_each_last_phase_on_a_cluster_of_its_own() -> None:
    first, *others = lives(len(BLOWS))
    lasts = [(FINAL, life.last) for life in (first, *others)]
    assert sorted([*first.blows, *lasts]) == sorted(BLOWS)
    assert all(not life.blows for life in others)


def test_bookies_that_are_led_are_struck_as_all_others() -> None:
    assert sorted(led.BLOWS) == sorted(product(led.PHASES, (DRIVER, BROKER, TARGET, BOOKIE)))
    assert {"halting", "freezing", "leading", "switched"} <= set(led.PHASES)
