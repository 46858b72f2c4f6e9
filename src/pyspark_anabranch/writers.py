"""DataFrames written to topics: at once by every task, or when their batch is decided."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from anabranch.errors import AnabranchError, ConfigError
from anabranch.ids import TopicName
from anabranch.runtime.real import real_runtime
from pyspark_anabranch.admin_view import AdminView
from pyspark_anabranch.broker_calls import run
from pyspark_anabranch.limits import SURELY_TAKEN_BYTES
from pyspark_anabranch.options import Options
from pyspark_anabranch.publishing import (
    Partitions,
    check_deduplication,
    largest_message,
    producer_name,
    publish,
)
from pyspark_anabranch.row_checks import LookedAt, check_sizes
from pyspark_anabranch.sink_rows import sink_rows
from pyspark_anabranch.staging import Stage, StagedRows

_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which attempt at which task of which batch this process runs."""

    query_id: str
    batch_id: int
    task: int
    attempt: int


def running_task(query_id: str = "") -> TaskIdentity:
    """What Spark says about the task that runs here."""
    context = TaskContext.get()
    assert context is not None, "only a task writes"
    return TaskIdentity(
        context.getLocalProperty(_QUERY_PROPERTY) or query_id,
        int(context.getLocalProperty(_BATCH_PROPERTY) or 0),
        context.partitionId(),
        context.taskAttemptId(),
    )


class Publishing:
    """What both kinds of writers need to send rows."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.topic: TopicName | None = options["topic"][0] if options["topic"] else None

    @property
    def view(self) -> AdminView:
        """The admin interface."""
        return self._options.access.view()

    def look_at(self, batches: Iterator[pa.RecordBatch]) -> LookedAt:
        """Look at rows before they are handed on."""
        return LookedAt(batches, rows_name_topics=self.topic is None)

    def targets(self, stage: Stage, chosen: Sequence[StagedRows]) -> list[TopicName]:
        """Where rows may go.

        Raises:
            NotFound: if a topic is not there.
            ConfigError: if a row names a partition that its topic has not.
        """
        partitions = Partitions(self.view)
        found = set(partitions.of(str(self.topic))) if self.topic is not None else set()
        for staged in chosen:
            if stage.says_where(staged):
                rows = sink_rows(stage.read(staged))
                found |= {partitions.target(row, self.topic, row.number) for row in rows}
        return sorted(found, key=str)

    def check_sizes(self, stage: Stage, chosen: Sequence[StagedRows]) -> None:
        """Look at rows that some broker may find too large.

        Raises:
            InputError: naming one that is.
        """
        large = [staged for staged in chosen if staged.largest_bytes > SURELY_TAKEN_BYTES]
        if not large:
            return
        message_bytes_max = run(largest_message(self._options.access))
        for staged in large:
            first, name = 0, producer_name(staged.query_id, staged.task)
            for batch in stage.read(staged):
                check_sizes(batch, first, message_bytes_max, self._options["compression"], name)
                first += batch.num_rows

    def send(
        self, query_id: str, task: int, batch_id: int, batches: Iterator[pa.RecordBatch]
    ) -> int:
        """Send the rows of a task under a name that only it has."""
        return run(
            publish(
                self._options.access,
                Partitions(self.view),
                batches,
                topic=self.topic,
                name=producer_name(query_id, task),
                batch_id=batch_id,
                compression=self._options["compression"],
            )
        )


class HalfWritten(AnabranchError):
    """A batch write failed after it had sent rows; says how many."""


@dataclass
class Sent(WriterCommitMessage):
    """A task sent so many rows."""

    rows: int


class DirectBatchWriter(DataSourceArrowWriter):
    """Every task sends its rows. A task that is tried again goes on behind what is stored."""

    def __init__(self, options: Options, job_id: str) -> None:
        self._publishing = Publishing(options)
        self._job_id = job_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See `DataSourceArrowWriter.write`."""
        task = running_task(self._job_id)
        return Sent(self._publishing.send(task.query_id, task.task, 0, iterator))


class StagedBatchWriter(DataSourceArrowWriter):
    """Tasks keep their rows, and the driver publishes them when all are there."""

    def __init__(
        self, options: Options, job_id: str, task: Callable[[str], TaskIdentity] | None = None
    ) -> None:
        self._publishing = Publishing(options)
        self._job_id = job_id
        self._folder = options["stagingFolder"] or tempfile.gettempdir()
        self._task = task or running_task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See `DataSourceArrowWriter.write`; nobody sees the rows yet.

        Raises:
            InputError: if a row cannot be sent.
        """
        stage, task = Stage(self._folder, self._job_id), self._task(self._job_id)
        return _stage(stage, task, self._publishing.look_at(iterator))

    def commit(self, messages: Sequence[Any]) -> None:
        """See `DataSourceWriter.commit`.

        Raises:
            ConfigError: if the driver does not see what tasks kept, or a row goes nowhere.
            InputError: if a row is too large.
            HalfWritten: if it could send some of the rows only.
        """
        stage, chosen = Stage(self._folder, self._job_id), _attempts(messages)
        _check_kept(
            stage,
            chosen,
            f"{self._folder} of the driver: set stagingFolder to a folder that all machines share, "
            "or guarantee to at_least_once",
        )
        self._publishing.targets(stage, chosen)
        self._publishing.check_sizes(stage, chosen)
        sent = 0
        for number, staged in enumerate(chosen):
            try:
                rows = stage.read(staged)
                sent += self._publishing.send(self._job_id, staged.task, 0, rows)
            except AnabranchError as error:
                total = sum(each.rows for each in chosen)
                raise HalfWritten(
                    f"{sent} of {total} rows are in the topic, and some of task {staged.task}, "
                    f"the {number + 1}. of {len(chosen)}, may be: {error}"
                ) from error
        stage.remove()

    def abort(self, messages: Sequence[Any]) -> None:
        """See `DataSourceWriter.abort`."""
        Stage(self._folder, self._job_id).remove()


class DirectStreamWriter(DataSourceStreamArrowWriter):
    """At least once: every task sends its rows, numbered by batch and place."""

    def __init__(self, options: Options) -> None:
        self._publishing = Publishing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See `DataSourceStreamArrowWriter.write`."""
        task = running_task()
        sent = self._publishing.send(task.query_id, task.task, task.batch_id, iterator)
        return Sent(sent)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """See `DataSourceStreamWriter.commit`; everything is out."""

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """See `DataSourceStreamWriter.abort`; sent again, rows are known by their numbers."""


@dataclass
class Staged(WriterCommitMessage):
    """A task keeps its rows here."""

    staged: StagedRows


class StagedStreamWriter(DataSourceStreamArrowWriter):
    """Each row once: tasks keep their rows, and the driver publishes what it decided on."""

    def __init__(self, options: Options, task: Callable[[], TaskIdentity] = running_task) -> None:
        checkpoint = options.checkpoint
        if not checkpoint:
            raise ConfigError("option checkpointLocation is missing: rows are kept there first")
        self._checkpoint = checkpoint
        self._publishing = Publishing(options)
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See `DataSourceStreamArrowWriter.write`; nobody sees the rows yet.

        Raises:
            InputError: if a row cannot be sent.
        """
        task = self._task()
        stage = Stage(self._checkpoint, task.query_id)
        return _stage(stage, task, self._publishing.look_at(iterator))

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """See `DataSourceStreamWriter.commit`; may come again for a batch that is out.

        Rows that cannot be sent are found before it is decided that they count, so that a query
        which makes other rows can go on with the checkpoint.
        """
        attempts = _attempts(messages)
        if not attempts:
            return
        stage = Stage(self._checkpoint, attempts[0].query_id)
        if stage.is_published(batchId):
            stage.forget(batchId)
            return
        chosen = stage.decided(batchId) or attempts
        _check_kept(
            stage,
            chosen,
            f"{self._checkpoint} of the driver: the checkpoint has to be a folder that all "
            "machines share, and to stay as it is",
        )
        targets = self._publishing.targets(stage, chosen)
        check_deduplication(self._publishing.view, targets)
        self._publishing.check_sizes(stage, chosen)
        stage.decide(batchId, chosen)
        for staged in chosen:
            self._publishing.send(staged.query_id, staged.task, batchId, stage.read(staged))
        stage.finish(batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """See `DataSourceStreamWriter.abort`; comes also after a commit that failed half way."""
        attempts = _attempts(messages)
        if attempts:
            stage = Stage(self._checkpoint, attempts[0].query_id)
            if stage.decided(batchId) is None:
                stage.discard(attempts)


def _stage(stage: Stage, task: TaskIdentity, rows: LookedAt) -> WriterCommitMessage:
    token = real_runtime().entropy.token_hex(4)
    staged = StagedRows(task.query_id, task.batch_id, task.task, task.attempt, 0, token)
    stage.write(staged, None, iter(rows))
    return Staged(replace(staged, rows=rows.rows, largest_bytes=rows.largest_bytes))


def _check_kept(stage: Stage, chosen: Sequence[StagedRows], where: str) -> None:
    for staged in chosen:
        if staged.rows and not stage.has(staged):
            raise ConfigError(f"the rows of task {staged.task} are not in {where}")


def _attempts(messages: Sequence[Any]) -> list[StagedRows]:
    return [message.staged for message in messages if isinstance(message, Staged)]
