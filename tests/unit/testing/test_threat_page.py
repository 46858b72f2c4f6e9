"""The page of threats is true: each row has a test that exists, or says where protection ends."""

from pathlib import Path

import pytest

from anabranch.testing.threat_page import threats, unproven

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs/guides/threat-model.md").read_text()
HEAD = "| Threat | What stands against it | Shown by | Limit |\n|---|---|---|---|\n"


@pytest.mark.goal("core.S1", part="page", broken_by="tests_that_are_gone_count")
def test_every_threat_has_its_test_or_its_limit() -> None:
    assert unproven(PAGE, TESTS) == []
    assert len(list(threats(PAGE))) == 18
    row = "| Floods | a wall | `test_threat_page.py::test_that_is_gone` | |\n"
    assert unproven(HEAD + row, TESTS) == [
        "Floods: there is no test_threat_page.py::test_that_is_gone"
    ]


@pytest.mark.goal("core.S1", part="page", broken_by="rows_need_no_limit")
def test_a_row_without_either_is_found() -> None:
    rows = HEAD + "| Floods | a wall | | |\n| Fire | | | none |\n\n| not | of | the | table |\n"
    assert unproven(rows, TESTS) == [
        "Floods: has neither a test nor a limit",
        "Fire: nothing stands against it",
    ]
