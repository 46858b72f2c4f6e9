"""`python -m anabranch.testing.simulate`: play scenarios with many seeds, or replay one.

A failing seed ends with the one command that plays it again. Hashing of strings is fixed before
anything runs, so that code which wrongly depends on it still replays; a test shows that none does.
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter

from anabranch.testing.simulation.scenario import (
    SET_SEEDS,
    Outcome,
    Scenario,
    load_scenarios,
    missing_marks,
    run_seed,
)

_PROGRESS_SEEDS = 10
_INTERRUPTED = 130


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m anabranch.testing.simulate")
    parser.add_argument("--scenario", action="append", help="its name; default: all of them")
    parser.add_argument("--seeds", type=int, default=SET_SEEDS, help="how many seeds to play")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this seed alone")
    parser.add_argument("--load", action="append", default=[], help="module with more scenarios")
    parser.add_argument("--verbose", action="store_true", help="print the digest of every seed")
    parser.add_argument("--trace", help="write every line of the trace to this file")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios")
    return parser.parse_args(arguments)


def _fix_hashing() -> None:
    if "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _report_failure(outcome: Outcome) -> None:
    print(f"{outcome.scenario} seed {outcome.seed} FAILED at {outcome.virtual_s:.3f} virtual s")
    print("last lines of the trace:")
    for line in outcome.tail:
        print(f"  {line}", end="")
    print(outcome.failure)
    print(f"digest {outcome.digest}")
    print(f"replay with: {outcome.replay}")


def _play(played: Scenario, seeds: range, options: argparse.Namespace) -> bool:
    reached: Counter[str] = Counter()
    virtual_s = 0.0
    began_s = time.perf_counter()
    for done, seed in enumerate(seeds):
        if done and done % _PROGRESS_SEEDS == 0:
            print(f"{played.name}: {done} of {len(seeds)} seeds passed", file=sys.stderr)
        if options.trace:
            with open(options.trace, "w", encoding="utf-8") as file:
                outcome = run_seed(played, seed, listener=file.write)
        else:
            outcome = run_seed(played, seed)
        reached += outcome.reached
        virtual_s += outcome.virtual_s
        if outcome.failure:
            _report_failure(outcome)
            return False
        if options.verbose:
            print(f"{played.name} {seed} {outcome.digest}")
    taken_s = time.perf_counter() - began_s
    print(
        f"{played.name}: {len(seeds)} seeds passed, {len(seeds) / taken_s:.1f} seeds/s, "
        f"{virtual_s:.0f} virtual s"
    )
    for mark, times in sorted(reached.items()):
        print(f"  {times:>9} {mark}")
    is_set = seeds.start == 0 and len(seeds) >= played.set_seeds
    missing = missing_marks(played, reached) if is_set else []
    if missing:
        print(f"{played.name} FAILED: no seed reached {', '.join(missing)}")
    return not missing


def main(arguments: list[str]) -> int:
    """Play what the arguments ask for; 0 if all passed, 1 if not, 2 if unknown, 130 if stopped."""
    options = _parse(arguments)
    scenarios = load_scenarios(*options.load)
    if options.list:
        print("\n".join(scenarios))
        return 0
    wanted = options.scenario or list(scenarios)
    unknown = [name for name in wanted if name not in scenarios]
    if unknown or not wanted:
        print(f"no scenario {', '.join(unknown)}; there are: {', '.join(scenarios) or 'none'}")
        return 2
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        seeds = range(options.start, options.start + options.seeds)
    try:
        results = [_play(scenarios[name], seeds, options) for name in wanted]
    except KeyboardInterrupt:
        print("stopped; the seeds reported so far passed", file=sys.stderr)
        return _INTERRUPTED
    return 0 if all(results) else 1


if __name__ == "__main__":
    _fix_hashing()
    # A simulated server complains of the faults it is given; a verdict should not drown in that.
    logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(main(sys.argv[1:]))
