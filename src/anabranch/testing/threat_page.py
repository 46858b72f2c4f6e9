"""The page of threats, read: which tests it names, and which rows have neither test nor limit."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
_HEAD = ["Threat", "What stands against it", "Shown by", "Limit"]


@dataclass(frozen=True, slots=True)
class Threat:
    """One row."""

    name: str
    defence: str
    tests: tuple[tuple[str, str], ...]
    """Module and test; without a test all of the module."""
    limit: str


def threats(page: str) -> Iterator[Threat]:
    """Return the rows of the table of threats."""
    inside = False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells == _HEAD:
            inside = True
        elif inside and not cells:
            return
        elif inside and not set(cells[0]) <= {"-"}:
            name, defence, shown_by, limit = cells
            yield Threat(name, defence, tuple(_TEST.findall(shown_by)), limit)


def unproven(page: str, tests: Path) -> list[str]:
    """Return what is wrong with the page: rows without test and limit, tests that are not there."""
    wrong = []
    for threat in threats(page):
        if not threat.defence:
            wrong.append(f"{threat.name}: nothing stands against it")
        if not threat.tests and not threat.limit:
            wrong.append(f"{threat.name}: has neither a test nor a limit")
        wrong += [
            f"{threat.name}: there is no {module}::{test}"
            for module, test in threat.tests
            if not _exists(tests, module, test)
        ]
    return wrong


def _exists(tests: Path, module: str, test: str) -> bool:
    found = list(tests.rglob(module))
    return bool(found) and (not test or f"def {test}(" in found[0].read_text())
