"""A run over time, in bounded memory: rates, latencies, gaps and events. Pure.

Time is cut into at most so many spans; when a run gets longer, two neighbours become one.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import REPORT_EVENTS_MAX, REPORT_GAPS_MAX, REPORT_SPANS_MAX
from anabranch.verify.records import (
    CONNECTION_LOST,
    CONSUMER_CONNECTION_LOST,
    SERVER_KILLED,
    Delivery,
    Event,
    Outcome,
    Record,
    Sent,
)

FAULTS: Final = (SERVER_KILLED, CONNECTION_LOST, CONSUMER_CONNECTION_LOST)
_STEPS_PER_OCTAVE: Final = 16


class Latencies:
    """A histogram of durations: 16 steps for each doubling, so percentiles are right to 6 %."""

    __slots__ = ("_steps", "count", "max_s")

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self.count = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        step = _step_of(seconds)
        self._steps[step] = self._steps.get(step, 0) + 1
        self.count += 1
        self.max_s = max(self.max_s, seconds)

    def merge(self, other: "Latencies") -> None:
        """Count all that another one has counted."""
        for step, count in other._steps.items():
            self._steps[step] = self._steps.get(step, 0) + count
        self.count += other.count
        self.max_s = max(self.max_s, other.max_s)

    def percentile_s(self, share: float) -> float:
        """Return a duration that at least this share of all did not exceed; 0 without any."""
        left = self.count * share
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                return min(_end_of(step), self.max_s)
        return self.max_s


def _step_of(seconds: float) -> int:
    us = max(0, round(seconds * 1e6))
    extra = max(0, us.bit_length() - 5)
    return extra * _STEPS_PER_OCTAVE + (us >> extra)


def _end_of(step: int) -> float:
    """The longest duration, in seconds, of a step."""
    extra = max(0, step // _STEPS_PER_OCTAVE - 1)
    return ((step - extra * _STEPS_PER_OCTAVE + 1 << extra) - 1) / 1e6


@dataclass(slots=True)
class Span:
    """What happened in one piece of time."""

    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    delivered: int = 0
    send: Latencies = field(default_factory=Latencies)
    """From the attempt to its receipt."""
    arrival: Latencies = field(default_factory=Latencies)
    """From the attempt to the first delivery, once for each subscription."""

    def merge(self, other: "Span") -> None:
        """Take over what happened in the span after this one."""
        self.acknowledged += other.acknowledged
        self.failed += other.failed
        self.unknown += other.unknown
        self.delivered += other.delivered
        self.send.merge(other.send)
        self.arrival.merge(other.arrival)


class Gap(NamedTuple):
    """A time in which no send of any producer was acknowledged."""

    seconds: float
    since: float


class EventSample:
    """Events of one sort, evenly picked over the whole run if they are too many; the last always.

    Every n-th is kept; when there is no room left, every second of them goes and n doubles.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._every = 1
        self._kept: list[Event] = []
        self._last: Event | None = None

    def add(self, event: Event) -> None:
        """Take in one event."""
        if self.seen % self._every == 0:
            if len(self._kept) == REPORT_EVENTS_MAX:
                self._every *= 2
                self._kept = self._kept[::2]
            if self.seen % self._every == 0:
                self._kept.append(event)
        self.seen += 1
        self._last = event

    def shown(self) -> list[Event]:
        """Those that were kept, in the order of time."""
        if self._last is None or self._kept[-1] is self._last:
            return self._kept
        return [*self._kept, self._last]


class Timeline:
    """Sees every record of a run once, in the order of time."""

    def __init__(self) -> None:
        self.begin: float | None = None
        self.end = 0.0
        self.span_s = 1.0
        self.spans: list[Span] = []
        self.faults = EventSample()
        self.steps = EventSample()
        self._gaps: list[Gap] = []
        self._last_receipt: float | None = None

    def see(self, record: Record, news: News, facts: Facts) -> None:
        """Take in one record, which the facts have taken in already."""
        if self.begin is None:
            self.begin = record.t
        self.end = record.t
        if isinstance(record, Sent):
            self._sent(record, facts)
        elif isinstance(record, Delivery):
            span = self._span(record.t)
            span.delivered += 1
            begun = _begun(record, facts)
            if news.is_first_delivery and begun is not None:
                span.arrival.add(record.t - begun)
        elif isinstance(record, Event):
            (self.faults if record.name in FAULTS else self.steps).add(record)

    def _sent(self, record: Sent, facts: Facts) -> None:
        span = self._span(record.t)
        if record.outcome is not Outcome.OK:
            span.failed += record.outcome is Outcome.FAIL
            span.unknown += record.outcome is Outcome.UNKNOWN
            return
        span.acknowledged += 1
        begun = _begun(record, facts)
        if begun is not None:
            span.send.add(record.t - begun)
        if self._last_receipt is not None:
            gap = Gap(round(record.t - self._last_receipt, 6), self._last_receipt)
            if len(self._gaps) < REPORT_GAPS_MAX:
                heapq.heappush(self._gaps, gap)
            else:
                heapq.heappushpop(self._gaps, gap)
        self._last_receipt = record.t

    def _span(self, t: float) -> Span:
        assert self.begin is not None, "the first record sets it"
        while (index := int((t - self.begin) / self.span_s)) >= REPORT_SPANS_MAX:
            self._halve()
        while len(self.spans) <= index:
            self.spans.append(Span())
        return self.spans[index]

    def _halve(self) -> None:
        self.span_s *= 2
        for first, second in zip(self.spans[::2], self.spans[1::2], strict=False):
            first.merge(second)
        self.spans = self.spans[::2]

    def events(self) -> list[Event]:
        """The events to show, in the order of time."""
        return sorted([*self.faults.shown(), *self.steps.shown()], key=lambda event: event.t)

    def gaps(self) -> Sequence[Gap]:
        """The longest times without a receipt, the longest first."""
        return sorted(self._gaps, reverse=True)

    def each(self) -> Iterator[tuple[float, Span]]:
        """Yield each span with the seconds from the start of the run to its beginning."""
        for index, span in enumerate(self.spans):
            yield index * self.span_s, span

    def total(self) -> Span:
        """Everything as one span."""
        total = Span()
        for span in self.spans:
            total.merge(span)
        return total


def _begun(record: Sent | Delivery, facts: Facts) -> float | None:
    line = facts.lines.get((record.producer, record.epoch))
    found = line.find(record.seq) if line is not None else None
    return None if found is None else found[0].begun[found[1]]
