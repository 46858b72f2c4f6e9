"""`python -m benchmarks [name ...]`: measure, print one table each, keep the raw figures."""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.errors import AnabranchError
from benchmarks import standalone
from benchmarks.options import Options
from benchmarks.report import Measure, Report, SideRun

RESULTS: Final = Path(__file__).with_name("results")
SECONDS_MIN: Final = 12
"""pulsar-perf prints its first rate after 10 s."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named benchmark: what it measures, its sides and loads, and how to run one side."""

    measures: tuple[Measure, ...]
    sides: Sequence[str]
    loads: Sequence[str]
    measure: Callable[[str, Options, Callable[[str], None]], SideRun]


BENCHMARKS: Final = {
    "standalone": Benchmark(
        standalone.MEASURES, [*standalone.SIDES], [*standalone.LOADS], standalone.measure
    ),
}


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


def _run(name: str, options: Options) -> None:
    benchmark = BENCHMARKS[name]
    report = Report(name, benchmark.measures, options.sides, _machine())
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    path = RESULTS / f"{name}-{moment}.json"
    for pair in range(options.pairs):
        for side in options.sides:

            def say(text: str, pair: int = pair) -> None:
                print(f"[{name} {pair + 1}/{options.pairs}] {text}", file=sys.stderr, flush=True)

            say(f"{side}: start")
            report.runs.append(benchmark.measure(side, options, say))
            if not options.profile:
                report.save(path)
    print(report.table())
    print("profiled, so slower: not for the record" if options.profile else f"saved {path}")


def _names(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}: choose from {known}")
        return names

    return parse


def _parse(arguments: Sequence[str] | None) -> tuple[list[str], Options]:
    sides = sorted({side for one in BENCHMARKS.values() for side in one.sides})
    loads = sorted({load for one in BENCHMARKS.values() for load in one.loads})
    default = Options()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--pairs", type=int, default=default.pairs, help="5 for a record")
    parser.add_argument("--seconds", type=int, default=default.seconds, help="per load")
    parser.add_argument("--sides", type=_names(sides), default=default.sides, help="A or A,B")
    parser.add_argument("--loads", type=_names(loads), default=default.loads, help="A or A,B")
    parser.add_argument("--profile", action="store_true", help="our side only, under cProfile")
    found = parser.parse_args(arguments)
    if unknown := [name for name in found.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    if found.seconds < SECONDS_MIN:
        parser.error(f"--seconds must be at least {SECONDS_MIN}: pulsar-perf reports every 10 s")
    if found.pairs < 1 or len(found.sides) > 2:
        parser.error("--pairs must be at least 1 and --sides one or two names")
    own = ("anabranch",) if found.profile else found.sides
    return found.names or [*BENCHMARKS], Options(
        found.pairs, found.seconds, own, found.loads, found.profile
    )


def main(arguments: Sequence[str] | None = None) -> int:
    names, options = _parse(arguments)
    try:
        for name in names:
            _run(name, options)
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
