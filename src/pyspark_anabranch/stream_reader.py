"""Topics as streams: where a query begins, what the next batch is, and what is done with.

Everything but `read` runs in one process beside Spark's driver, in calls that come one by one. A
batch is planned from its offsets alone: after a restart nobody remembers how they were found.
"""

import threading
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from pyspark_anabranch import admission, broker_calls
from pyspark_anabranch.limits import IDLE_POLL_S
from pyspark_anabranch.offsets import Offsets, advanced, offsets_document, parse_offsets
from pyspark_anabranch.options import LATEST, Options
from pyspark_anabranch.places import BEGINNING, Place, Range
from pyspark_anabranch.planning import bound_for, check_bounds, place_of, tasks_of
from pyspark_anabranch.task_reading import few_partitions_of, read_task
from pyspark_anabranch.topic_map import TopicMap
from pyspark_anabranch.topics import Topics

_ANY_LIMIT: Final = ReadMaxRows(2**62)
"""Spark knows one limit at a time; ours are several, and read from the options."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._view = options.access.view()
        self._topics = Topics(self._view, options)
        self._target: Offsets | None = None
        self._seen: Offsets = {}
        self._acknowledged: Offsets = {}
        self._owed: list[str] = []
        """Topics that got nothing of the last batch because it was full."""
        self._waiting_since_s: float | None = None
        self._is_idle = False
        """Whether the last look found nothing new."""

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    # --- where a query begins -----------------------------------------------------------------

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """See `DataSourceStreamReader.initialOffset`."""
        maps = self._topics.maps()
        names = [TopicName.parse(name) for name in maps]
        bounds = self._options["start"] if self._options["start"] is not None else LATEST
        check_bounds(bounds, names, "start")
        offsets = {
            str(topic): place_of(
                self._view, maps[str(topic)], topic, bound_for(bounds, topic, LATEST)
            )
            for topic in names
        }
        if subscription := self._options["subscription"]:
            for topic in names:
                self._view.keep_subscription(topic, subscription, offsets[str(topic)])
        return offsets_document(offsets)

    # --- what the next batch is ---------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """See `DataSourceStreamReader.getDefaultReadLimit`."""
        names = ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger")
        limited = any(self._options.is_given(name) for name in names)
        return _ANY_LIMIT if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """See `SupportsTriggerAvailableNow`; topics found later are left to the next query."""
        self._target = {name: known.end for name, known in self._topics.maps().items()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """See `DataSourceStreamReader.latestOffset`; everything before `start` is done with."""
        begin = parse_offsets(start)
        self._done_with(begin)
        if self._is_idle and self._target is None:
            # Spark asks again at once, a hundred times a second if it is let.
            threading.Event().wait(self._topics.idle_s(IDLE_POLL_S))
        maps, end = self._look(begin)
        self._is_idle = end == begin
        if end != begin and not isinstance(limit, ReadAllAvailable):
            end = self._limited(maps, begin, end)
        return offsets_document(end)

    def _look(self, begin: Offsets) -> tuple[dict[str, TopicMap], Offsets]:
        """Which entries there are, and how far a batch could go."""
        maps = self._topics.maps()
        ends = {name: known.end for name, known in maps.items()}
        self._seen = advanced(begin, ends)
        if self._target is not None:
            # What is frozen is reached and never passed, whatever is written meanwhile.
            ends = {name: min(self._target[name], ends[name]) for name in self._target}
        return maps, advanced(begin, ends)

    def _limited(self, maps: dict[str, TopicMap], begin: Offsets, end: Offsets) -> Offsets:
        options = self._options
        least = options["minRowsPerTrigger"]
        ranges = {}
        for name in end:
            start = begin.get(name, BEGINNING)
            if start < end[name]:
                ranges[name] = (start, maps[name].spans(start, end[name]))
        rows_max, bytes_max = options["maxRowsPerTrigger"], options["maxBytesPerTrigger"]
        waiting = broker_calls.run(
            broker_calls.look_at_all(
                options.access,
                ranges,
                rows_max=rows_max or least,
                bytes_max=bytes_max,
                wait_s=options["readTimeout"],
            )
        )
        is_lost = any(maps[name].lost(start, end[name]) for name, (start, _) in ranges.items())
        is_put_off = least and self._target is None and not is_lost
        if is_put_off and self._is_too_early(waiting, least):
            threading.Event().wait(IDLE_POLL_S)
            return begin
        if rows_max is None and bytes_max is None:
            return end
        taken = admission.take(waiting, rows_max, bytes_max, self._owed)
        self._owed = admission.left_out(waiting, taken, self._owed)
        # Where no entry is left before the end a batch goes there, and whatever is lost is named.
        reached = {
            name: end[name] for name in taken if not maps[name].spans(taken[name], end[name])
        }
        return advanced(begin, taken | reached)

    def _is_too_early(self, waiting: list[admission.Waiting], least: int) -> bool:
        """Whether so few rows wait, and for so short a time, that more are waited for."""
        now_s = _now_s()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        most = self._options["maxBytesPerTrigger"]
        is_full = most is not None and admission.bytes_in(waiting) >= most
        enough = admission.rows_in(waiting) >= least
        if enough or is_full or now_s - self._waiting_since_s >= self._options["maxTriggerDelay"]:
            self._waiting_since_s = None
            return False
        return True

    def reportLatestOffset(self) -> dict[str, str] | None:  # noqa: N802 - Spark's name
        """See `DataSourceStreamReader.reportLatestOffset`: how far the topics go."""
        return offsets_document(self._seen) if self._seen else None

    # --- what a batch reads -------------------------------------------------------------------

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """See `DataSourceStreamReader.partitions`."""
        begin, until = parse_offsets(start), parse_offsets(end)
        ranges = []
        for name, place in until.items():
            first = begin.get(name, BEGINNING)
            if first < place:
                known = self._view.map_of(TopicName.parse(name))
                ranges.append((known, Range(name, self._intact_from(known, first), place)))
        tasks = tasks_of(ranges, self._options)
        maps = {known.topic: known for known, _ in ranges}
        sizes = [maps[task.topic].size_bytes(task.spans) for task in tasks]
        return few_partitions_of(tasks, sizes, self._options)

    def _intact_from(self, known: TopicMap, start: Place) -> Place:
        """The place from which to look for losses.

        Nothing behind a subscription's own place is ever deleted. So a place that seems to be gone
        was the end of a ledger, if the subscription stands before it or there.
        """
        subscription = self._options["subscription"]
        if not subscription or known.lost(start, known.end) is None:
            return start
        done = self._view.acknowledged(TopicName.parse(known.topic), subscription)
        return known.start if done is not None and done[:2] < start[:2] else start

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader.read`."""
        return read_task(self._options, partition)

    # --- what is done with --------------------------------------------------------------------

    def commit(self, end: dict[str, str]) -> None:
        """See `DataSourceStreamReader.commit`; Spark says so late, and of the last batch never."""
        self._done_with(parse_offsets(end))

    def _done_with(self, place: Offsets) -> None:
        """Move the subscription up to where every batch is finished."""
        subscription = self._options["subscription"]
        if not subscription or place == self._acknowledged:
            return
        maps = self._topics.maps()
        up_to = {
            name: entry
            for name, at in place.items()
            if self._acknowledged.get(name) != at
            and name in maps
            and (entry := maps[name].before(at)) is not None
        }
        if up_to:
            broker_calls.run(broker_calls.acknowledge(self._options.access, subscription, up_to))
        self._acknowledged = place

    def stop(self) -> None:
        """See `DataSourceStreamReader.stop`; nothing is left open between calls."""


def _now_s() -> float:
    return real_runtime().clock.monotonic_s()
