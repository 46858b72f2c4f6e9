"""`make prove`: put each planted bug in place and expect the tests that name it to go red.

    python -m anabranch.testing.prove [--all] [--small] [--minutes M] [--jobs N] [NAME ...]

A proof is a test that fails with the bug and passes without it. Only missing and stale proofs are
made, unless names of bugs or `--all` ask for more; `tests/planted_record.tsv` keeps them. A test
with parameters is one test: one red case is enough. A failure counts only in the test's own body,
and only if it looks like the test noticed something: a bug that raises by its own mistake proves
nothing, and is reported.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anabranch.errors import AnabranchError, InputError
from anabranch.testing.claims import collect_claims
from anabranch.testing.goal_results import Claim
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
"""One run of pytest: a hunt with seeds, and time to start and stop."""
_GUESS_S: Final = 8.0
"""How long a proof takes that was never made, until some were."""
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


def _pytest(cases: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    # One process each: a bug must not leak into the next proof.
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-x", "-n", "0"]
    command += ["-p", "no:cacheprovider", "--no-results", *options, *cases]
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_RUN_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise NotProven(f"the tests did not end within {_RUN_S_MAX} s") from error


def verdict_on(notes: Sequence[Mapping[str, Any]], *, exit_code: int, output: str) -> str:
    """The seed at which a run with a bug went red, or "-".

    Raises:
        NotProven: if the run was not red, or not for a reason that counts.
    """
    if exit_code == 0:
        raise NotProven("no test noticed it")
    if not notes:
        last = "\n".join(output.splitlines()[-15:])
        raise NotProven(f"the tests did not run at all:\n{last}")
    first = notes[0]
    if first["phase"] != "call":
        raise NotProven(f"the test failed in its {first['phase']}, not itself: {first['error']}")
    if first["doubt"]:
        raise NotProven(f"suspicious: {first['doubt']}\n({first['error']})")
    return str(first["seed"])


def prove(candidate: Candidate) -> Proof:
    """Red with the bug, green without.

    Raises:
        NotProven: if it is not so.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        red = _pytest(
            candidate.cases,
            *("--planted", candidate.bug.name, "--planted-report", str(report)),
            *("--seeds", str(SEEDS), "--seed-minutes", str(SEED_MINUTES)),
        )
        notes = json.loads(report.read_text()) if report.exists() else []
    seed = verdict_on(notes, exit_code=red.returncode, output=red.stdout + red.stderr)
    taken_s = time.monotonic() - began_s
    green = _pytest(candidate.cases)
    if green.returncode != 0:
        last = "\n".join(green.stdout.splitlines()[-15:])
        raise NotProven(f"the test fails without the bug too:\n{last}")
    digest = digest_of(candidate.bug, candidate.function)
    return Proof(candidate.bug.name, candidate.function, digest, seed, taken_s)


class Progress:
    """Says how far it is and how long it will take."""

    def __init__(self, wanted: Sequence[Candidate], record: Mapping[Key, Proof], jobs: int) -> None:
        self._left = {c.key: record[c.key].seconds if c.key in record else _GUESS_S for c in wanted}
        self._jobs = jobs
        self._total = len(wanted)

    def done(self, candidate: Candidate, words: str) -> None:
        """One more is finished."""
        del self._left[candidate.key]
        left_s = 2 * sum(self._left.values()) / self._jobs
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
    minutes: float | None,
    path: Path,
) -> tuple[list[str], int]:
    """Prove what is wanted, keeping each proof; return what failed, and how many were not tried."""
    progress = Progress(wanted, record, jobs)
    end_s = time.monotonic() + minutes * 60 if minutes is not None else None
    failed: list[str] = []
    left_out = 0

    def attempt(candidate: Candidate) -> Proof | NotProven | None:
        if end_s is not None and time.monotonic() > end_s:
            return None
        try:
            return prove(candidate)
        except NotProven as error:
            return error

    pool = ThreadPoolExecutor(jobs)
    try:
        for candidate, result in zip(wanted, pool.map(attempt, wanted), strict=True):
            if isinstance(result, Proof):
                record[result.bug, result.test] = result
                save_record(record, path)
                where = "" if result.seed == "-" else f" at seed {result.seed}"
                progress.done(candidate, f"found{where} in {result.seconds:.1f} s")
            elif result is None:
                left_out += 1
            else:
                progress.done(candidate, f"NOT PROVEN: {result}")
                failed.append(f"{candidate.bug.name}: {candidate.function}: {result}")
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
    add("--minutes", type=float, help="begin no proof after so long; the rest stays unproven")
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
    bugs = load_bugs()
    try:
        if options.small:
            return check_smallness(bugs, options.names)
        candidates = candidates_of(collect_claims(ROOT), bugs)
        record = {key: proof for key, proof in load_record().items() if key in candidates}
        wanted = _chosen(options, candidates, valid_proofs(bugs, record.values()), bugs)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    _report_unused(bugs, candidates)
    try:
        failed, left_out = prove_all(
            wanted, record, jobs=options.jobs, minutes=options.minutes, path=RECORD
        )
    except KeyboardInterrupt:
        print("stopped; the proofs reported so far are recorded", file=sys.stderr)
        return _INTERRUPTED
    save_record(record)
    held = len(candidates) - len(wanted)
    proven = len(wanted) - len(failed) - left_out
    print(f"{proven} proofs made, {held} held already, {len(failed)} bugs not noticed")
    if left_out:
        print(f"{left_out} were not tried for lack of time: their goals are claimed only")
    return 1 if failed else 0


def _report_unused(bugs: Mapping[str, PlantedBug], candidates: Mapping[Key, Candidate]) -> None:
    by_bug = defaultdict(list)
    for name, function in candidates:
        by_bug[name].append(function)
    unused = [name for name in bugs if name not in by_bug]
    if unused:
        print(f"no test claims to notice: {', '.join(unused)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
