"""Planted bugs of the reader of the page of threats."""

from pathlib import Path

from anabranch.testing.planted import original, planted

_PAGE = "anabranch.testing.threat_page"


@planted("tests_that_are_gone_count", target=f"{_PAGE}:_exists")
def tests_that_are_gone_count(tests: Path, module: str, test: str) -> bool:
    """A test that nobody can find is believed in."""
    del tests, module, test
    return True


@planted("rows_need_no_limit", target=f"{_PAGE}:unproven")
def rows_need_no_limit(page: str, tests: Path) -> list[str]:
    """A threat may stand there without a test and without a limit."""
    found: list[str] = original("rows_need_no_limit")(page, tests)
    return [each for each in found if "neither" not in each]
