"""Which entries a topic has, as its broker lists them: what a range is made of, and what it lost.

Pure. The list is that of the admin interface, Pulsar's or ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.errors import AnabranchError, InputError
from pyspark_anabranch.places import BEGINNING, Place, Range, Span


class DataLost(AnabranchError):
    """Something a query has to read is not in the topic any more; names the ranges."""

    def __init__(self, lost: Sequence[Range]) -> None:
        listed = "; ".join(str(each) for each in lost)
        super().__init__(
            f"what the query has to read was deleted: {listed}. "
            "Set failOnDataLoss to false to go on without it."
        )
        self.lost = tuple(lost)


class LedgerSize(NamedTuple):
    """A ledger of the topic."""

    ledger_id: int
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TopicMap:
    """The ledgers of a topic in their order, without empty ones but the last.

    Of a topic whose entries are all deleted nothing else tells where they ended.
    """

    topic: str
    ledgers: tuple[LedgerSize, ...]
    sealed: frozenset[int] = frozenset()
    """Those that get no more entries and are where the broker stores ledgers."""

    @classmethod
    def of_stats(cls, topic: str, stats: dict[str, Any]) -> "TopicMap":
        """Read what the admin interface says about the storage of a topic.

        Raises:
            InputError: if that is not what such interfaces say.
        """
        try:
            last_ledger, last_entry = map(int, stats["lastConfirmedEntry"].split(":"))
            open_bytes = int(stats.get("currentLedgerSize", 0))
            found, sealed = [], set()
            for each in stats["ledgers"]:
                is_last = each is stats["ledgers"][-1]
                ledger_id, entries = int(each["ledgerId"]), int(each["entries"])
                size_bytes = int(each["size"])
                if ledger_id == last_ledger:
                    # Pulsar counts the entries of a ledger when it is closed.
                    entries, size_bytes = last_entry + 1, max(size_bytes, open_bytes)
                elif ledger_id > last_ledger:
                    entries = size_bytes = 0
                if entries > 0 or is_last:
                    found.append(LedgerSize(ledger_id, entries, size_bytes))
                if not is_last and not each.get("offloaded"):
                    sealed.add(ledger_id)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"unreadable statistics of {topic}: {error!r}") from error
        return cls(topic, tuple(sorted(found)), frozenset(sealed))

    @property
    def start(self) -> Place:
        """Before the first entry there is."""
        return Place(self.ledgers[0].ledger_id, 0) if self.ledgers else BEGINNING

    @property
    def end(self) -> Place:
        """Behind the last entry there is, where the next one comes."""
        if not self.ledgers:
            return BEGINNING
        return Place(self.ledgers[-1].ledger_id, self.ledgers[-1].entries)

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return sum(ledger.entries for ledger in self.ledgers)

    def check_exists(self, place: Place) -> None:
        """Refuse a place that no message of this topic can ever have had.

        Raises:
            InputError: naming it, and what there is.
        """
        known = {ledger.ledger_id: ledger for ledger in self.ledgers}
        ledger = known.get(place.ledger_id)
        beyond = place > self.end if ledger is None else place.entry_id > ledger.entries
        between = ledger is None and self.start < place < self.end
        if beyond or between or place.entry_id < 0:
            raise InputError(
                f"{self.topic} never had a message at {place}: "
                f"it has {self.entries} entries from {self.start} up to {self.end}"
            )

    def lost(self, start: Place, end: Place) -> Range | None:
        """What of a range is not there any more, if anything.

        A place in a ledger that is gone may have been the end of it; then nothing was lost, but
        nobody can tell. It counts as lost. What begins at `BEGINNING` begins with the first entry
        there is, and is lost only if nothing of it is left.
        """
        if start >= end:
            return None
        if not self.ledgers:
            return Range(self.topic, start, end)
        if start < self.start and (start != BEGINNING or end < self.start):
            return Range(self.topic, start, min(end, self.start))
        if end > self.end:
            return Range(self.topic, max(start, self.end), end)
        return None

    def spans(self, start: Place, end: Place) -> list[Span]:
        """The entries of a range, as far as they are there."""
        found = []
        for ledger in self.ledgers:
            first = start.entry_id if start.ledger_id == ledger.ledger_id else 0
            if start.ledger_id > ledger.ledger_id or end.ledger_id < ledger.ledger_id:
                continue
            until = ledger.entries
            if end.ledger_id == ledger.ledger_id:
                # A range that ends within an entry needs the entry.
                until = min(until, end.entry_id + (end.batch_index > 0))
            if first < until:
                found.append(Span(ledger.ledger_id, first, until))
        return found

    def sealed_sizes(self, spans: Sequence[Span]) -> dict[int, int]:
        """How many entries the sealed ones among the ledgers of some spans have in all."""
        wanted = {span.ledger_id for span in spans} & self.sealed
        return {each.ledger_id: each.entries for each in self.ledgers if each.ledger_id in wanted}

    def before(self, place: Place) -> tuple[int, int] | None:
        """The last entry that is wholly before a place; None if there is none."""
        if place.entry_id > 0:
            return place.ledger_id, place.entry_id - 1
        earlier = [each for each in self.ledgers if each.entries and each[0] < place.ledger_id]
        return (earlier[-1].ledger_id, earlier[-1].entries - 1) if earlier else None

    def size_bytes(self, spans: Sequence[Span]) -> int:
        """How much entries take, judged by the mean of their ledgers."""
        known = {ledger.ledger_id: ledger for ledger in self.ledgers}
        return sum(
            known[span.ledger_id].size_bytes * span.entries // known[span.ledger_id].entries
            for span in spans
        )


def split(spans: Sequence[Span], entries_max: int) -> list[list[Span]]:
    """Divide entries into as few nearly equal parts as have at most so many entries each."""
    total = sum(span.entries for span in spans)
    if total == 0:
        return []
    parts = -(-total // entries_max)
    bounds = [total * index // parts for index in range(1, parts + 1)]
    found: list[list[Span]] = []
    part: list[Span] = []
    done = 0
    for span in spans:
        first = span.first
        while first < span.until:
            take = min(span.until - first, bounds[len(found)] - done)
            part.append(Span(span.ledger_id, first, first + take))
            first += take
            done += take
            if done == bounds[len(found)]:
                found.append(part)
                part = []
    return found
