"""Planted bugs of the streams of `pyspark_anabranch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.testing.planted import original, planted

if TYPE_CHECKING:
    from pyspark_anabranch.admission import Waiting
    from pyspark_anabranch.offsets import Offsets
    from pyspark_anabranch.places import Place
    from pyspark_anabranch.stream_reader import StreamReader
    from pyspark_anabranch.topic_map import TopicMap
    from pyspark_anabranch.topics import Topics


@planted(
    "spark_plans_from_memory",
    target="pyspark_anabranch.stream_reader:StreamReader.partitions",
)
def spark_plans_from_memory(
    self: StreamReader, start: dict[str, str], end: dict[str, str]
) -> list[Any]:
    """A batch ends where the topics end, whatever the log says."""
    from pyspark_anabranch.offsets import offsets_document

    ends = {name: known.end for name, known in self._topics.maps().items()}
    plan: list[Any] = original("spark_plans_from_memory")(self, start, offsets_document(ends))
    return plan


@planted(
    "spark_plans_a_restart_anew",
    target="pyspark_anabranch.stream_reader:StreamReader.partitions",
)
def spark_plans_a_restart_anew(
    self: StreamReader, start: dict[str, str], end: dict[str, str]
) -> list[Any]:
    """The batch that a killed query had begun ends where the topics end by now."""
    from pyspark_anabranch.offsets import offsets_document

    if not self._seen:  # of a process that was never asked for news
        ends = {name: known.end for name, known in self._topics.maps().items()}
        end = offsets_document(ends)
    plan: list[Any] = original("spark_plans_a_restart_anew")(self, start, end)
    return plan


@planted(
    "spark_moves_the_frozen_target", target="pyspark_anabranch.stream_reader:StreamReader._look"
)
def spark_moves_the_frozen_target(self: StreamReader, begin: Offsets) -> Any:
    """What is written after the freezing is read as well."""
    target, self._target = self._target, None
    try:
        return original("spark_moves_the_frozen_target")(self, begin)
    finally:
        self._target = target


@planted("spark_takes_whole_entries", target="pyspark_anabranch.admission:take")
def spark_takes_whole_entries(
    waiting: Sequence[Waiting],
    rows_max: int | None,
    bytes_max: int | None,
    owed: Sequence[str] = (),
) -> dict[str, Place]:
    """A batch that is to end within an entry ends behind it."""
    plain = original("spark_takes_whole_entries")
    ends: dict[str, Place] = plain(waiting, rows_max, bytes_max, owed)
    return {
        topic: end._replace(entry_id=end.entry_id + (end.batch_index > 0), batch_index=0)
        for topic, end in ends.items()
    }


@planted(
    "spark_never_puts_off", target="pyspark_anabranch.stream_reader:StreamReader._is_too_early"
)
def spark_never_puts_off(self: StreamReader, waiting: list[Waiting], least: int) -> bool:
    """A batch of any size goes at once."""
    return False


@planted("spark_asks_without_pause", target="pyspark_anabranch.topics:Topics.idle_s")
def spark_asks_without_pause(self: Topics, interval_s: float) -> float:
    """An idle query looks for news as often as Spark asks."""
    return 0.01


@planted(
    "spark_waits_for_the_commit", target="pyspark_anabranch.stream_reader:StreamReader.latestOffset"
)
def spark_waits_for_the_commit(self: StreamReader, start: dict[str, str], limit: Any) -> Any:
    """Only what Spark commits is acknowledged, which it never does for the last batch."""
    from pyspark_anabranch.offsets import parse_offsets

    self._acknowledged = parse_offsets(start)
    return original("spark_waits_for_the_commit")(self, start, limit)


@planted(
    "spark_takes_the_end_of_a_ledger_for_a_loss",
    target="pyspark_anabranch.stream_reader:StreamReader._intact_from",
)
def spark_takes_the_end_of_a_ledger_for_a_loss(
    self: StreamReader, known: TopicMap, start: Place
) -> Place:
    """A place in a ledger that is gone is a loss, even if the subscription stands there."""
    return start


@planted(
    "spark_reports_what_it_read",
    target="pyspark_anabranch.stream_reader:StreamReader.latestOffset",
)
def spark_reports_what_it_read(self: StreamReader, start: dict[str, str], limit: Any) -> Any:
    """A query says that the topics end where its batch ends."""
    from pyspark_anabranch.offsets import parse_offsets

    end: dict[str, str] = original("spark_reports_what_it_read")(self, start, limit)
    self._seen = parse_offsets(end)
    return end


@planted("spark_starves_the_small", target="pyspark_anabranch.admission:shares")
def spark_starves_the_small(backlogs: Sequence[int], total: int) -> list[int]:
    """A topic whose share is less than one gets nothing."""
    whole = sum(backlogs)
    return [total * backlog // whole for backlog in backlogs]


@planted("spark_counts_entries_as_lag", target="pyspark_anabranch.lag:rows_in")
def spark_counts_entries_as_lag(waiting: Sequence[Waiting]) -> int:
    """A batch of messages that waits is one row."""
    return sum(len(each.entries) for each in waiting)


@planted("spark_forgets_an_empty_ledger", target="pyspark_anabranch.topic_map:TopicMap.of_stats")
def spark_forgets_an_empty_ledger(cls: type[TopicMap], topic: str, stats: dict[str, Any]) -> Any:
    """Of a topic whose entries are all deleted nothing is known."""
    from dataclasses import replace

    known = original("spark_forgets_an_empty_ledger")(topic, stats)
    return replace(known, ledgers=tuple(each for each in known.ledgers if each.entries))


@planted("spark_lets_floors_lift_the_limit", target="pyspark_anabranch.admission:_take_one")
def spark_lets_floors_lift_the_limit(
    each: Waiting, rows: int | None, share: int | None, spare: int | None, is_first: bool
) -> Any:
    """A topic takes its share also where the others have left nothing of the limit."""
    rows = None if rows is None else max(1, rows)
    room = spare if spare is None or share is None else max(spare, share)
    return original("spark_lets_floors_lift_the_limit")(each, rows, share, room, is_first)


@planted("spark_owes_nothing", target="pyspark_anabranch.admission:left_out")
def spark_owes_nothing(
    waiting: Sequence[Waiting], ends: dict[str, Place], owed: Sequence[str] = ()
) -> list[str]:
    """Who got nothing of a batch has to take its chance with the next."""
    return []


@planted("spark_takes_any_schema", target="pyspark_anabranch.source:_check_own")
def spark_takes_any_schema(schema: Any, options: Any) -> None:
    """Columns are called and typed as somebody wishes."""


@planted("spark_reads_backwards", target="pyspark_anabranch.planning:_check_order")
def spark_reads_backwards(start: Any, end: Any) -> None:
    """A range that ends before it begins is an empty one."""


@planted(
    "spark_takes_contradicting_limits", target="pyspark_anabranch.options:Options.check_limits"
)
def spark_takes_contradicting_limits(self: Any) -> None:
    """A batch may be wanted larger than it may be."""


@planted("spark_waits_though_a_batch_is_full", target="pyspark_anabranch.admission:bytes_in")
def spark_waits_though_a_batch_is_full(waiting: Any) -> int:
    """That a batch has as many bytes as it may have is no reason not to wait for more rows."""
    return 0
