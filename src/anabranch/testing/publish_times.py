"""How long producers waited for receipts in named spans of a run, and how long none came. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.verify.records import Outcome, Record, Send, Sent
from anabranch.verify.timeline import Latencies


class Span(NamedTuple):
    """A part of a run, by the clock of its histories; spans of one name are taken together."""

    name: str
    since: float
    until: float


class PublishTimes:
    """Sees the records of a run in the order of time.

    A message belongs to each span in which its producer waited, if only for a part of its wait.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._open: dict[tuple[int, int, int], float] = {}
        self._last: float | None = None
        self._waits = {span.name: Latencies() for span in spans}
        self._silences = dict.fromkeys(self._waits, 0.0)

    def see(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Send):
            self._open[record.producer, record.epoch, record.seq] = record.t
        elif isinstance(record, Sent):
            since = self._open.pop((record.producer, record.epoch, record.seq), None)
            if record.outcome is not Outcome.OK:
                return
            if since is not None:
                for name in self._names(since, record.t):
                    self._waits[name].add(record.t - since)
            self._see_receipt(record.t)

    def _see_receipt(self, t: float) -> None:
        if self._last is not None:
            for name in self._names(self._last, t):
                self._silences[name] = max(self._silences[name], t - self._last)
        self._last = t

    def _names(self, since: float, until: float) -> set[str]:
        return {span.name for span in self._spans if until >= span.since and since <= span.until}

    def p99_s(self, name: str) -> float:
        """What 99 of 100 messages of the spans of a name did not exceed; 0 without any."""
        return self._waits[name].percentile_s(0.99)

    def figures(self) -> dict[str, float]:
        """Of the spans of each name, such as `publish_hold_p99_ms`; silence is that of the topic.

        No producer of it had a receipt for so long: the gap as it is seen at its broker.
        """
        found: dict[str, float] = {}
        for name, waits in self._waits.items():
            found |= {
                f"publish_{name}_messages": waits.count,
                f"publish_{name}_p99_ms": round(waits.percentile_s(0.99) * 1000, 1),
                f"publish_{name}_max_ms": round(waits.max_s * 1000, 1),
                f"publish_{name}_silence_ms": round(self._silences[name] * 1000, 1),
            }
        return found
