"""A pytest plugin: a run of tests with a planted bug in place, and the seeds a test may use.

    pytest --planted journal_skips_sync tests/unit/ledgers

The bug is in place before any test is collected, and a run with one leaves no results behind. With
`--planted-report FILE` the run writes how each failed test failed, for `prove.py` to judge; of a
test with parameters the first red case ends it.

A test that looks for something with seeds takes the fixture `seeds`:

    def test_promises_hold(seeds: Seeds) -> None:
        for seed in seeds(3): ...

It gets so many seeds as it asks for; while a bug is looked for, as many as `--seeds` and
`--seed-minutes` allow. The seed at which it failed is part of the report, and `--only-seed` plays
that one again.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final

import pytest

from anabranch.errors import InputError
from anabranch.testing.proofs import function_of

Seeds = Callable[[int], Iterator[int]]
"""Asked for a number of seeds, gives that many, or as many as the run was told to try."""

_EXPECTED: Final = (
    AssertionError,
    OSError,  # also TimeoutError, and connections that a server gave up
    EOFError,
    SubprocessError,
    pytest.fail.Exception,
)
"""How a test notices a bug. Anything else may be a mistake in the bug itself."""
_NOTICING_PACKAGES: Final = ("anabranch", "pyspark_anabranch", "_pulsar")
"""Whose errors are answers of the product, of the simulated world, or of the stock client."""
_TEXT_CHARS_MAX: Final = 2000
_seed_key = pytest.StashKey[int]()
_stack_key = pytest.StashKey[ExitStack]()
_report_key = pytest.StashKey[list[dict[str, Any]]]()
_noticed_key = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest the options of this plugin."""
    group = parser.getgroup("planted", "planted bugs and goals")
    group.addoption("--planted", metavar="NAME", help="run with this planted bug in place")
    group.addoption("--planted-report", metavar="FILE", help="write how tests failed, as JSON")
    group.addoption("--seeds", type=int, metavar="N", help="seeds for tests that ask for some")
    group.addoption("--seed-minutes", type=float, metavar="M", help="and how long they may take")
    group.addoption("--only-seed", type=int, metavar="N", help="give them this seed and no other")
    group.addoption("--no-results", action="store_true", help="leave no outcomes for the goal map")
    group.addoption("--goal-claims", metavar="FILE", help="write what goal markers say, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Put the bug in place before anything is collected."""
    config.stash[_report_key] = []
    config.stash[_noticed_key] = set()
    name = config.getoption("planted")
    if name is None:
        return
    # Imported here: bugs import the whole product, and most runs have none.
    import hypothesis

    from anabranch.testing.planted import applied

    # Whether an example is found matters here, not how small it can be made.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("planted", phases=phases, database=None)
    hypothesis.settings.load_profile("planted")
    stack = ExitStack()
    try:
        stack.enter_context(applied(name))
    except InputError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_stack_key] = stack


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the bug out, and leave the report."""
    stack = config.stash.get(_stack_key, None)
    if stack is not None:
        stack.close()
    path = config.getoption("planted_report")
    if path is not None and _report_key in config.stash:
        Path(path).write_text(json.dumps(config.stash[_report_key], indent=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out further cases of a test that went red already."""
    if function_of(item.nodeid) in item.config.stash[_noticed_key]:
        pytest.skip("another case noticed the bug")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """Seeds from 0 on: as many as the test asks for, or as the run was told to try."""
    told: int | None = request.config.getoption("seeds")
    minutes: float | None = request.config.getoption("seed_minutes")
    only: int | None = request.config.getoption("only_seed")

    def give(count: int) -> Iterator[int]:
        end_s = time.monotonic() + minutes * 60 if minutes is not None else None
        wanted = range(count if told is None else told) if only is None else (only,)
        for seed in wanted:
            if end_s is not None and time.monotonic() > end_s:
                return
            request.node.stash[_seed_key] = seed
            yield seed

    return give


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a test failed."""
    report = yield
    config = item.config
    if config.getoption("planted_report") is None or call.excinfo is None or not report.failed:
        return report
    error = call.excinfo.value
    config.stash[_noticed_key].add(function_of(item.nodeid))
    config.stash[_report_key].append(
        {
            "test": item.nodeid,
            "phase": report.when,
            "error": f"{type(error).__name__}: {error}"[:_TEXT_CHARS_MAX],
            "doubt": why_suspicious(error, config.getoption("planted") or ""),
            "seed": _seed_of(item),
            "hunted": _seed_key in item.stash,
            "seconds": call.duration,
        }
    )
    return report


def _seed_of(item: pytest.Item) -> str:
    seed: object = item.stash.get(_seed_key, None)
    if seed is None and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        seed = item.callspec.params.get("seed")
    return "-" if seed is None else str(seed)


def why_suspicious(error: BaseException, bug: str) -> str:
    """Why a failure may come from a mistake in the bug itself; empty if it looks genuine."""
    for found in _related(error):
        wrong_call = isinstance(found, TypeError) and f"{bug}()" in str(found)
        if wrong_call or _raised_in_bugs(found):
            return f"the bug itself raised {type(found).__name__}: {found}"
    told = re.search(rf"^TypeError: .*\b{re.escape(bug)}\(\).*$", str(error), re.MULTILINE)
    if told or (told := _MISTAKE_IN_TEXT.search(str(error))):
        return f"the bug itself raised {told[0].splitlines()[-1]}"
    for leaf in _leaves(error):
        home = type(leaf).__module__.partition(".")[0]
        if not isinstance(leaf, _EXPECTED) and home not in _NOTICING_PACKAGES:
            return f"{type(leaf).__name__} is no way for a test to notice a bug"
    return ""


_MISTAKE_IN_TEXT: Final = re.compile(
    r'testing/bugs/\w+\.py", line \d+, in \w+\n(?:(?!\s*File ")[ \t]+.*\n)*[\w.]+(?:: .*)?$',
    re.MULTILINE,
)
"""In a printed traceback: the innermost frame is a bug's."""


def _related(error: BaseException | None) -> Iterator[BaseException]:
    """An error, those in it, and those behind it."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if found is None or any(found is other for other in seen):
            continue
        seen.append(found)
        yield found
        waiting += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _raised_in_bugs(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Whoever is cancelled stands where it waited, which is no mistake.
    if trace is None or not isinstance(error, Exception):
        return False
    return "/testing/bugs/" in trace.tb_frame.f_code.co_filename
