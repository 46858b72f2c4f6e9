"""Our source and sink for Spark on our standalone, beside Spark's own for Kafka on a Kafka.

python -m benchmarks.spark_kafka --pairs 5 --messages 2000000 --only count,write

Both servers run all the time and hold the same rows; both are asked by one session, `local[2]`, one
after the other. Every load was run once on each side before anything is measured.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from anabranch.errors import AnabranchError
from anabranch.testing.servers.cache import locate
from benchmarks.options import Options
from benchmarks.pairs import run_pairs
from benchmarks.report import SideRun
from benchmarks.spark_loads import (
    LATENCY,
    LOADS,
    Stage,
    digest_of,
    fill,
    make_rows,
    measure,
    measures_of,
)
from benchmarks.spark_sides import Side, kafka_side, our_side
from pyspark_anabranch.session import spark_session

MESSAGES: Final = 2_000_000
OURS: Final = "anabranch"
THEIRS: Final = "kafka"
MASTER: Final = "local[2]"
SETTINGS: Final = {"spark.log.level": "ERROR", "spark.driver.memory": "3g"}
_PROFILER: Final = {"spark.sql.pyspark.dataSource.profiler": "perf"}


def session(*, profile: bool = False) -> SparkSession:
    """A session that has both sources."""
    jars = sorted(str(jar) for jar in locate("spark-kafka").glob("*.jar"))
    more = _PROFILER if profile else {}
    return spark_session(MASTER, SETTINGS | more | {"spark.jars": ",".join(jars)})


def compare(options: Options, messages: int, loads: Sequence[str]) -> None:
    """Fill both servers, run the loads on each in turn, print the table."""
    names = (OURS,) if options.profile else (OURS, THEIRS)
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="."))
        sides: dict[str, Side] = {
            OURS: opened.enter_context(our_side(profile=options.profile)),
        }
        if not options.profile:
            sides[THEIRS] = opened.enter_context(kafka_side())
        stage = Stage(session(profile=options.profile), Path(folder).absolute(), messages)
        opened.callback(stage.spark.stop)
        make_rows(stage.folder, messages)
        stage.digest = digest_of(stage.rows)
        for name, side in sides.items():
            _say(f"{name}: {messages:,} rows are written, and each load is run once")
            fill(stage, side)
            for load in loads:
                if load != LATENCY:
                    measure(load, stage, side)

        def one(name: str, _options: Options, say: Callable[[str], None]) -> SideRun:
            run = SideRun(name)
            for load in loads:
                run.load_averages.append(os.getloadavg()[0])
                found = measure(load, stage, sides[name])
                figures = ", ".join(f"{key} {figure.value:,.1f}" for key, figure in found.items())
                say(f"{name}: {figures}, load {run.load_averages[-1]:.1f}")
                run.figures |= found
            return run

        measures = tuple(each for load in loads for each in measures_of(load))
        run_pairs("spark_kafka", measures, one, replace(options, sides=names))
        if options.profile:
            stage.spark.profile.show(type="perf")
    print(f"{messages:,} messages; ours syncs before it answers, Kafka does not: as each comes")


def _say(text: str) -> None:
    print(f"[spark_kafka] {text}", file=sys.stderr, flush=True)


def run(options: Options) -> None:
    compare(options, MESSAGES, LOADS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_kafka", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1, help="5 for a record")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="a multiple of 4")
    parser.add_argument("--only", default=",".join(LOADS), help=f"of {', '.join(LOADS)}")
    parser.add_argument("--profile", action="store_true", help="our side only, under cProfile")
    asked = parser.parse_args()
    loads = asked.only.split(",")
    if unknown := [load for load in loads if load not in LOADS]:
        parser.error(f"no load {unknown[0]!r}: choose from {', '.join(LOADS)}")
    if asked.pairs < 1 or asked.messages < 4 or asked.messages % 4:
        parser.error("--pairs must be at least 1, and --messages a multiple of 4")
    try:
        compare(Options(pairs=asked.pairs, profile=asked.profile), asked.messages, loads)
    except AnabranchError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
