"""Rows put so that the order of each key is kept when many tasks write them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.errors import InputError
from pyspark_anabranch.sink_rows import SINK_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_key_order(rows: "DataFrame", *by: str, tasks: int | None = None) -> "DataFrame":
    """Give all rows of a key to one task, in an order.

    The sink sends the rows of a task one after the other, and those of a key to one partition; so
    they are stored in this order. Rows without a key are a key of their own.

    Args:
        rows: with a column `key`.
        by: the columns by which the rows of a key are ordered; those that the sink does not know
            are left out afterwards.
        tasks: into how many parts; Spark's own number for shuffles unless given.

    Raises:
        InputError: if a column is not there, or nothing is said about the order.
    """
    if not by:
        raise InputError("in_key_order wants the columns by which the rows of a key are ordered")
    for name in ("key", *by):
        if name.partition(".")[0] not in rows.columns:
            raise InputError(f"there is no column {name!r}, by which rows are to be ordered")
    ordered = _sorted(_by_key(rows, tasks), by)
    return ordered.drop(*(name for name in by if name not in SINK_COLUMNS))


def _by_key(rows: "DataFrame", tasks: int | None) -> "DataFrame":
    return rows.repartition(tasks, "key") if tasks else rows.repartition("key")


def _sorted(rows: "DataFrame", by: Sequence[str]) -> "DataFrame":
    return rows.sortWithinPartitions(*by)
