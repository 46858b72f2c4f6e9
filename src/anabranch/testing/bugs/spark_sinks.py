"""Planted bugs of the writers of `pyspark_anabranch`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anabranch.ids import TopicName
from anabranch.testing.planted import original, planted

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.client.packing import PackedBatch
    from pyspark_anabranch.packed_rows import Columns, PackedRows
    from pyspark_anabranch.publishing import Partitions
    from pyspark_anabranch.sink_rows import SinkRow
    from pyspark_anabranch.staging import Stage, StagedRows
    from pyspark_anabranch.writers import Publishing, StagedBatchWriter, StagedStreamWriter


@planted("spark_forgets_event_times", target="pyspark_anabranch.publishing:_Lane.add")
def spark_forgets_event_times(self: Any, row: SinkRow, number: int) -> int:
    """Messages are sent without their event time."""
    row = row._replace(event_time_ms=None)
    size: int = original("spark_forgets_event_times")(self, row, number)
    return size


@planted("spark_packs_no_event_times", target="pyspark_anabranch.packed_rows:columns_of")
def spark_packs_no_event_times(batch: pa.RecordBatch) -> Columns | None:
    """Rows that are packed side by side lose their event time."""
    found: Columns | None = original("spark_packs_no_event_times")(batch)
    return None if found is None else found._replace(event_times=None)


@planted("spark_sends_known_rows_again", target="pyspark_anabranch.publishing:_Lane.cut")
def spark_sends_known_rows_again(
    self: Any, rows: PackedRows, first_number: int
) -> Iterator[PackedBatch]:
    """An entry begins with rows that the broker has, so that it takes all of it for known."""
    self._first_unknown = 0
    yield from original("spark_sends_known_rows_again")(self, rows, first_number)


@planted(
    "spark_writes_to_the_first_partition", target="pyspark_anabranch.publishing:Partitions.target"
)
def spark_writes_to_the_first_partition(
    self: Partitions, row: SinkRow, topic: TopicName | None, turn: int
) -> TopicName:
    """The partition that a row names does not count."""
    row = row._replace(partition=None)
    found: TopicName = original("spark_writes_to_the_first_partition")(self, row, topic, turn)
    return found


@planted(
    "spark_shows_rows_before_the_commit",
    target="pyspark_anabranch.writers:StagedStreamWriter.write",
)
def spark_shows_rows_before_the_commit(self: StagedStreamWriter, iterator: Iterator[Any]) -> Any:
    """A task sends its rows when it has them."""
    batches = list(iterator)
    task = self._task()
    self._publishing.send(f"{task.attempt}", task.task, task.batch_id, iter(batches))
    return original("spark_shows_rows_before_the_commit")(self, iter(batches))


@planted("spark_numbers_rows_anew", target="pyspark_anabranch.publishing:_Sender.open_lane")
async def spark_numbers_rows_anew(self: Any, target: TopicName) -> Any:
    """Rows are sent again under a name of their own each time."""
    self._name = f"{self._name}-{self._client.runtime.entropy.token_hex(4)}"
    return await original("spark_numbers_rows_anew")(self, target)


_seen_first: list[int] = []


@planted("spark_counts_batches_from_its_start", target="pyspark_anabranch.writers:Publishing.send")
def spark_counts_batches_from_its_start(
    self: Publishing, query_id: str, task: int, batch_id: int, batches: Iterator[Any]
) -> int:
    """The first batch that a process sends is number zero, whichever it is."""
    _seen_first.append(batch_id)
    plain = original("spark_counts_batches_from_its_start")
    sent: int = plain(self, query_id, task, batch_id - _seen_first[0], batches)
    return sent


@planted("spark_decides_anew_what_is_out", target="pyspark_anabranch.staging:Stage.finish")
def spark_decides_anew_what_is_out(self: Stage, batch_id: int) -> None:
    """What counted is forgotten before it is written down that it is out."""
    self.forget(batch_id)
    self._keep(f"{self._root}/published.json", {"batch_id": batch_id})


@planted("spark_attempts_have_no_token", target="pyspark_anabranch.staging:Stage._path")
def spark_attempts_have_no_token(self: Stage, staged: StagedRows) -> str:
    """Attempts are told apart by their number alone, which every run of a query begins at zero."""
    return f"{self._folder(staged.batch_id)}/{staged.task}-{staged.attempt}.arrow"


@planted(
    "spark_trusts_the_worker_python",
    target="pyspark_anabranch.environment:check_worker_python",
)
def spark_trusts_the_worker_python(environment: Mapping[str, str]) -> str:
    """Whatever Python was chosen for the workers is taken."""
    return environment.get("PYSPARK_PYTHON", sys.executable)


@planted("spark_takes_any_java", target="pyspark_anabranch.environment:java_version")
def spark_takes_any_java(java: str) -> int | None:
    """Every Java is taken to be new."""
    return 17 if original("spark_takes_any_java")(java) else None


@planted("spark_keeps_state_in_java", target="pyspark_anabranch.session:settings_of")
def spark_keeps_state_in_java(master: str) -> dict[str, str]:
    """The state of streams is where Spark has it by itself."""
    chosen: dict[str, str] = original("spark_keeps_state_in_java")(master)
    return {name: value for name, value in chosen.items() if "stateStore" not in name}


@planted("spark_takes_any_package", target="pyspark_anabranch.environment:check_packages")
def spark_takes_any_package() -> None:
    """Versions of packages do not count."""


@planted(
    "spark_batch_tasks_send_at_once",
    target="pyspark_anabranch.writers:StagedBatchWriter.write",
)
def spark_batch_tasks_send_at_once(self: StagedBatchWriter, iterator: Iterator[Any]) -> Any:
    """A task of a batch write sends its rows when it has them."""
    task = self._task(self._job_id)
    self._publishing.send(self._job_id, task.task, 0, iterator)
    return original("spark_batch_tasks_send_at_once")(self, iter(()))


@planted("spark_sends_before_it_looks", target="pyspark_anabranch.writers:Publishing.targets")
def spark_sends_before_it_looks(self: Publishing, stage: Stage, chosen: Any) -> list[TopicName]:
    """Whether rows can go where they say is found out when they are sent."""
    return []


@planted("spark_looks_at_no_rows", target="pyspark_anabranch.row_checks:check_rows")
def spark_looks_at_no_rows(batch: pa.RecordBatch, first: int, *, rows_name_topics: bool) -> None:
    """Rows that cannot be sent are found when it is their turn."""


@planted("spark_keeps_large_offsets", target="pyspark_anabranch.row_checks:with_small_offsets")
def spark_keeps_large_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose texts have the other of the two types that Arrow has for them are left out."""
    small: pa.RecordBatch = original("spark_keeps_large_offsets")(batch)
    return batch if small.schema == batch.schema else small.slice(0, 0)


@planted("spark_takes_rows_of_any_size", target="pyspark_anabranch.row_checks:check_sizes")
def spark_takes_rows_of_any_size(batch: pa.RecordBatch, *about: Any) -> None:
    """Whether the broker takes a row is found out when it is sent."""


@planted(
    "spark_decides_before_it_looks", target="pyspark_anabranch.writers:StagedStreamWriter.commit"
)
def spark_decides_before_it_looks(self: StagedStreamWriter, messages: Any, batch_id: int) -> None:
    """It is written down that rows count before it is known whether they can be sent."""
    from pyspark_anabranch.staging import Stage

    attempts = [message.staged for message in messages]
    Stage(self._checkpoint, attempts[0].query_id).decide(batch_id, attempts)
    original("spark_decides_before_it_looks")(self, messages, batch_id)


@planted("spark_spreads_keys_over_tasks", target="pyspark_anabranch.key_order:_by_key")
def spark_spreads_keys_over_tasks(rows: Any, tasks: int | None) -> Any:
    """The rows of a key are of several tasks."""
    return rows.repartition(tasks)


@planted("spark_sorts_nothing", target="pyspark_anabranch.key_order:_sorted")
def spark_sorts_nothing(rows: Any, by: Any) -> Any:
    """The rows of a task stay as they come."""
    return rows
