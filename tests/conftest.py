"""What every test run shares: the goal marker, its record, and honesty about what was left out."""

import json
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from anabranch.testing.goal_results import NO_GOAL, Claim, load_results, merge, save_results
from anabranch.testing.goals import load_goals
from anabranch.testing.servers.java import FLAGS_VARIABLE, SHORT_LIVED

os.environ.setdefault(FLAGS_VARIABLE, SHORT_LIVED)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background ignores it, and so would every program that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
_known_goals = load_goals()
_collected: dict[str, list[Claim]] = {}
"""By test, also of those that are left out; empty lists for tests without a marker."""
_outcomes: dict[str, bool] = {}
_peers_left_out = 0


@cache
def _known_bugs() -> frozenset[str]:
    # Bugs import the code they break: not worth the time unless a marker names one.
    from anabranch.testing.planted import load_bugs

    return frozenset(load_bugs())


def _claims_of(item: pytest.Item) -> list[Claim]:
    peer = item.get_closest_marker("peer") is not None
    claims = []
    for mark in item.iter_markers("goal"):
        claim = _claim_of(item.nodeid, peer, *mark.args, **mark.kwargs)
        if claim.goal not in _known_goals:
            raise ValueError(f"{item.nodeid}: unknown goal {claim.goal!r}, see tests/goals.tsv")
        claims.append(claim)
    for mark in item.iter_markers("broken_by"):
        (bug,) = mark.args
        claims.append(Claim(NO_GOAL, "", item.nodeid, bug, peer))
    for claim in claims:
        if claim.broken_by and claim.broken_by not in _known_bugs():
            raise ValueError(f"{item.nodeid}: unknown planted bug {claim.broken_by!r}")
    return claims


def _claim_of(
    test: str, peer: bool, goal: str, *, part: str | None = None, broken_by: str | None = None
) -> Claim:
    return Claim(goal, part or "", test, broken_by or "", peer)


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, but nothing may be skipped in CI: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report: pytest.CollectReport = yield
    _fail_if_skipped(report)
    for item in report.result or ():
        if isinstance(item, pytest.Item):
            try:
                _collected[item.nodeid] = _claims_of(item)
            except (TypeError, ValueError) as error:
                report.outcome = "failed"
                report.longrepr = f"{item.nodeid}: bad goal marker: {error}"
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    global _peers_left_out
    _peers_left_out += sum(item.get_closest_marker("peer") is not None for item in items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: pytest.TestReport = yield
    _fail_if_skipped(report)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    passed_so_far = report.when == "setup" or _outcomes.get(report.nodeid, False)
    _outcomes[report.nodeid] = passed_so_far and report.passed


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker collected: the controller of a parallel run collects nothing."""
    global _peers_left_out
    output = getattr(node, "workeroutput", None)
    if output is not None:
        _peers_left_out = output["peers_left_out"]
        for test, claims in output["collected"]:
            _collected[test] = [Claim(*fields) for fields in claims]


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["peers_left_out"] = _peers_left_out
        config.workeroutput["collected"] = [
            (test, [tuple(claim) for claim in claims]) for test, claims in _collected.items()
        ]
        return
    _write_claims(config)
    unwanted = config.getoption("planted", None) or config.getoption("no_results", False)
    if config.option.collectonly or not _outcomes or unwanted:
        return
    chosen_by_name = any("::" in argument for argument in config.args)
    files = {test.partition("::")[0] for test in _collected}
    claims = [claim for claims in _collected.values() for claim in claims]
    known = load_results(config.rootpath)
    merged = merge(known, claims, _outcomes, () if chosen_by_name else files)
    if merged != known:
        save_results(config.rootpath, merged)


def _write_claims(config: pytest.Config) -> None:
    path = config.getoption("goal_claims", None)
    if path is not None:
        claims = [claim._asdict() for claims in _collected.values() for claim in claims]
        Path(path).write_text(json.dumps(claims))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _peers_left_out:
        terminalreporter.write_line(
            f"{_peers_left_out} peer tests left out; `make test-peers` runs them"
        )
