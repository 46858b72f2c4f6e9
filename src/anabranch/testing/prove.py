"""`make prove`: put each planted bug in place and expect the tests that name it to go red.

    python -m anabranch.testing.prove [--all] [--small] [--minutes M] [--jobs N] [NAME ...]

A proof is a test that fails with the bug and passes without it. Only missing and stale proofs are
made, unless names of bugs or `--all` ask for more; `tests/planted_record.tsv` keeps them. A test
with parameters is one test: one red case is enough. A failure counts only in the test's own body,
and only if it looks like the test noticed something: a bug that raises by its own mistake proves
nothing, and is reported. A seed that found a bug is played again without it, and must pass.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from anabranch.errors import AnabranchError, InputError
from anabranch.testing.claims import collect_claims
from anabranch.testing.goal_results import Claim, Outcome, load_results
from anabranch.testing.planted import PlantedBug, load_bugs
from anabranch.testing.proofs import (
    RECORD,
    ROOT,
    Key,
    Proof,
    digest_of,
    function_of,
    load_record,
    save_record,
    valid_proofs,
)
from anabranch.testing.smallness import check_smallness

SEEDS: Final = 500
SEED_MINUTES: Final = 5.0
_RUN_S_MAX: Final = 420
"""For each test of a run of pytest: a hunt with seeds, and time to start and stop."""
_OVERTIME_S: Final = 60.0
"""What was begun in time is given so much longer."""
_START_S: Final = 4.0
"""What starting pytest costs, for a look ahead."""
_GUESS_S: Final = 10.0
"""How long a proof takes that was never made."""
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:xdist"),
    *("-p", "no:cacheprovider", "--no-results"),
)
_INTERRUPTED: Final = 130


class NotProven(AnabranchError):
    """A bug was not noticed, or not in a way that proves anything."""


@dataclass(slots=True)
class Candidate:
    """A test function that claims to notice a bug."""

    bug: PlantedBug
    function: str
    cases: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """What the record knows it by."""
        return self.bug.name, self.function


def candidates_of(claims: Iterable[Claim], bugs: Mapping[str, PlantedBug]) -> dict[Key, Candidate]:
    """Everything that wants to be proven. Tests with real peers need no bug to be a proof."""
    found: dict[Key, Candidate] = {}
    for claim in claims:
        if claim.broken_by and not claim.peer:
            key = claim.broken_by, function_of(claim.test)
            candidate = found.setdefault(key, Candidate(bugs[claim.broken_by], key[1]))
            if claim.test not in candidate.cases:
                candidate.cases.append(claim.test)
    return dict(sorted(found.items()))


Note = Mapping[str, Any]
"""How one test failed, as `planted_run` reports it."""


@cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    """Where all runs keep compiled modules: most of the time of a short run would go into them."""
    return tempfile.TemporaryDirectory(prefix="prove-bytecode-")


def _environment() -> dict[str, str]:
    if "PYTHONDONTWRITEBYTECODE" not in os.environ:
        return dict(os.environ)
    kept = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": _bytecode().name}


class OutOfTime(Exception):
    """The time for all proofs is over, and this one was not made."""


def _pytest(
    candidates: Sequence[Candidate], *options: str, end_s: float | None = None
) -> tuple[list[Note], int, str]:
    """Run all their cases in a process of its own; what failed, exit code, end of the output.

    Raises:
        OutOfTime: if that was not done soon after `end_s`.
    """
    # Sorted as pytest would run them, and without repeats.
    cases = sorted({case for candidate in candidates for case in candidate.cases})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [*_PYTEST, "--planted-report", str(report), *options, *cases]
        left_s = math.inf if end_s is None else end_s + _OVERTIME_S - time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=max(0.0, min(_RUN_S_MAX * len(candidates), left_s)),
            )
        except subprocess.TimeoutExpired:
            if left_s < _RUN_S_MAX * len(candidates):
                raise OutOfTime from None
            return [], -1, "the tests did not come to an end"
        notes = json.loads(report.read_text()) if report.exists() else []
    return notes, done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


def verdict_on(note: Note | None, *, exit_code: int, output: str) -> Note:
    """What a test's first failure with the bug in place is worth.

    Raises:
        NotProven: if there is none, or not for a reason that counts.
    """
    if note is None and exit_code in (0, 1):
        raise NotProven("no test noticed it")
    if note is None:
        raise NotProven(f"the tests did not run:\n{output}")
    if note["phase"] != "call":
        raise NotProven(f"the test failed in its {note['phase']}, not itself: {note['error']}")
    if note["doubt"]:
        raise NotProven(f"suspicious: {note['doubt']}\n({note['error']})")
    return note


def green_by_results(results: Mapping[Claim, Outcome]) -> set[str]:
    """The test functions all of whose cases passed in the newest run here."""
    passed: dict[str, bool] = {}
    for claim, outcome in results.items():
        function = function_of(claim.test)
        passed[function] = passed.get(function, True) and outcome is Outcome.PASSED
    return {function for function, is_green in passed.items() if is_green}


def run_without_bugs(candidates: Iterable[Candidate], jobs: int) -> dict[str, str]:
    """By test function: empty if it is green as it should be, else how it failed."""
    by_function: dict[str, Candidate] = {}
    for candidate in candidates:
        known = by_function.setdefault(
            candidate.function, Candidate(candidate.bug, candidate.function)
        )
        known.cases += candidate.cases
    every = list(by_function.values())

    def run(share: list[Candidate]) -> dict[str, str]:
        notes, exit_code, output = _pytest(share)
        failed = {function: note["error"] for function, note in first_by_function(notes).items()}
        ran = exit_code in (0, 1)
        return {c.function: failed.get(c.function, "" if ran else output) for c in share}

    shares = [share for index in range(jobs) if (share := every[index::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        return {name: text for found in pool.map(run, shares) for name, text in found.items()}


def prove(
    bug: str, candidates: Sequence[Candidate], end_s: float | None = None
) -> dict[Key, Proof | NotProven]:
    """Try all tests that claim to notice one bug; they are known to be green without it.

    Raises:
        OutOfTime: if that was not done soon after `end_s`.
    """
    hunt = ("--seeds", str(SEEDS), "--seed-minutes", str(SEED_MINUTES))
    notes, exit_code, output = _pytest(candidates, "--planted", bug, *hunt, end_s=end_s)
    first = first_by_function(notes)
    results: dict[Key, Proof | NotProven] = {}
    for candidate in candidates:
        found = first.get(candidate.function)
        try:
            note = verdict_on(found, exit_code=exit_code, output=output)
            if note["hunted"]:
                _replay_without_bug(candidate, note)
        except NotProven as error:
            results[candidate.key] = error
            continue
        digest = digest_of(candidate.bug, candidate.function)
        seed, seconds = str(note["seed"]), float(note["seconds"])
        results[candidate.key] = Proof(*candidate.key, digest, seed, seconds)
    return results


def _replay_without_bug(candidate: Candidate, note: Note) -> None:
    """Play the seed at which a hunt ended as it is: most such seeds were never played so.

    Raises:
        NotProven: if it fails without the bug too.
    """
    case = Candidate(candidate.bug, candidate.function, [str(note["test"])])
    notes, exit_code, output = _pytest([case], "--only-seed", str(note["seed"]))
    if exit_code != 0:
        error = notes[0]["error"] if notes else output
        raise NotProven(f"seed {note['seed']} fails without the bug: {error}")


def first_by_function(notes: Iterable[Note]) -> dict[str, Note]:
    """The first failure of each test."""
    found: dict[str, Note] = {}
    for note in notes:
        found.setdefault(function_of(note["test"]), note)
    return found


class Progress:
    """Says how far it is and how long it will take."""

    def __init__(self, wanted: Sequence[Candidate], record: Mapping[Key, Proof], jobs: int) -> None:
        self._left = {
            c.key: record[c.key].seconds + _START_S if c.key in record else _GUESS_S for c in wanted
        }
        self._jobs = jobs
        self._total = len(wanted)

    def done(self, candidate: Candidate, words: str) -> None:
        """One more is finished."""
        del self._left[candidate.key]
        left_s = sum(self._left.values()) / self._jobs
        eta = f", about {left_s / 60:.0f} min left" if left_s > 60 else ""
        number = self._total - len(self._left)
        print(
            f"[{number}/{self._total}{eta}] {candidate.bug.name}: {words}  {candidate.function}",
            flush=True,
        )


def prove_all(
    wanted: Sequence[Candidate],
    record: dict[Key, Proof],
    *,
    jobs: int,
    end_s: float | None,
    path: Path,
) -> tuple[int, int]:
    """Prove what is wanted, keeping each proof; return how many failed and were not tried."""
    progress = Progress(wanted, record, jobs)
    by_bug: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in wanted:
        by_bug[candidate.bug.name].append(candidate)
    failed = left_out = 0

    def attempt(bug: str) -> dict[Key, Proof | NotProven]:
        if end_s is not None and time.monotonic() > end_s:
            return {}
        try:
            return prove(bug, by_bug[bug], end_s)
        except OutOfTime:
            return {}

    pool = ThreadPoolExecutor(jobs)
    try:
        for bug, results in zip(by_bug, pool.map(attempt, by_bug), strict=True):
            for candidate in by_bug[bug]:
                result = results.get(candidate.key)
                if isinstance(result, Proof):
                    record[candidate.key] = result
                    where = "" if result.seed == "-" else f" at seed {result.seed}"
                    progress.done(candidate, f"found{where} in {result.seconds:.1f} s")
                elif result is None:
                    left_out += 1
                else:
                    failed += 1
                    progress.done(candidate, f"NOT PROVEN: {result}")
            save_record(record, path)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return failed, left_out


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.prove",
        description="Show that each test which names a planted bug notices it.",
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="only these bugs, also if their proof holds")
    add("--all", action="store_true", help="make every proof again")
    add("--small", action="store_true", help="see how many other tests each bug breaks instead")
    add("--after-tests", action="store_true", help="the tests have just run here: believe them")
    add("--minutes", type=float, help="end about then; the rest stays unproven")
    add("--jobs", type=int, default=2, help="at a time (default: %(default)s)")
    return parser.parse_args(arguments)


def _chosen(
    options: argparse.Namespace,
    candidates: Mapping[Key, Candidate],
    valid: set[Key],
    bugs: Mapping[str, PlantedBug],
) -> list[Candidate]:
    unknown = [name for name in options.names if name not in bugs]
    if unknown:
        raise InputError(f"no planted bug {', '.join(unknown)}; there are: {', '.join(bugs)}")
    if options.names:
        return [c for c in candidates.values() if c.bug.name in options.names]
    return [c for key, c in candidates.items() if options.all or key not in valid]


def main(arguments: Sequence[str]) -> int:
    """Prove what is asked for: 0 all found, 1 some not, 2 wrong arguments, 130 if stopped."""
    options = _parse(arguments)
    end_s = None if options.minutes is None else time.monotonic() + options.minutes * 60
    bugs = load_bugs()
    try:
        if options.small:
            return check_smallness(bugs, options.names)
        candidates = candidates_of(collect_claims(ROOT), bugs)
        record = {key: proof for key, proof in load_record().items() if key in candidates}
        valid = valid_proofs(bugs, record.values())
        wanted = _chosen(options, candidates, valid, bugs)
        held = len(valid - {candidate.key for candidate in wanted})
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    _report_unused(bugs, candidates)
    try:
        green = green_by_results(load_results(ROOT)) if options.after_tests else set()
        red_already = _without_bugs([c for c in wanted if c.function not in green], options.jobs)
        wanted = [c for c in wanted if c.function not in red_already]
        failed, left_out = prove_all(wanted, record, jobs=options.jobs, end_s=end_s, path=RECORD)
    except KeyboardInterrupt:
        print("stopped; the proofs reported so far are recorded", file=sys.stderr)
        return _INTERRUPTED
    save_record(record)
    proven = len(wanted) - failed - left_out
    print(f"{proven} proofs made, {held} held already, {failed} not made")
    if left_out:
        print(f"{left_out} were not tried for lack of time: their goals are claimed only")
    return 1 if failed or red_already else 0


def _without_bugs(candidates: Sequence[Candidate], jobs: int) -> set[str]:
    """Run tests as they are; return those that fail already, having said so."""
    if not candidates:
        return set()
    functions = {candidate.function for candidate in candidates}
    print(f"running {len(functions)} tests without bugs first", flush=True)
    failures = {name: text for name, text in run_without_bugs(candidates, jobs).items() if text}
    for name, text in failures.items():
        print(f"NOT PROVEN: {name} fails without a bug: {text}", flush=True)
    return set(failures)


def _report_unused(bugs: Mapping[str, PlantedBug], candidates: Iterable[Key]) -> None:
    used = {bug for bug, _ in candidates}
    unused = [name for name in bugs if name not in used]
    if unused:
        print(f"no test claims to notice: {', '.join(unused)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
