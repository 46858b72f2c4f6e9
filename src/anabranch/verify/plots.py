"""Plots over time as inline SVG: lines, bars of trouble, marks of events. Pure.

Colours come from the page's style by class, so that a plot is right on light and on dark.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

_WIDTH: Final = 900
_HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 30


class Line(NamedTuple):
    """One series: its name, its class in the page's style, and its points."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


class Mark(NamedTuple):
    """Something at one moment, in seconds from the start."""

    at: float
    text: str
    style: str


class Window(NamedTuple):
    """A stretch of declared trouble, in seconds from the start."""

    begin: float
    end: float


def plot(
    name: str,
    lines: Sequence[Line],
    *,
    seconds: float,
    unit: str,
    is_log: bool = False,
    marks: Sequence[Mark] = (),
    windows: Sequence[Window] = (),
) -> str:
    """Return one plot."""
    axes = _Axes(seconds or 1.0, [y for line in lines for _, y in line.points], is_log)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">',
        f"<title>{escape(name)}</title>",
    ]
    for window in windows:
        left, right = axes.x(window.begin), axes.x(min(window.end, axes.seconds))
        parts.append(
            f'<rect class="window" x="{left:.1f}" y="{_TOP}" width="{max(1.0, right - left):.1f}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>declared window</title></rect>'
        )
    parts += axes.grid(unit)
    for mark in marks:
        x = axes.x(mark.at)
        parts.append(
            f'<line class="mark {mark.style}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}"'
            f' y2="{_HEIGHT - _BOTTOM}"><title>{escape(mark.text)}</title></line>'
        )
    for line in lines:
        points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in line.points)
        parts.append(
            f'<polyline class="line {line.style}" points="{points}">'
            f"<title>{escape(line.name)}</title></polyline>"
        )
    return "".join([*parts, "</svg>"])


class _Axes:
    """Where a value stands on the page."""

    def __init__(self, seconds: float, values: Sequence[float], is_log: bool) -> None:
        self.seconds = seconds
        positive = [value for value in values if value > 0]
        self._is_log = is_log and bool(positive)
        if self._is_log:
            self._low = 10 ** math.floor(math.log10(min(positive)))
            self._high = 10 ** math.ceil(math.log10(max(positive) * 1.0001))
        else:
            self._low, self._high = 0.0, _round_up(max(values, default=1.0))

    def x(self, seconds: float) -> float:
        share = min(1.0, max(0.0, seconds / self.seconds))
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        if self._is_log:
            value = max(value, self._low)
            share = math.log(value / self._low) / math.log(self._high / self._low)
        else:
            share = value / self._high
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self, unit: str) -> list[str]:
        """Lines and words of both axes."""
        if self._is_log:
            steps = round(math.log10(self._high / self._low))
            values = [self._low * 10**step for step in range(steps + 1)]
        else:
            values = [self._high * step / 4 for step in range(5)]
        parts = []
        for value in values:
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}"'
                f' y2="{y:.1f}"/><text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}"'
                f' text-anchor="end">{value:,.6g}{escape(unit)}</text>'
            )
        for step in range(6):
            at = self.seconds * step / 5
            parts.append(
                f'<text class="tick" x="{self.x(at):.1f}" y="{_HEIGHT - 10}"'
                f' text-anchor="middle">{at:,.4g} s</text>'
            )
        return parts


def _round_up(value: float) -> float:
    """The next number that reads well."""
    if value <= 0:
        return 1.0
    power: float = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.9999)
