"""Which tasks read what: topics found, bounds made places, ranges cut into tasks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from anabranch.errors import ConfigError, InputError, NotFound
from anabranch.ids import TopicName
from anabranch.telemetry import get_logger
from pyspark_anabranch import broker_calls
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.entry_rows import StoredEntry
from pyspark_anabranch.lost_ranges import note_lost
from pyspark_anabranch.options import EARLIEST, LATEST, Bound, Options
from pyspark_anabranch.places import Place, Range, Span
from pyspark_anabranch.row_filters import NO_FILTERS, RowFilters
from pyspark_anabranch.task_sizes import parts_of
from pyspark_anabranch.topic_map import DataLost, TopicMap, split

_log = get_logger("spark")


@dataclass(frozen=True, slots=True)
class Task:
    """Entries of one topic that one task reads; all it needs to know to read them."""

    topic: str
    spans: tuple[Span, ...]
    start: Place
    """The first message, within the first entry."""
    end: Place
    """Behind the last message."""
    sealed: Mapping[int, int] = field(default_factory=dict)
    """Ledgers that are read where they are stored, and how many entries each has in all."""

    @classmethod
    def of(
        cls,
        topic: str,
        spans: Sequence[Span],
        start: Place,
        end: Place,
        sealed: Mapping[int, int] | None = None,
    ) -> "Task":
        """Read these entries, as far as they are within a range."""
        first = Place(spans[0].ledger_id, spans[0].first)
        behind = Place(spans[-1].ledger_id, spans[-1].until)
        return cls(topic, tuple(spans), max(first, start), min(behind, end), sealed or {})

    def parts(self) -> Iterator[tuple[bool, "Task"]]:
        """The same in pieces that are read in one way, and whether that is where they are."""
        for is_sealed, spans in groupby(self.spans, lambda span: span.ledger_id in self.sealed):
            yield is_sealed, replace(self, spans=tuple(spans))

    def part_of(self, entry: StoredEntry) -> StoredEntry:
        """Say which messages of an entry are the task's: all, but at its two ends."""
        place = entry.ledger_id, entry.entry_id
        if place == self.start[:2]:
            entry = entry._replace(first=self.start.batch_index)
        if place == self.end[:2]:
            entry = entry._replace(until=self.end.batch_index)
        return entry


def find_topics(view: AdminView, options: Options) -> list[TopicName]:
    """Every topic without partitions, and every partition, that the options name.

    Raises:
        NotFound: if one of them, or any at all, is not there.
    """
    if options["topicsPattern"]:
        return _matching(view, options["topicsPattern"])
    found: list[TopicName] = []
    for topic in (*options["topic"], *options["topics"]):
        found += [each for each in view.partitions(topic) if each not in found]
    return found


def _matching(view: AdminView, pattern: str) -> list[TopicName]:
    domain, separator, rest = pattern.partition("://")
    tenant, _, rest = rest.partition("/")
    namespace, slash, _ = rest.partition("/")
    if domain != "persistent" or not separator or not slash:
        raise ConfigError(
            f"option topicsPattern: persistent://tenant/namespace/... is wanted, not {pattern!r}"
        )
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"option topicsPattern: {error}") from None
    found = []
    for name in view.topics_of(f"{tenant}/{namespace}"):
        topic = TopicName.parse(name)
        whole = f"{topic.domain}://{topic.namespace_name}/{topic.partitioned_local}"
        if wanted.fullmatch(whole):
            found.append(topic)
    if not found:
        raise NotFound(f"no topic of {tenant}/{namespace} matches {pattern!r}")
    return found


def place_of(view: AdminView, known: TopicMap, topic: TopicName, bound: Bound) -> Place:
    """Where a bound is in a topic.

    Raises:
        InputError: if no message of the topic can ever have been there.
    """
    if bound == EARLIEST:
        return known.start
    if bound == LATEST:
        return known.end
    if isinstance(bound, Place):
        known.check_exists(bound)
        return bound
    assert isinstance(bound, int)
    return view.place_at(topic, bound, known)


def bound_for(bounds: Bound | dict[str, Bound], topic: TopicName, otherwise: Bound) -> Bound:
    """What an option says about a topic."""
    if not isinstance(bounds, dict):
        return bounds
    parent = f"{topic.domain}://{topic.namespace_name}/{topic.partitioned_local}"
    return bounds.get(str(topic), bounds.get(parent, otherwise))


def check_bounds(
    bounds: Bound | dict[str, Bound] | None, topics: Sequence[TopicName], option: str
) -> None:
    """Refuse bounds that name topics which are not read, or one place for several topics.

    Raises:
        InputError: naming them.
    """
    if isinstance(bounds, Place) and len(topics) > 1:
        raise InputError(f"option {option}: one position for {len(topics)} topics; give JSON")
    if not isinstance(bounds, dict):
        return
    known = {str(topic) for topic in topics}
    known |= {f"{each.domain}://{each.namespace_name}/{each.partitioned_local}" for each in topics}
    if unknown := sorted(set(bounds) - known):
        raise InputError(f"option {option} names {unknown[0]}, which is not read")


def _check_order(start: Bound, end: Bound) -> None:
    """Refuse what ends before it begins, as far as two bounds of one kind tell that."""
    if isinstance(start, Place):
        is_backwards = isinstance(end, Place) and end < start
    elif isinstance(start, int):
        is_backwards = isinstance(end, int) and end < start
    else:
        is_backwards = (start, end) == (LATEST, EARLIEST)
    if is_backwards:
        raise InputError(f"option end, {end}, is before option start, {start}")


def batch_ranges(
    view: AdminView, options: Options, filters: RowFilters = NO_FILTERS
) -> list[tuple[TopicMap, Range]]:
    """What a batch query reads of each topic that can have rows which match."""
    topics = find_topics(view, options)
    starts = options["start"] if options["start"] is not None else EARLIEST
    for name, bounds in (("start", starts), ("end", options["end"])):
        check_bounds(bounds, topics, name)
    for topic in topics:
        _check_order(bound_for(starts, topic, EARLIEST), bound_for(options["end"], topic, LATEST))
    found = []
    for topic in topics:
        if not filters.can_have(str(topic), topic.partition):
            continue
        known = view.map_of(topic)
        start = place_of(view, known, topic, bound_for(starts, topic, EARLIEST))
        end = place_of(view, known, topic, bound_for(options["end"], topic, LATEST))
        found.append((known, Range(str(topic), start, end)))
    return found


def tasks_of(
    ranges: Sequence[tuple[TopicMap, Range]], options: Options, filters: RowFilters = NO_FILTERS
) -> list[Task]:
    """Cut ranges into tasks.

    Raises:
        DataLost: if something in them was deleted, and that may not be.
    """
    lost = [gone for known, (_, start, end) in ranges if (gone := known.lost(start, end))]
    if lost and options["failOnDataLoss"]:
        raise DataLost(lost)
    for gone in lost:
        _log.warning("data_lost", range=str(gone))
    if lost and options["lostRanges"]:
        note_lost(options["lostRanges"], lost)
    direct = bool(options["ledgersUrl"])
    return [
        Task.of(topic, spans, start, end, known.sealed_sizes(spans) if direct else None)
        for known, (topic, start, end) in _within_limits(ranges, options)
        for spans in split(filters.touched(known.spans(start, end)), options["maxEntriesPerTask"])
    ]


def _within_limits(
    ranges: Sequence[tuple[TopicMap, Range]], options: Options
) -> list[tuple[TopicMap, Range]]:
    """Cut ranges where tasks would have more rows or bytes than they may."""
    rows_max, bytes_max = options["maxRowsPerTask"], options["maxBytesPerTask"]
    if rows_max is None and bytes_max is None:
        return list(ranges)
    waiting = broker_calls.run(
        broker_calls.look_at_all(
            options.access,
            {topic: (start, known.spans(start, end)) for known, (topic, start, end) in ranges},
            rows_max=None,
            bytes_max=None,
            wait_s=options["readTimeout"],
        )
    )
    return [
        (known, Range(topic, low, high))
        for (known, (topic, _, end)), each in zip(ranges, waiting, strict=True)
        for low, high in parts_of(each, end, rows_max, bytes_max)
    ]
