"""Figures for Prometheus: what a sample is and how the page of them is written.

Pure. Whoever has figures offers a `MetricSource`; nothing is registered globally.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure with all its samples."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: tuple["Sample", ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value under its labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


MetricSource = Callable[[], Iterable[Metric]]


def gauge(name: str, help_text: str, value: float, **labels: str) -> Metric:
    """Return a figure that may go up and down, with one sample."""
    return Metric(name, "gauge", help_text, (Sample(value, labels),))


def counter(name: str, help_text: str, value: float, **labels: str) -> Metric:
    """Return a figure that only grows, with one sample."""
    return Metric(name, "counter", help_text, (Sample(value, labels),))


def render(metrics: Iterable[Metric]) -> str:
    """Write the page in Prometheus' text format."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [f"{metric.name}{_labels(s.labels)} {_number(s.value)}" for s in metric.samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{key}="{_escape(value, quotes=True)}"' for key, value in labels.items())
    return f"{{{pairs}}}"


def _escape(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
