"""What a benchmark found, as a table and as JSON. Pure but for `save`.

A pair is one run of each side, one after the other, also where there are more than two; the ratio
is taken within a pair, so that a machine which slows down between pairs moves all sides alike.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

FORMAT: Final = "anabranch-benchmark"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured, and which way is better."""

    key: str
    title: str
    unit: str
    higher_is_better: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; `at_least` if the load ran out before the server did."""

    value: float
    at_least: bool = False


@dataclass(slots=True)
class SideRun:
    """One run of one side: its figures by measure, the load of the machine, what to remark."""

    side: str
    figures: dict[str, Figure] = field(default_factory=dict)
    load_averages: list[float] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """All runs of one benchmark, in the order they were made: A B A B …."""

    name: str
    measures: tuple[Measure, ...]
    sides: tuple[str, ...]
    machine: dict[str, str]
    runs: list[SideRun] = field(default_factory=list)

    def _pairs(self) -> list[list[SideRun]]:
        """The runs cut into pairs, without a last one that lacks a side."""
        width = len(self.sides)
        whole = len(self.runs) // width * width
        return [self.runs[start : start + width] for start in range(0, whole, width)]

    def ratios(self, key: str, other: int = 1) -> list[float]:
        """First side over another one, one per pair in which both have it, and not 0."""
        return [
            pair[0].figures[key].value / pair[other].figures[key].value
            for pair in self._pairs()
            if key in pair[0].figures
            and key in pair[other].figures
            and pair[other].figures[key].value
        ]

    def _cells(self, measure: Measure) -> list[str]:
        cells = [f"{measure.title}, {measure.unit}"]
        for position in range(len(self.sides)):
            figures = [
                pair[position].figures[measure.key]
                for pair in self._pairs()
                if measure.key in pair[position].figures
            ]
            cells.append(_figures_cell(figures))
        others = range(1, len(self.sides))
        cells += [_spread(self.ratios(measure.key, other), "x") for other in others]
        cells.append("higher" if measure.higher_is_better else "lower")
        return cells

    def table(self) -> str:
        """One table: a row per measure, medians with minimum and maximum."""
        pairs = self._pairs()
        loads = [load for run in self.runs for load in run.load_averages]
        head = ["median (min-max)", *self.sides]
        peers = self.sides[1:]
        head += ["ratio"] if len(peers) == 1 else [f"to {peer}" for peer in peers]
        rows = [[*head, "better"], *(self._cells(measure) for measure in self.measures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            f"{self.name}: {' beside '.join(self.sides)}, {len(pairs)} pair(s), "
            f"1-minute load {min(loads, default=0):.1f} to {max(loads, default=0):.1f}"
        ]
        for row in rows:
            first, *others = zip(row, widths, strict=True)
            line = first[0].ljust(first[1])
            lines.append("  ".join([line, *(cell.rjust(width) for cell, width in others)]))
        lines += [f"remark: {run.side}: {text}" for run in self.runs for text in run.remarks]
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Write everything, raw figures included, so that any other table can be made later."""
        document = {"format": FORMAT, "version": VERSION, **asdict(self)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _spread(values: Sequence[float], suffix: str = "") -> str:
    if not values:
        return "-"
    middle = _number(median(values)) + suffix
    if len(values) == 1:
        return middle
    return f"{middle} ({_number(min(values))}-{_number(max(values))})"


def _figures_cell(figures: Sequence[Figure]) -> str:
    bound = ">= " if any(figure.at_least for figure in figures) else ""
    return bound + _spread([figure.value for figure in figures])
