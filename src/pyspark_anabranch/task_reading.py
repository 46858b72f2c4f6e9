"""Tasks as Spark carries them about, and the way by which one is read."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from anabranch.errors import ConfigError
from pyspark_anabranch.batches import batches_of
from pyspark_anabranch.broker_reading import BrokerEntries
from pyspark_anabranch.limits import SMALL_TASK_BYTES
from pyspark_anabranch.look_back import LookBack
from pyspark_anabranch.options import Options
from pyspark_anabranch.planning import Task
from pyspark_anabranch.private_keys import unlocking_of
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
        # What reads stores is loaded by who wants it: it is half of what a worker loads of ours.
        from pyspark_anabranch.direct.reading import check_stored_ledgers

        check_stored_ledgers(options)
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
    for is_sealed, part in task.parts():
        if not is_sealed:
            entries = BrokerEntries(options.access, part, options["readTimeout"])
            found: Iterator[pa.RecordBatch] = batches_of(
                entries, part, columns, LookBack(options, part.topic, unlocking), unlocking
            )
        else:
            from pyspark_anabranch.direct.reading import stored_rows

            found = stored_rows(options, part, filters, unlocking)
        for batch in found:
            matching = filters.of(batch)
            if matching.num_rows:
                yield matching
