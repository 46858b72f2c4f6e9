"""Planted bugs of how `pyspark_anabranch` plans tasks and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.testing.planted import original, planted

if TYPE_CHECKING:
    from pyspark_anabranch.admission import Waiting
    from pyspark_anabranch.places import Place, Range


@planted("spark_counts_an_entry_as_a_row", target="pyspark_anabranch.planning:parts_of")
def spark_counts_an_entry_as_a_row(
    waiting: Waiting, end: Place, rows_max: int | None, bytes_max: int | None
) -> Any:
    """A batch of messages is one row when tasks are cut."""
    from dataclasses import replace

    entries = [entry._replace(messages=1) for entry in waiting.entries]
    single = replace(waiting, start=waiting.start._replace(batch_index=0), entries=entries)
    return original("spark_counts_an_entry_as_a_row")(
        single, end._replace(batch_index=0), rows_max, bytes_max
    )


@planted("spark_lists_no_losses", target="pyspark_anabranch.planning:note_lost")
def spark_lists_no_losses(folder: str, lost: Sequence[Range]) -> None:
    """Only the last of the lost ranges is listed."""
    original("spark_lists_no_losses")(folder, lost[-1:])


@planted("spark_takes_greater_for_less", target="pyspark_anabranch.row_filters:_Condition.can_be")
def spark_takes_greater_for_less(self: Any, low: Any, high: Any) -> bool:
    """Ledgers behind the place that a filter names are passed over."""
    found: bool = original("spark_takes_greater_for_less")(self, low, high)
    return found and all(low <= value for value in self.values)


@planted("spark_reads_every_ledger", target="pyspark_anabranch.row_filters:RowFilters._can_be")
def spark_reads_every_ledger(self: Any, path: tuple[str, ...], low: Any, high: Any) -> bool:
    """Filters leave out rows, but nothing of what is read."""
    return True


@planted("spark_overrides_push_filters", target="pyspark_anabranch.source:BatchReader.pushFilters")
def spark_overrides_push_filters(self: Any, filters: list[Any]) -> Any:
    """The reader is one that wants filters, though nobody may hand any down."""
    return filters


@planted("spark_forgets_the_first_chunk", target="pyspark_anabranch.look_back:LookBack.complete")
def spark_forgets_the_first_chunk(self: Any, chunks: Any, missing: Any) -> None:
    """A message that begins before the range of a task is left out."""
    chunks.found(missing.uuid, {})
