"""Rows of the goal map about speed: what was measured of them, and whether that is enough.

A benchmark that was run for the record leaves `benchmarks/results/NAME.json`, to be committed: of
each measure the ratios to whoever stood beside, taken within pairs, and a fingerprint of the code.
Other code takes nothing away from a measurement, but it is shown as stale. A figure that only a
long run has is taken from the committed record of drills.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from anabranch.errors import FormatError
from anabranch.testing.drill import DRILL_COLUMNS, DRILL_RECORD, PASSED
from anabranch.testing.proofs import ROOT
from anabranch.testing.run_records import load_rows

FORMAT: Final = "anabranch-measured"
VERSION: Final = 2
RESULTS: Final = "benchmarks/results"
PAIRS_MIN: Final = 3
"""A benchmark with fewer pairs leaves nothing to be committed."""
_BROKER: Final = (
    "anabranch/broker",
    "anabranch/ledgers",
    "anabranch/managed_ledger",
    "anabranch/runtime",
    "anabranch/server",
    "anabranch/wire",
)
_CODE: Final[Mapping[str, tuple[str, ...]]] = {
    "metadata": ("anabranch/metadata", "anabranch/runtime"),
    "metadata_replacement": ("anabranch/metadata", "anabranch/migrations", "anabranch/runtime"),
    "ledger": ("anabranch/journal", "anabranch/ledgers", "anabranch/runtime"),
    "bookkeeper": ("anabranch/ledgers", "anabranch/runtime"),
    "standalone": (*_BROKER, "anabranch/journal"),
    "cluster": _BROKER,
    "spark": ("pyspark_anabranch", *_BROKER, "anabranch/journal"),
    "spark_write_path": ("pyspark_anabranch", "anabranch/client", "anabranch/wire"),
}
"""Folders of the product that a benchmark is about, by its name or the first word of it."""
_KEPT: Final = frozenset({"spark_kafka"})
"""Benchmarks that no row is judged by, and whose figures are kept beside those of the others."""


class Bound(NamedTuple):
    """How large the median of a ratio must be, or may be."""

    goal: str
    benchmark: str
    measure: str
    beside: str
    least: float = 0.0
    most: float = float("inf")

    def is_met(self, ratio: float) -> bool:
        """Whether a ratio is within it."""
        return self.least <= ratio <= self.most


class DrillBound(NamedTuple):
    """How large a figure of the newest run of a drill may be, of runs that are large enough."""

    goal: str
    drill: str
    size: int
    figure: str
    most: float


def _metadata_bounds(benchmark: str) -> list[Bound]:
    single = [Bound("core.M12", benchmark, key, "raw", most=2.0) for key in ("get_us", "put_us")]
    many = ("gets", "puts", "written", "read")
    return single + [Bound("core.M12", benchmark, key, "raw", least=0.5) for key in many]


def _broker_bounds(benchmark: str) -> list[Bound]:
    rates = [f"{what}_{how}" for what in ("publish", "drain") for how in ("batched", "unbatched")]
    small = ("ready", "idle")
    return [
        *(Bound("core.B28", benchmark, rate, "pulsar", least=1.0) for rate in rates),
        *(Bound("core.B28", benchmark, cost, "pulsar", most=0.4) for cost in small),
    ]


BOUNDS: Final = (
    *_metadata_bounds("metadata_zookeeper"),
    *_metadata_bounds("metadata_oxia"),
    # The bare loops look for no access rights, so a copy that does is not judged by them.
    Bound("core.M12", "metadata_copy", "no_rights", "raw", least=0.5),
    Bound("core.M12", "metadata_copy", "unverified", "raw", least=0.5),
    Bound("core.L12", "ledger_append", "16 x 64 KiB", "plain loop", least=0.8),
    Bound("core.L12", "bookkeeper_append", "1000 x 1 KiB", "java v3", least=0.8),
    Bound("core.L12", "bookkeeper_append", "64 x 64 KiB", "java v3", least=0.8),
    *_broker_bounds("standalone"),
    *_broker_bounds("cluster"),
    Bound("454.A13", "metadata_replacement", "freeze", "pulsar", most=0.05),
    Bound("454.A13", "metadata_replacement", "lost", "pulsar", most=0.0),
    # Who stands beside is the rate that is wanted, 300,000 rows/s.
    Bound("spark.C18", "spark_write_path", "value", "wanted", least=1.0),
)

DRILL_BOUNDS: Final = (
    DrillBound("454.A13", "replace-large-metadata", 1_000_000, "freeze_s", most=1.0),
    DrillBound("454.A13", "replace-large-metadata", 1_000_000, "lost", most=0.0),
)


def code_of(benchmark: str, root: Path = ROOT) -> str:
    """A fingerprint of the code that a benchmark measures, and of itself."""
    folders = _CODE.get(benchmark) or _CODE[benchmark.partition("_")[0]]
    files = [path for folder in folders for path in (root / "src" / folder).rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted([*files, root / "benchmarks" / f"{benchmark}.py"]):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def save(
    benchmark: str, ratios: Mapping[tuple[str, str], Sequence[float]], root: Path = ROOT
) -> None:
    """Keep the ratios of a benchmark, by measure and by who stood beside, to be committed.

    Of a short run, and of most that no row is judged by, nothing is kept; nor of a measure that was
    not taken in enough pairs. What an earlier run has of a load that was left out stays.
    """
    enough = {key: some for key, some in ratios.items() if len(some) >= PAIRS_MIN}
    if not enough or benchmark not in {bound.benchmark for bound in BOUNDS} | _KEPT:
        return
    code = code_of(benchmark, root)
    found = [
        {
            "measure": measure,
            "beside": beside,
            "median": round(median(some), 3),
            "min": round(min(some), 3),
            "max": round(max(some), 3),
            "pairs": len(some),
            "code": code,
        }
        for (measure, beside), some in enough.items()
    ]
    before = (_load(benchmark, root) or {"ratios": []})["ratios"]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "cpus": os.cpu_count(),
        "ratios": [each for each in before if (each["measure"], each["beside"]) not in enough]
        + found,
    }
    path = root / RESULTS / f"{benchmark}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def _load(benchmark: str, root: Path) -> dict[str, Any] | None:
    path = root / RESULTS / f"{benchmark}.json"
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text())
    if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise FormatError(f"{path} is no measurement of version {VERSION}")
    return document


class Measured(NamedTuple):
    """What is known of a row."""

    met: bool
    lines: tuple[str, ...]
    """One per bound: what was measured, what is wanted."""


def measured_rows(
    root: Path = ROOT,
    bounds: Collection[Bound] = BOUNDS,
    drills: Collection[DrillBound] = DRILL_BOUNDS,
) -> dict[str, Measured]:
    """Every row that is judged by measurements."""
    judged = [(bound.goal, *_judge(bound, root)) for bound in bounds]
    judged += [(drill.goal, *_judge_drill(drill, root)) for drill in drills]
    rows: dict[str, Measured] = {}
    for goal, met, line in judged:
        before = rows.get(goal, Measured(True, ()))
        rows[goal] = Measured(before.met and met, (*before.lines, line))
    return rows


def _judge(bound: Bound, root: Path) -> tuple[bool, str]:
    wanted = f"at least {bound.least}" if bound.least else f"at most {bound.most}"
    what = f"{bound.benchmark}: {bound.measure} to {bound.beside}"
    document = _load(bound.benchmark, root)
    found = [
        item
        for item in (document or {}).get("ratios", ())
        if (item["measure"], item["beside"]) == (bound.measure, bound.beside)
    ]
    if document is None or not found:
        return False, f"{what}: not measured, wanted {wanted}"
    (item,) = found
    met = bound.is_met(item["median"])
    stale = "" if item["code"] == code_of(bound.benchmark, root) else ", stale"
    spread = f"{item['median']} ({item['min']} to {item['max']}, {item['pairs']} pairs{stale})"
    return met, f"{what}: {spread}, wanted {wanted}: {'met' if met else 'not met'}"


def _judge_drill(bound: DrillBound, root: Path) -> tuple[bool, str]:
    what = f"{bound.drill} of {bound.size:,}: {bound.figure}"
    wanted = f"wanted at most {bound.most:g}"
    runs = [
        (result, dict(figure.split("=", 1) for figure in figures.split()))
        for name, _, size, _, result, figures in load_rows(root / DRILL_RECORD, DRILL_COLUMNS)
        if name == bound.drill and int(size) >= bound.size
    ]
    if not runs:
        return False, f"{what}: not measured, {wanted}"
    result, figures = runs[-1]
    if bound.figure not in figures:
        return False, f"{what}: {result} without it, {wanted}: not met"
    found = float(figures[bound.figure])
    met = result == PASSED and found <= bound.most
    return met, f"{what}: {found:g} ({result}), {wanted}: {'met' if met else 'not met'}"
