"""Planted bugs of the bulk jobs, on Spark and in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.testing.planted import original, planted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from anabranch.metadata.store import Record
    from anabranch.migrations.engine.bulk_settling import Settling
    from pyspark_anabranch.jobs.inventory_rows import Inventory


@planted("history_blocks_are_believed", target="pyspark_anabranch.jobs.doubtful_rows:_is_clean")
def history_blocks_are_believed(subscriptions: Any) -> Any:
    """No block of messages is looked at twice."""
    clean = original("history_blocks_are_believed")(subscriptions)
    return clean.isNull() | clean.isNotNull()


@planted("history_keys_are_believed", target="pyspark_anabranch.jobs.history_check:doubtful_groups")
def history_keys_are_believed(rows: Any, subscriptions: Any) -> Any:
    """No key is looked at twice."""
    return original("history_keys_are_believed")(rows, subscriptions).where("false")


@planted("history_rows_come_by_line", target="pyspark_anabranch.jobs.history_check:_in_order")
def history_rows_come_by_line(picked: Any) -> Any:
    """What is doubtful is judged in the order of its lines, not of its time."""
    return picked.orderBy("file", "line")


@planted("spark_dry_run_is_wet", target="pyspark_anabranch.jobs.contract:run_job")
def spark_dry_run_is_wet(job: Any, spark: Any, **wishes: Any) -> Any:
    """A dry run does everything."""
    return original("spark_dry_run_is_wet")(job, spark, **wishes | {"dry_run": False})


@planted("jobs_take_what_is_done_for_all", target="pyspark_anabranch.jobs.contract:StepWatch.tell")
def jobs_take_what_is_done_for_all(self: Any, done: int, total: int, unit: Any = None) -> None:
    """Whoever asks is always told that the end is reached."""
    original("jobs_take_what_is_done_for_all")(self, done, min(done, total), unit)


@planted("jobs_know_no_rate", target="pyspark_anabranch.jobs.part_runs:share_of")
def jobs_know_no_rate(rate: float | None, spark: Any, parts: int) -> float | None:
    """Tasks go as fast as they can."""
    return None


@planted("jobs_allow_each_task_what_all_may", target="pyspark_anabranch.jobs.part_runs:share_of")
def jobs_allow_each_task_what_all_may(rate: float | None, spark: Any, parts: int) -> float | None:
    """That tasks run side by side does not count."""
    return rate


@planted(
    "jobs_share_a_rate_with_tasks_that_wait", target="pyspark_anabranch.jobs.part_runs:share_of"
)
def jobs_share_a_rate_with_tasks_that_wait(
    rate: float | None, spark: Any, parts: int
) -> float | None:
    """Tasks that wait for a core have their share, and leave it unused."""
    from pyspark_anabranch.limits import PARTS_AT_ONCE_PER_CORE

    share = original("jobs_share_a_rate_with_tasks_that_wait")(rate, spark, parts)
    return None if share is None else share / PARTS_AT_ONCE_PER_CORE


@planted("spark_cuts_off_the_last_part", target="pyspark_anabranch.jobs.spark_bulk:cut")
async def spark_cuts_off_the_last_part(*arguments: Any) -> Any:
    """The last part of a tree is nobody's."""
    parts = await original("spark_cuts_off_the_last_part")(*arguments)
    return parts[:-1] if len(parts) > 2 else parts


@planted(
    "catching_up_copies_again",
    target="anabranch.metadata.transfer.catching_up:CatchingUp._missing",
)
async def catching_up_copies_again(
    self: Any, ours: AsyncIterator[Record], there: AsyncIterator[Record], present: Any, done: Any
) -> AsyncIterator[Record]:
    """What is there is not looked at."""
    async for record in self._counted(ours, done):
        yield record


@planted(
    "trees_are_judged_at_first_sight",
    target="anabranch.migrations.engine.bulk_settling:Settling._look",
)
async def trees_are_judged_at_first_sight(self: Settling, path: str) -> Any:
    """What was different once stays different."""
    return next(known for known in self.doubtful if known.path == path)


@planted(
    "trees_are_looked_at_twice_at_once",
    target="anabranch.migrations.engine.bulk_settling:Settling._pause",
)
async def trees_are_looked_at_twice_at_once(self: Settling, look: int) -> None:
    """The second look comes at once."""
    if look:
        await original("trees_are_looked_at_twice_at_once")(self, look)


@planted("trees_may_have_more", target="anabranch.migrations.engine.bulk_settling:Settling.add")
async def trees_may_have_more(self: Settling, difference: Any) -> None:
    """Nodes that only the copy has are passed over."""
    if difference.left is not None:
        await original("trees_may_have_more")(self, difference)


@planted("spark_believes_digests", target="pyspark_anabranch.jobs.spark_bulk:is_doubtful")
def spark_believes_digests(digests: Any) -> bool:
    """No part is read again."""
    return False


@planted("spark_reads_every_part_again", target="pyspark_anabranch.jobs.spark_bulk:is_doubtful")
def spark_reads_every_part_again(digests: Any) -> bool:
    """Digests spare nobody anything."""
    return True


@planted("spark_forgets_the_last_difference", target="pyspark_anabranch.jobs.spark_bulk:together")
def spark_forgets_the_last_difference(results: Sequence[Any]) -> Any:
    """One of the differences that tasks found is not told."""
    found = original("spark_forgets_the_last_difference")(results)
    return replace(found, mismatches=found.mismatches[:-1])


@planted(
    "spark_leaves_nodes_above_open",
    target="pyspark_anabranch.jobs.spark_bulk:SparkBulk._copy_parts",
)
async def spark_leaves_nodes_above_open(
    self: Any, between: Any, wishes: Any, parts: Any, note: Any, opened_below: Any
) -> None:
    """Nobody cares for the nodes above a part whose task has failed."""
    del opened_below
    await original("spark_leaves_nodes_above_open")(self, between, wishes, parts, note, None)


@planted("inventory_knows_no_age", target="pyspark_anabranch.jobs.inventory_rows:Inventory.judge")
def inventory_knows_no_age(
    self: Inventory, before_ms: int, makers: Sequence[str], doubt: str
) -> None:
    """No ledger is young."""
    original("inventory_knows_no_age")(self, 2**62, makers, doubt)


@planted(
    "inventory_ignores_migrations",
    target="pyspark_anabranch.jobs.inventory:operation_under_way",
)
async def inventory_ignores_migrations(store: Any) -> str:
    """Metadata that are being moved are taken for all there are."""
    return ""


@planted("job_state_is_never_read", target="pyspark_anabranch.jobs.job_state:JobState.done")
def job_state_is_never_read(self: Any, step: str) -> dict[str, Any]:
    """A run that goes on begins anew."""
    return {}


@planted("job_tables_are_made_again", target="pyspark_anabranch.jobs.job_state:JobState.table")
def job_tables_are_made_again(self: Any, spark: Any, step: str, make: Any) -> Any:
    """A table that was kept is not looked for."""
    return make()


@planted(
    "replacement_believes_a_failed_engine",
    target="anabranch.migrations.freeze_copy.tail:Tail._differences",
)
async def replacement_believes_a_failed_engine(
    self: Any, on_nodes: Any, pace: Any, rests: Any
) -> AsyncIterator[str]:
    """What an engine did not say is taken for the same."""
    return
    yield ""
