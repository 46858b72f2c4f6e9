"""Full runs of the drills of replacing the metadata store strike everybody in each phase."""

from itertools import product

from anabranch.metadata.announced import Announced
from anabranch.migrations.engine.state import State
from anabranch.migrations.freeze_copy.phases import TABLE
from anabranch.testing import replace_led_metadata as led
from anabranch.testing.phase_striker import BOOKIE, BROKER, DRIVER, TARGET, Order, is_missed
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


def seen(phase: str, number: int = 3) -> State:
    return State(Announced("an attempt", number, 1, phase, {}, 1), entered_ms=0)


def test_a_phase_that_nobody_saw_is_not_waited_for() -> None:
    def missed(wanted: str, state: State) -> bool:
        return is_missed(Order("memory:", 3, wanted, DRIVER, {}, 0), state)

    assert missed("leading", seen("switched")), "it lasted for three milliseconds"
    assert missed("rejoining", seen("fencing"))
    assert missed("failing", seen("switched")), "the attempt did not fail"
    assert missed("reverting", seen("rolled back"))
    assert missed("copying", seen("preparing", number=4))
    for wanted, now in (
        ("leading", "leading"),
        ("leading", "copying"),
        ("reverting", "switched"),
        ("finalizing", "switched"),
        ("aborting", "tailing"),
        ("failing", "rejoining"),
    ):
        assert not missed(wanted, seen(now)), (wanted, now)
    assert not missed("copying", seen("failed", number=2)), "another attempt"
