"""How long publishing paused at each fault of a drill, as its producers saw it. Pure."""

from typing import NamedTuple

from anabranch.verify.records import WINDOW_CLOSED, WINDOW_OPENED, Event, Outcome, Record, Sent

_NOTED_S = 0.05
"""Between two receipts; shorter ones are the pace of the load."""


class _Gap(NamedTuple):
    producer: int
    since: float
    until: float


class PublishGaps:
    """Sees the records of a run in the order of time."""

    def __init__(self) -> None:
        self._last: dict[int, float] = {}
        self._gaps: list[_Gap] = []
        self._opened: float | None = None
        self._windows: list[tuple[float, float]] = []

    def see(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Sent) and record.outcome is Outcome.OK:
            since = self._last.get(record.producer, record.t)
            if record.t - since > _NOTED_S:
                self._gaps.append(_Gap(record.producer, since, record.t))
            self._last[record.producer] = record.t
        elif isinstance(record, Event) and record.name == WINDOW_OPENED:
            self._opened = record.t
        elif isinstance(record, Event) and record.name == WINDOW_CLOSED:
            assert self._opened is not None, "a window is opened before it is closed"
            self._windows.append((self._opened, record.t))

    def seconds(self) -> list[float]:
        """The longest gap of each producer at each fault, the shortest first."""
        found: list[float] = []
        for opened, closed in self._windows:
            longest = dict.fromkeys(self._last, 0.0)
            for producer, since, until in self._gaps:
                if until > opened and since < closed:
                    longest[producer] = max(longest[producer], until - since)
            found += longest.values()
        return sorted(found)

    def figures(self) -> dict[str, float]:
        """How the gaps are spread."""
        gaps = self.seconds()
        if not gaps:
            return {}
        shares = {"min": 0.0, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "max": 1.0}
        return {
            f"gap_{name}_s": round(gaps[min(int(share * len(gaps)), len(gaps) - 1)], 2)
            for name, share in shares.items()
        }
