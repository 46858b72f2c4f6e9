"""`make drills`: long runs on real processes, outside CI, each recorded.

    python -m anabranch.testing.drills [--list] [--size full|small|N] [--only PART,...] [NAME ...]

A drill is a program: it is told a size, shows its progress on standard error, prints a verdict as
JSON on standard output and exits with 0 if everything held. `make test` or `make test-peers` runs
each in small, by tests of their own; here they run in full. `tests/drills/record.tsv` keeps what
came of them.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from anabranch.testing import replace_led_metadata, replace_metadata_drill
from anabranch.testing.broker_drills import BROKER_DRILLS
from anabranch.testing.drill import DRILL_COLUMNS, DRILL_RECORD, PASSED, Drill
from anabranch.testing.proofs import ROOT
from anabranch.testing.run_records import code_digest, load_rows, save_rows
from anabranch.testing.servers.process import bound_to_parent
from anabranch.testing.stopping import INTERRUPTED, run_program

RECORD: Final = ROOT / DRILL_RECORD
COLUMNS: Final = DRILL_COLUMNS
FAILED, STOPPED = "failed", "stopped"
_NO_FIGURES: Final = ("size", "version")
"""Numbers of a verdict that say nothing about how the run went."""


_STANDALONE: Final = (
    *(sys.executable, "-m", "anabranch", "standalone"),
    *("--port", "{port}", "--web-port", "{web_port}", "--data", "{data}"),
)
DRILLS: Final = (
    Drill(
        "kill-standalone",
        "kill -9 of the standalone server under load, judged by the rules of verify",
        "anabranch.testing.crash_drill",
        ("--kills", "{size}", "--output", "json", "--", *_STANDALONE),
        full=500,
        small=10,
    ),
    Drill(
        "kill-standalone-sdk",
        "the same by the SDK, whose confirmed acknowledgements must outlive every kill",
        "anabranch.testing.crash_drill",
        ("--kills", "{size}", "--client", "sdk", "--output", "json", "--", *_STANDALONE),
        full=100,
        small=5,
    ),
    Drill(
        "kill-metadata",
        "kill -9 of a served metadata store under load of several clients",
        "anabranch.testing.metadata_drill",
        ("--kills", "{size}"),
        full=500,
        small=10,
    ),
    Drill(
        "zookeeper-faults",
        "kill -9 of the leader of three ZooKeeper nodes under locks, watches and writes",
        "anabranch.testing.zookeeper_drill",
        ("--kills", "{size}"),
        full=100,
        small=2,
    ),
    Drill(
        "kill-oxia",
        "kill -9 of an Oxia of three shards under locks, watches and writes",
        "anabranch.testing.oxia_drill",
        ("--kills", "{size}"),
        full=50,
        small=2,
    ),
    *BROKER_DRILLS,
    Drill(
        "large-metadata",
        "a tree of so many nodes, streamed to a client in bounded memory",
        "anabranch.testing.metadata_size_drill",
        ("--nodes", "{size}"),
        full=1_000_000,
        small=100_000,
    ),
    Drill(
        "copy-metadata",
        "a tree of so many nodes from ZooKeeper to Oxia and back, in bounded memory",
        "anabranch.testing.metadata_copy_drill",
        ("--nodes", "{size}"),
        full=1_000_000,
        small=10_000,
    ),
    Drill(
        "replace-metadata",
        "kill -9 of driver, broker and target in each phase while the metadata store is replaced",
        replace_metadata_drill.__name__,
        ("--kills", "{size}"),
        full=len(replace_metadata_drill.BLOWS),
        small=3,
        parts=replace_metadata_drill.PHASES,
        parts_option="--phases",
    ),
    Drill(
        "replace-metadata-led",
        "kill -9 of driver, broker, target and bookies that are led while the store is replaced",
        replace_metadata_drill.__name__,
        ("--led", "--kills", "{size}"),
        full=len(replace_led_metadata.BLOWS),
        small=1,
        parts=replace_led_metadata.PHASES,
        parts_option="--phases",
    ),
    Drill(
        "replace-metadata-story",
        "the metadata store is replaced under load, back, and for good; the old one is stopped",
        "anabranch.testing.replace_metadata_story",
        ("--rounds", "{size}"),
        full=3,
        small=1,
    ),
    Drill(
        "replace-metadata-restarts",
        "the same while every broker, bookie and store is restarted in turn, there and at rest",
        "anabranch.testing.replace_metadata_story",
        ("--restarts", "--rounds", "{size}"),
        full=2,
        small=1,
    ),
    Drill(
        "replace-metadata-led-story",
        "the same forward only, with three bookies that are led by Pulsar's flag",
        "anabranch.testing.replace_metadata_story",
        ("--led", "--rounds", "{size}"),
        full=2,
        small=1,
    ),
    Drill(
        "replace-large-metadata",
        "a metadata store of so many nodes is replaced under load; writes are held for 1 s at most",
        "anabranch.testing.replace_large_metadata_drill",
        ("--nodes", "{size}"),
        full=1_000_000,
        small=10_000,
    ),
    Drill(
        "check-history",
        "a history of so many messages with 15 faults, checked by Spark on two cores",
        "anabranch.testing.spark_history_drill",
        ("--messages", "{size}"),
        full=100_000_000,
        small=1_000_000,
    ),
    Drill(
        "spark-metadata",
        "a tree of so many nodes from one ZooKeeper to another by Spark, and ten differences found",
        "anabranch.testing.spark_metadata_drill",
        ("--nodes", "{size}", "--copy-s", "180", "--compare-s", "30"),
        full=1_000_000,
        small=10_000,
    ),
    Drill(
        "spark-digests",
        "two Oxias of so many nodes with three differences, found by digests of parts",
        "anabranch.testing.spark_metadata_drill",
        (
            *("--nodes", "{size}", "--from", "oxia", "--to", "oxia"),
            *("--value-bytes", "50", "--fill-both"),
        ),
        full=10_000_000,
        small=10_000,
    ),
    Drill(
        "kill-spark",
        "driver, worker and broker of a Spark stream, each ended with SIGKILL so often",
        "anabranch.testing.spark_kill_drill",
        ("--kills", "{size}"),
        full=20,
        small=1,
    ),
    Drill(
        "fuzz-wire",
        "mutated streams against the codec of the wire protocol",
        "anabranch.testing.wire_fuzz",
        ("--streams", "{size}", "--start", "{start}"),
        full=1_000_000,
        small=10_000,
    ),
)


def figures_of(verdict: Mapping[str, Any]) -> str:
    """The numbers of a verdict, as the record keeps them: its own, its counts, its figures."""
    groups = [verdict, verdict.get("counts", {}), verdict.get("figures", {})]
    found = {
        name: value
        for group in groups
        for name, value in group.items()
        if isinstance(value, int | float) and name not in _NO_FIGURES
    }
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in sorted(found.items())
    )


def done_before(rows: Iterable[Sequence[str]], drill: Drill, digest: str) -> int:
    """How much of a drill that goes on was done with the present code."""
    return sum(
        int(size)
        for name, seen, size, _, result, _ in rows
        if (name, seen) == (drill.name, digest) and result in (PASSED, STOPPED)
    )


def run(drill: Drill, size: int, path: Path = RECORD) -> str:
    """Run a drill and record what came of it: passed, failed or stopped."""
    rows = load_rows(path, COLUMNS)
    digest = code_digest(drill.module)
    start = done_before(rows, drill, digest) if drill.goes_on else 0
    print(f"{drill.name}: {size:,}, {drill.words}", file=sys.stderr, flush=True)
    began_s = time.monotonic()
    # In a group of its own, so that it is told once to stop, by us, whoever told us.
    child = subprocess.Popen(
        bound_to_parent(drill.command(size, start)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    stopped = False
    try:
        output, _ = child.communicate()
    except KeyboardInterrupt:
        # It takes its servers down and says how far it came.
        stopped = True
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate()
    seconds = time.monotonic() - began_s
    stopped = stopped or child.returncode == INTERRUPTED
    verdict = _verdict(output)
    result = STOPPED if stopped else PASSED if child.returncode == 0 else FAILED
    done = int(verdict.get("size", 0)) if stopped else size
    if result == FAILED:
        print(output, file=sys.stderr)
    if not stopped or (drill.goes_on and done):
        row = (drill.name, digest, str(done), f"{seconds:.0f}", result, figures_of(verdict))
        # Read again: another drill may have ended meanwhile.
        save_rows(path, COLUMNS, [*load_rows(path, COLUMNS), row])
    print(f"{drill.name}: {result} after {seconds:.0f} s  {figures_of(verdict)}", flush=True)
    return result


def _verdict(output: str) -> dict[str, Any]:
    try:
        found = json.loads(output)
    except json.JSONDecodeError:  # the drill failed before it had one; its exit code says so
        return {}
    return found if isinstance(found, dict) else {}


def _size_of(drill: Drill, words: str) -> int:
    return {"full": drill.full, "small": drill.small}.get(words) or int(words)


def _is_size(words: str) -> str:
    if words not in ("full", "small") and not (words.isdecimal() and int(words) > 0):
        raise argparse.ArgumentTypeError(f"full, small, or a number above 0, not {words!r}")
    return words


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for: 0 all passed, 1 one failed, 2 unknown name, 130 if stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.drills",
        description="Long runs on real processes; what came of them is recorded.",
    )
    drills = {drill.name: drill for drill in DRILLS}
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="which; default: all of them")
    add("--size", type=_is_size, default="full", help="full, small, or a number (default: full)")
    add("--only", default="", metavar="PART,...", help="these parts of one drill that has parts")
    add("--list", action="store_true", help="print the drills and their sizes")
    add("--record", type=Path, default=RECORD, help="the record (default: the committed one)")
    options = parser.parse_args(arguments)
    if options.list:
        for drill in DRILLS:
            print(f"{drill.name}\t{drill.full:,} ({drill.small:,} in small)\t{drill.words}")
            if drill.parts:
                print(f"\tparts: {', '.join(drill.parts)}")
        return 0
    unknown = [name for name in options.names if name not in drills]
    if unknown:
        print(f"no drill {', '.join(unknown)}; there are: {', '.join(drills)}", file=sys.stderr)
        return 2
    if options.only:
        parts = options.only.split(",")
        known = drills[options.names[0]].parts if len(options.names) == 1 else ()
        if wrong := [part for part in parts if part not in known]:
            print(f"no part {', '.join(wrong)}; there are: {', '.join(known)}", file=sys.stderr)
            return 2
        drills = {options.names[0]: drills[options.names[0]].of_parts(parts)}
    results = []
    for name in options.names or drills:
        results.append(run(drills[name], _size_of(drills[name], options.size), options.record))
        if results[-1] == STOPPED:
            return INTERRUPTED
    return 1 if FAILED in results else 0


if __name__ == "__main__":
    run_program(main)
