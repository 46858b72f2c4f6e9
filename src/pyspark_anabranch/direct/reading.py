"""Tasks that read ledgers where they are stored, by an index of their columns if there is one."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from anabranch.ids import TopicName
from pyspark_anabranch.batches import batches_of
from pyspark_anabranch.direct.column_index import KEPT, IndexedLedger
from pyspark_anabranch.direct.sealed_entries import SealedEntries
from pyspark_anabranch.direct.stored_ledgers import StoredLedgers
from pyspark_anabranch.encrypted_entries import NO_KEYS, Unlocking
from pyspark_anabranch.look_back import LookBack
from pyspark_anabranch.options import Options
from pyspark_anabranch.places import Span
from pyspark_anabranch.planning import Task
from pyspark_anabranch.row_columns import COLUMNS_BY_NAME, Column, Origin
from pyspark_anabranch.row_filters import RowFilters


def check_stored_ledgers(options: Options) -> None:
    """Refuse a ledger store that no task can read.

    Raises:
        ConfigError: naming what is wrong.
    """
    _stored(options).check()


def stored_rows(
    options: Options, part: Task, filters: RowFilters, unlocking: Unlocking
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a task that consists of sealed ledgers."""
    columns = options.columns
    if not options["indexFolder"]:
        return _sealed(options, part, columns, unlocking)
    if all(column.name != "value" for column in columns):
        return _indexed(options, part, columns)
    return _sealed(options, _with_rows(options, part, filters), columns)


def _sealed(
    options: Options, part: Task, columns: Sequence[Column], unlocking: Unlocking = NO_KEYS
) -> Generator[pa.RecordBatch, None, None]:
    if not part.spans:
        return
    topic = TopicName.parse(part.topic)
    entries = SealedEntries(_stored(options), topic, part.spans, part.sealed)
    look_back = LookBack(options, part.topic, unlocking)
    yield from batches_of(entries, part, columns, look_back, unlocking)


def _indexed(options: Options, part: Task, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Read indexes where there are some, and make those that are missing of whole ledgers."""
    for span in part.spans:
        ledger = _index_of(options, part, span)
        found = ledger.read(columns, span, part.start, part.end)
        alone = replace(part, spans=(span,))
        if found is not None:
            yield from found
        elif ledger.has_all(span, part.start, part.end):
            yield from ledger.write(_sealed(options, alone, KEPT), columns)
        else:
            yield from _sealed(options, alone, columns)


def _with_rows(options: Options, part: Task, filters: RowFilters) -> Task:
    """A task without the ledgers of which an index says that none of their rows matches."""
    if not filters:
        return part
    columns = [COLUMNS_BY_NAME[name] for name in filters.columns]
    touched = []
    for span in part.spans:
        found = _index_of(options, part, span).read(columns, span, part.start, part.end)
        if found is None or any(filters.of(batch).num_rows for batch in found):
            touched.append(span)
    return replace(part, spans=tuple(touched))


def _index_of(options: Options, part: Task, span: Span) -> IndexedLedger:
    folder, store = Path(options["indexFolder"]), options["ledgersUrl"]
    origin = Origin(part.topic, TopicName.parse(part.topic).partition)
    return IndexedLedger(folder, store, origin, span.ledger_id, part.sealed[span.ledger_id])


def _stored(options: Options) -> StoredLedgers:
    return StoredLedgers(
        options["ledgersUrl"], options["ledgersCredentials"], options["metadataCredentials"]
    )
