"""Tables of phases: what they refuse, the diagram made from them, and that the docs have it."""

from pathlib import Path

import pytest

from anabranch.migrations.engine.table import Outward, Phase, Table, diagram
from anabranch.migrations.freeze_copy.limits import HOLD_S_MAX
from anabranch.migrations.freeze_copy.phases import TABLE

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "migrations.md"
END = Phase(name="end", words="", outward=Outward.FAILED, ends=True)


def phase(**columns: object) -> Phase:
    given = {"name": "one", "words": "", "outward": Outward.COPYING, **columns}
    return Phase(**given)  # type: ignore[arg-type]


def test_the_docs_show_the_diagram_of_the_table() -> None:
    assert f"```mermaid\n{diagram(TABLE)}```" in PAGE.read_text()


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({}, "must lead somewhere"),
        ({"done": "nowhere"}, "which is not there"),
        ({"done": "end", "holds_writes": True}, "no way out"),
        ({"done": "end", "holds_writes": True, "failure": "end"}, "without a deadline"),
        ({"done": "end", "deadline_s": 1.0}, "leads nowhere"),
        ({"done": "end", "new_driver_fails_it": True}, "leads nowhere"),
        (
            {
                "done": "end",
                "failure": "end",
                "holds_writes": True,
                "deadline_s": 1.0,
                "pausable": True,
            },
            "can be paused",
        ),
    ],
)
def test_a_table_that_could_leave_somebody_waiting_is_refused(
    columns: dict[str, object], why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        Table("one", phase(**columns), END)


def test_a_phase_that_nothing_leads_to_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing leads to end"):
        Table("one", phase(done="one"), END)


def test_every_phase_before_the_switch_can_be_aborted_and_after_it_only_a_rollback() -> None:
    before = ["preparing"]
    while before[-1] != "leading":
        before.append(TABLE[before[-1]].done)
    for name in before[:-1]:
        assert TABLE[name].abort == "aborting"
        assert TABLE[name].failure == "failing"
    after = [name for name in TABLE.phases if name not in before[:-1]]
    given_up = {name: TABLE[name].abort for name in after if TABLE[name].abort}
    assert given_up == {"reverifying": "switched"}, "only a rollback that has just begun"


def test_no_way_through_the_table_holds_writes_for_too_long() -> None:
    for way in (("freezing", "switched"), ("refreezing", "rolled back")):
        name, held_s = way[0], 0.0
        while name != way[1]:
            row = TABLE[name]
            assert row.holds_writes
            assert row.new_driver_fails_it or row.failure == row.done, "there is no way back"
            held_s += row.deadline_s or 0.0
            name = row.done
        assert held_s < HOLD_S_MAX
