"""Figures for Prometheus: what a sample is and how the page of them is written.

Pure. Whoever has figures offers a `MetricSource`; nothing is registered globally.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LINES_PER_SLICE: Final = 500


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure with all its samples."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    samples: Iterable["Sample"]
    """Read once, and not before it is written: there may be one for every topic."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value under its labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    """Of the name: what the samples of a histogram differ by."""


STILL_COUNTING: Final = Sample(0.0)
"""Stands among the samples where one takes long to be made: others may have the loop here."""
MetricSource = Callable[[], Iterable[Metric]]


def gauge(name: str, help_text: str, value: float, **labels: str) -> Metric:
    """Return a figure that may go up and down, with one sample."""
    return Metric(name, "gauge", help_text, (Sample(value, labels),))


def counter(name: str, help_text: str, value: float, **labels: str) -> Metric:
    """Return a figure that only grows, with one sample."""
    return Metric(name, "counter", help_text, (Sample(value, labels),))


def histogram(
    name: str, help_text: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Metric:
    """Return how values are spread: `counts` has those up to each bound, and those above."""
    samples, so_far = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        so_far += count
        samples.append(Sample(so_far, {"le": bound}, "_bucket"))
    samples += [Sample(total, suffix="_sum"), Sample(so_far, suffix="_count")]
    return Metric(name, "histogram", help_text, samples)


def render(metrics: Iterable[Metric], *, lines_max: int = LINES_PER_SLICE) -> Iterator[str]:
    """Write the page in Prometheus' text format, in slices: others may have the loop in between."""
    lines: list[str] = []
    for line in _lines(metrics):
        lines.append(line)
        if len(lines) == lines_max:
            yield "".join(lines)
            lines = []
    yield "".join(lines)


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        yield f"# HELP {metric.name} {_escape(metric.help, quotes=False)}\n"
        yield f"# TYPE {metric.name} {metric.kind}\n"
        for sample in metric.samples:
            if sample is STILL_COUNTING:
                yield ""
                continue
            yield f"{metric.name}{sample.suffix}{_labels(sample.labels)} {_number(sample.value)}\n"


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
