"""`make sim-long`: play scenarios on and on, and record how many seeds passed.

    python -m anabranch.testing.sim_long [--minutes M] [--scenario NAME] [--jobs N] [--total]

Goes on from the first seed that is not recorded for the present code, the scenario with the fewest
seeds first. Ctrl-C lets the batches under way finish and records them. A failing seed is recorded
alone, ends the run and prints the command that plays it again. A scenario that was played with 200
seeds or more must have reached all its marks.
"""

import argparse
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.testing.proofs import ROOT
from anabranch.testing.run_records import code_digest, load_rows, save_rows
from anabranch.testing.simulation.scenario import (
    SCENARIOS_PACKAGE,
    Outcome,
    Scenario,
    load_scenarios,
    missing_marks,
    run_seed,
)

RECORD: Final = ROOT / "tests" / "simulation" / "record.tsv"
COLUMNS: Final = ("scenario", "digest", "first", "seeds", "result", "seconds")
PASSED, FAILED = "passed", "failed"
_SIMULATION: Final = "anabranch.testing.simulation"
_BATCH_SEEDS: Final = 20
_MARKS_SEEDS: Final = 200
"""So many seeds of a scenario must reach all its marks; far above a set, which begins at seed 0."""
_INTERRUPTED: Final = 130


class Row(NamedTuple):
    """Neighbouring seeds that were played with one state of the code."""

    scenario: str
    digest: str
    first: int
    seeds: int
    result: str
    seconds: float

    @property
    def end(self) -> int:
        """The seed after the last."""
        return self.first + self.seeds


class Batch(NamedTuple):
    """What playing some seeds came to."""

    row: Row
    reached: Counter[str]
    failure: Outcome | None = None


def load_record(path: Path = RECORD) -> list[Row]:
    """Everything recorded so far."""
    return [
        Row(scenario, digest, int(first), int(seeds), result, float(seconds))
        for scenario, digest, first, seeds, result, seconds in load_rows(path, COLUMNS)
    ]


def save_record(rows: Iterable[Row], path: Path = RECORD) -> None:
    """Write the rows, neighbours joined."""
    fields = [
        (r.scenario, r.digest, str(r.first), str(r.seeds), r.result, f"{r.seconds:.1f}")
        for r in joined(rows)
    ]
    save_rows(path, COLUMNS, fields)


def joined(rows: Iterable[Row]) -> list[Row]:
    """The same seeds in fewer rows; the order of digests is kept, since it is that of time."""
    order: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        order.setdefault((row.scenario, row.digest), []).append(row)
    result: list[Row] = []
    for group in order.values():
        start = len(result)
        for row in sorted(group, key=lambda row: row.first):
            last = result[-1] if len(result) > start else None
            if last and last.result == row.result == PASSED and last.end == row.first:
                seeds, seconds = last.seeds + row.seeds, last.seconds + row.seconds
                result[-1] = last._replace(seeds=seeds, seconds=seconds)
            elif last != row:
                result.append(row)
    return result


def first_free(rows: Iterable[Row], scenario: str, digest: str) -> int:
    """The first seed that was not played with this state of the code."""
    seed = 0
    for row in sorted(rows, key=lambda row: row.first):
        if (row.scenario, row.digest) == (scenario, digest) and row.first <= seed:
            seed = max(seed, row.end)
    return seed


def _start_worker() -> None:
    # Ctrl-C is for the parent: a batch under way is finished, not thrown away.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger().addHandler(logging.NullHandler())


def play_batch(scenario: str, digest: str, first: int, seeds: int, load: Sequence[str]) -> Batch:
    """Play some seeds, up to the first that fails."""
    played = load_scenarios(*load)[scenario]
    began_s = time.monotonic()
    reached: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        outcome = run_seed(played, seed)
        reached += outcome.reached
        if outcome.failure:
            taken_s = time.monotonic() - began_s
            return Batch(Row(scenario, digest, seed, 1, FAILED, taken_s), reached, outcome)
    return Batch(Row(scenario, digest, first, seeds, PASSED, time.monotonic() - began_s), reached)


def present_digest(*load: str) -> str:
    """A fingerprint of the code that a simulation depends on."""
    return code_digest(SCENARIOS_PACKAGE, _SIMULATION, *load)


def unreached(played: Scenario, seeds: int, reached: Counter[str]) -> str:
    """What is wrong with so many seeds of a scenario; empty if nothing, or if they are too few."""
    missing = missing_marks(played, reached, seldom=True) if seeds >= _MARKS_SEEDS else []
    if not missing:
        return ""
    return f"{played.name} FAILED: none of {seeds:,} seeds reached {', '.join(missing)}"


class LongRun:
    """Keeps workers busy until the time is over, a seed fails, or somebody stops it."""

    def __init__(self, options: argparse.Namespace, scenarios: Sequence[str], path: Path) -> None:
        self._options = options
        self._scenarios = scenarios
        self._path = path
        self._digest = present_digest(*options.load)
        self._rows = load_record(path)
        self._next = {name: first_free(self._rows, name, self._digest) for name in scenarios}
        self._under_way: set[Future[Batch]] = set()
        self.failures: list[Outcome] = []
        self.played: Counter[str] = Counter()
        """How many seeds this run played, by scenario."""
        self.reached: dict[str, Counter[str]] = {name: Counter() for name in scenarios}

    def _submit(self, pool: ProcessPoolExecutor) -> None:
        name = min(self._scenarios, key=lambda name: self._next[name])
        first, seeds = self._next[name], self._options.batch
        self._next[name] += seeds
        load = tuple(self._options.load)
        self._under_way.add(pool.submit(play_batch, name, self._digest, first, seeds, load))

    def _collect(self, timeout_s: float | None) -> None:
        done, self._under_way = wait(self._under_way, timeout_s, return_when=FIRST_COMPLETED)
        for future in done:
            batch = future.result()
            self._rows.append(batch.row)
            self.played[batch.row.scenario] += batch.row.seeds
            self.reached[batch.row.scenario] += batch.reached
            if batch.failure is not None:
                self.failures.append(batch.failure)
            seeds_per_s = batch.row.seeds / max(batch.row.seconds, 0.001)
            print(
                f"{batch.row.scenario}: seeds {batch.row.first} to {batch.row.end - 1} "
                f"{batch.row.result}, {seeds_per_s:.1f} seeds/s",
                flush=True,
            )
        if done:
            save_record(self._rows, self._path)

    def run(self) -> bool:
        """Play; return whether somebody stopped it."""
        minutes = self._options.minutes
        end_s = None if minutes is None else time.monotonic() + minutes * 60
        # Not forked: a worker must not inherit what the parent has loaded and opened.
        pool = ProcessPoolExecutor(
            self._options.jobs, mp_context=get_context("spawn"), initializer=_start_worker
        )
        stopped = False
        try:
            while not self.failures and (end_s is None or time.monotonic() < end_s):
                while len(self._under_way) < self._options.jobs:
                    self._submit(pool)
                left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
                self._collect(left_s)
        except KeyboardInterrupt:
            stopped = True
            print("stopping: the batches under way are finished first", file=sys.stderr)
        while self._under_way:
            self._collect(None)
        pool.shutdown()
        return stopped


def totals(rows: Iterable[Row], digest: str) -> list[str]:
    """How many seeds have accrued per scenario, over all states of the code and with this one."""
    rows = list(rows)
    passed: Counter[str] = Counter()
    present: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for row in rows:
        (passed if row.result == PASSED else failed)[row.scenario] += row.seeds
        if row.digest == digest and row.result == PASSED:
            present[row.scenario] += row.seeds
    return [
        f"{name}: {passed[name]:,} seeds passed, {present[name]:,} of them with the present code, "
        f"{failed[name]} failed"
        for name in sorted({row.scenario for row in rows})
    ]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.sim_long",
        description="Play scenarios on and on, and record the seeds that passed.",
    )
    add = parser.add_argument
    add("--minutes", type=float, help="how long (default: until Ctrl-C)")
    add("--scenario", action="append", help="its name; default: all of them")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: %(default)s)")
    add("--batch", type=int, default=_BATCH_SEEDS, help="seeds at a time (default: %(default)s)")
    add("--load", action="append", default=[], help="module with more scenarios")
    add("--record", type=Path, default=RECORD, help="the record (default: the committed one)")
    add("--total", action="store_true", help="print how many seeds have accrued")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Play: 0 if all passed, 1 if a seed failed or a mark is missing, 2 unknown, 130 stopped."""
    options = _parse(arguments)
    if options.total:
        print(
            "\n".join(totals(load_record(options.record), present_digest(*options.load)))
            or "no seed recorded"
        )
        return 0
    scenarios = load_scenarios(*options.load)
    wanted = options.scenario or list(scenarios)
    unknown = [name for name in wanted if name not in scenarios]
    if unknown:
        print(f"no scenario {', '.join(unknown)}; there are: {', '.join(scenarios)}")
        return 2
    # As `make sim` does, so that the seed it prints replays.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    long_run = LongRun(options, wanted, options.record)
    stopped = long_run.run()
    for failure in long_run.failures:
        print(failure.failure)
        print(f"{failure.scenario} seed {failure.seed} FAILED; replay with: {failure.replay}")
    shortcomings = [
        unreached(scenarios[name], long_run.played[name], long_run.reached[name]) for name in wanted
    ]
    for line in filter(None, shortcomings):
        print(line)
    if long_run.failures or any(shortcomings):
        return 1
    return _INTERRUPTED if stopped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
