"""What every test run shares: the goal marker, its record, and honesty about what was left out."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.testing import goals

_known = goals.load_goals()
_results: list[str] = []
_peers_left_out = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("goal"):
            if mark.args[0] not in _known:
                raise pytest.UsageError(f"{item.nodeid}: unknown goal {mark.args[0]!r}")


def pytest_deselected(items: list[pytest.Item]) -> None:
    global _peers_left_out
    _peers_left_out += sum(item.get_closest_marker("peer") is not None for item in items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call" or report.failed or report.skipped:
        if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"skipped, but nothing may be skipped in CI: {report.longrepr}"
        for mark in item.iter_markers("goal"):
            fields = (
                mark.args[0],
                str(mark.kwargs.get("part") or ""),
                item.nodeid.replace("\t", " ").replace("\n", " "),
                str(mark.kwargs.get("broken_by") or ""),
                "1" if item.get_closest_marker("peer") else "0",
                "1" if report.passed else "0",
            )
            _results.append("\t".join(fields))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _results:
        return
    goals.RESULTS.mkdir(exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    kind = "peer" if session.config.getoption("-m") == "peer" else "own"
    path = Path(goals.RESULTS / f"goals-{kind}-{worker}.tsv")
    path.write_text("\n".join(_results) + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _peers_left_out:
        terminalreporter.write_line(
            f"{_peers_left_out} peer tests left out; `make test-peers` runs them"
        )
