"""Tasks as Spark carries them about, and the way by which one is read."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from anabranch.errors import ConfigError
from anabranch.ids import TopicName
from pyspark_anabranch.batches import batches_of
from pyspark_anabranch.broker_reading import BrokerEntries
from pyspark_anabranch.direct.column_index import KEPT, IndexedLedger
from pyspark_anabranch.direct.sealed_entries import SealedEntries
from pyspark_anabranch.direct.stored_ledgers import StoredLedgers
from pyspark_anabranch.encrypted_entries import NO_KEYS, Unlocking
from pyspark_anabranch.limits import SMALL_TASK_BYTES
from pyspark_anabranch.look_back import LookBack
from pyspark_anabranch.options import Options
from pyspark_anabranch.places import Span
from pyspark_anabranch.planning import Task
from pyspark_anabranch.private_keys import unlocking_of
from pyspark_anabranch.row_columns import COLUMNS_BY_NAME, Column, Origin
from pyspark_anabranch.row_filters import NO_FILTERS, RowFilters


class TaskPartition(InputPartition):
    """What one task of Spark reads: tasks of ours, one after the other."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__(tasks)
        self.tasks = tuple(tasks)


def partitions_of(tasks: Sequence[Task]) -> list[InputPartition]:
    """Tasks as Spark wants them."""
    return [TaskPartition([task]) for task in tasks]


def few_partitions_of(
    tasks: Sequence[Task], sizes: Sequence[int], options: Options
) -> list[InputPartition]:
    """The same, where tasks that have little to do are put together.

    To hand a task to a Python takes Spark longer than that takes to read some hundred messages.

    Args:
        tasks: what is to be read.
        sizes: how many bytes each of them has, about.
        options: of the query; where they limit tasks, each stays alone.
    """
    if options["maxRowsPerTask"] is not None or options["maxBytesPerTask"] is not None:
        return partitions_of(tasks)
    found: list[list[Task]] = []
    entries = size = 0
    for task, more in zip(tasks, sizes, strict=True):
        count = sum(span.entries for span in task.spans)
        entries, size = entries + count, size + more
        if not found or size > SMALL_TASK_BYTES or entries > options["maxEntriesPerTask"]:
            found.append([])
            entries, size = count, more
        found[-1].append(task)
    return [TaskPartition(together) for together in found]


def check_ledgers(options: Options) -> None:
    """Refuse a ledger store that no task can read.

    Raises:
        ConfigError: naming what is wrong.
    """
    if options["ledgersUrl"]:
        _stored(options).check()
        return
    for name in ("ledgersCredentials", "metadataCredentials", "indexFolder"):
        if options.is_given(name):
            raise ConfigError(f"option {name} is of no use without ledgersUrl")


def read_task(
    options: Options, partition: InputPartition, filters: RowFilters = NO_FILTERS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as Arrow batches; of no tasks Spark makes one that is none."""
    if isinstance(partition, TaskPartition):
        for task in partition.tasks:
            yield from _read(options, task, filters)


def _read(options: Options, task: Task, filters: RowFilters) -> Iterator[pa.RecordBatch]:
    columns = options.columns
    unlocking = unlocking_of(options)
    is_light = all(column.name != "value" for column in columns)
    for is_sealed, part in task.parts():
        if not is_sealed:
            entries = BrokerEntries(options.access, part, options["readTimeout"])
            found: Iterator[pa.RecordBatch] = batches_of(
                entries, part, columns, LookBack(options, part.topic, unlocking), unlocking
            )
        elif not options["indexFolder"]:
            found = _sealed(options, part, columns, unlocking)
        elif is_light:
            found = _indexed(options, part, columns)
        else:
            found = _sealed(options, _with_rows(options, part, filters), columns)
        for batch in found:
            matching = filters.of(batch)
            if matching.num_rows:
                yield matching


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
