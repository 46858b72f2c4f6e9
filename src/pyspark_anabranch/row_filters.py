"""Filters that Spark hands down: what need not be read, and which rows need not travel. Pure.

Spark gets every filter back and looks at the rows again, so that a row too many does no harm. A row
too few is gone: a part is passed over only if none of its rows can match.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_anabranch.places import Span
from pyspark_anabranch.row_columns import COLUMNS_BY_NAME


class _Comparison(NamedTuple):
    """How a column is compared with a value."""

    can_be: Callable[[Any, Any, Any], bool]
    """Whether anything from the first to the second compares so with the third."""
    rows: Callable[[pa.Array, pa.Scalar], pa.Array]


_SAME: Final = _Comparison(lambda low, high, value: low <= value <= high, pc.equal)
_COMPARISONS: Final[Mapping[type[Filter], _Comparison]] = {
    EqualTo: _SAME,
    EqualNullSafe: _SAME,
    GreaterThan: _Comparison(lambda low, high, value: high > value, pc.greater),
    GreaterThanOrEqual: _Comparison(lambda low, high, value: high >= value, pc.greater_equal),
    LessThan: _Comparison(lambda low, high, value: low < value, pc.less),
    LessThanOrEqual: _Comparison(lambda low, high, value: low <= value, pc.less_equal),
}
_NO_FILTER: Final = ("value", "properties")
"""Columns that are not looked at here."""


class _Condition(NamedTuple):
    """A column, or a field of one, compares so with one of some values."""

    path: tuple[str, ...]
    kind: type[Filter]
    values: tuple[Any, ...]

    def can_be(self, low: Any, high: Any) -> bool:
        compare = _COMPARISONS[self.kind].can_be
        return any(compare(low, high, value) for value in self.values)

    def rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        column = batch.column(self.path[0])
        for field in self.path[1:]:
            column = column.field(field)
        compare = _COMPARISONS[self.kind].rows
        found = [compare(column, pa.scalar(value, column.type)) for value in self.values]
        mask = found[0]
        for each in found[1:]:
            mask = pc.or_(mask, each)
        return pc.fill_null(mask, False)


class RowFilters:
    """Those of a query's filters that are understood here; all of them have to hold."""

    def __init__(self, filters: Sequence[Filter] = ()) -> None:
        found = map(_understood, filters)
        self._conditions = [condition for condition in found if condition is not None]

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def _can_be(self, path: tuple[str, ...], low: Any, high: Any) -> bool:
        return all(each.can_be(low, high) for each in self._conditions if each.path == path)

    def can_have(self, topic: str, partition: int) -> bool:
        """Whether rows of a topic can match."""
        return self._can_be(("topic",), topic, topic) and self._can_be(
            ("partition",), partition, partition
        )

    def touched(self, spans: Sequence[Span]) -> list[Span]:
        """Those entries that can have rows which match, by their places alone."""
        return [
            span
            for span in spans
            if self._can_be(("position", "ledger"), span.ledger_id, span.ledger_id)
            and self._can_be(("position", "entry"), span.first, span.until - 1)
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """Which columns it takes to tell the rows that match."""
        return tuple(dict.fromkeys(each.path[0] for each in self._conditions))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that match, as far as the columns that are there can tell."""
        for each in self._conditions:
            if batch.schema.get_field_index(each.path[0]) >= 0:
                batch = batch.filter(each.rows(batch))
        return batch


def _understood(each: Filter) -> _Condition | None:
    kind: type[Filter] = EqualTo if isinstance(each, In) else type(each)
    path: tuple[str, ...] = getattr(each, "attribute", ())
    value: Any = getattr(each, "value", None)
    if kind not in _COMPARISONS or not path:
        return None
    values = tuple(value) if isinstance(each, In) else (value,)
    known = tuple(one for one in values if one is not None)
    # What is compared with null is never so, unless null itself is asked for: that is Spark's.
    if not known or (kind is EqualNullSafe and len(known) < len(values)):
        return None
    column = _type_of(path)
    return _Condition(path, kind, known) if _are_of(known, column) else None


def _type_of(path: tuple[str, ...]) -> pa.DataType | None:
    column = COLUMNS_BY_NAME.get(path[0])
    if column is None or path[0] in _NO_FILTER:
        return None
    found = column.arrow
    for field in path[1:]:
        if not pa.types.is_struct(found) or found.get_field_index(field) < 0:
            return None
        found = found.field(field).type
    return None if pa.types.is_struct(found) else found


def _are_of(values: Sequence[Any], kind: pa.DataType | None) -> bool:
    """Whether values can be compared with a column of a type, and mean there what Spark means."""
    if kind is None or any(isinstance(one, datetime) and one.tzinfo is None for one in values):
        return False
    try:
        pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


NO_FILTERS: Final = RowFilters()
