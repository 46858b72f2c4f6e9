"""What the files of the suite showed, as a table and as JSON. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

FORMAT: Final = "anabranch-python-client-suite"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended."""

    test: str
    outcome: str
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class FileRun:
    """How one file went; `remark` if it did not end by itself."""

    file: str
    outcomes: tuple[Outcome, ...]
    remark: str = ""

    def count(self, outcome: str) -> int:
        """How many of its tests ended so."""
        return sum(found.outcome == outcome for found in self.outcomes)


def parse_outcomes(lines: Iterable[str]) -> tuple[Outcome, ...]:
    """Read what was written while a file ran; a last line that was cut off is left out."""
    found = []
    for line in lines:
        try:
            found.append(Outcome(**json.loads(line)))
        except json.JSONDecodeError:
            break
    return tuple(found)


def table(runs: Sequence[FileRun]) -> str:
    """One row per file, one for all, and below them the tests that did not pass."""
    columns = ("passed", "failed", "skipped")
    rows = [["file", *columns, "seconds"]]
    for run in runs:
        counts = [str(run.count(column)) for column in columns]
        seconds = sum(outcome.seconds for outcome in run.outcomes)
        rows.append([run.file, *counts, f"{seconds:.0f}"])
    totals = [str(sum(run.count(column) for run in runs)) for column in columns]
    seconds = sum(outcome.seconds for run in runs for outcome in run.outcomes)
    rows.append(["all", *totals, f"{seconds:.0f}"])
    width = max(len(row[0]) for row in rows)
    lines = [row[0].ljust(width) + "".join(cell.rjust(9) for cell in row[1:]) for row in rows]
    for run in runs:
        if run.remark:
            lines.append(f"{run.file}: {run.remark}")
        for outcome in run.outcomes:
            if outcome.outcome != "passed":
                last = outcome.why.strip().rpartition("\n")[2]
                lines.append(f"{outcome.outcome}: {outcome.test}: {last}")
    return "\n".join(lines)


def document(runs: Sequence[FileRun], client: str) -> str:
    """Everything, as JSON."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "client": client,
            "files": [asdict(run) for run in runs],
        },
        indent=1,
    )
