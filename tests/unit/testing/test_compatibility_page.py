"""The page of what works says what the record of the tests says."""

from anabranch.testing.compatibility_page import PAGE, render
from anabranch.testing.goals import Goal, load_goals, load_state


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(load_goals(), load_state()), (
        "write it again: python -m anabranch.testing.compatibility_page"
    )


def test_a_row_says_where_it_stands() -> None:
    goals = {
        "core.B1": Goal("now", "handshake"),
        "core.B2": Goal("now", "producers", frozenset({"names", "batches"})),
        "core.B3": Goal("now", "readers"),
        "core.B4": Goal("later", "transactions"),
        "check.C1": Goal("now", "not about Pulsar"),
    }
    page = render(goals, {"core.B1": "proven", "core.B2": "claimed"})
    assert "| handshake | yes |  |" in page
    assert "| producers | yes, partly proven | batches, names |" in page
    assert "| readers | in part |  |" in page
    assert "| transactions | no |  |" in page
    assert "not about Pulsar" not in page
    assert "| pulsar-server-distribution | 4.0.8 |" in page
