"""Runs two sides in turn, A B A B …, and keeps what each run found."""

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.testing import measured
from benchmarks.options import Options
from benchmarks.report import Measure, Report, SideRun

RESULTS: Final = Path(__file__).with_name("results") / "raw"


def _machine() -> dict[str, str]:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "commit": described.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": str(os.cpu_count()),
    }


def run_pairs(
    name: str,
    measures: tuple[Measure, ...],
    measure: Callable[[str, Options, Callable[[str], None]], SideRun],
    options: Options,
) -> None:
    """Call `measure` for each side in turn, as many times as pairs are wanted; print and save.

    What is known is saved after every run, so that a failure in the last hour costs one run.
    """
    report = Report(name, measures, options.sides, _machine())
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    path = RESULTS / f"{name}-{moment}.json"
    for pair in range(options.pairs):
        for side in options.sides:

            def say(text: str, pair: int = pair) -> None:
                print(f"[{name} {pair + 1}/{options.pairs}] {text}", file=sys.stderr, flush=True)

            say(f"{side}: start")
            report.runs.append(measure(side, options, say))
            if not options.profile:
                report.save(path)
    if not options.profile:
        measured.save(
            name,
            {
                (measure.key, side): report.ratios(measure.key, place)
                for place, side in enumerate(options.sides[1:], 1)
                for measure in measures
            },
        )
    print(report.table())
    print("profiled, so slower: not for the record" if options.profile else f"saved {path}")
