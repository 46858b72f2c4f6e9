"""The job `check-history`: lost, doubled and disordered messages of runs too long for one process.

Most of a history is dismissed by arithmetic (`doubtful_rows`). What is left is given to the rules
themselves, so that both checks say the same because they are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from anabranch.errors import FormatError
from anabranch.verify.message_rules import AbortedRead, Lost, Phantom, StoredTwice
from anabranch.verify.order_rules import KeyOrder
from anabranch.verify.records import End, Subscribed
from anabranch.verify.rule import Rule
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import Status, Verdict, conclude
from pyspark_anabranch.jobs.contract import Outcome, PlanStep, StepWatch
from pyspark_anabranch.jobs.doubtful_rows import (
    BLOCK_KEYS,
    KnownSubscription,
    block_of,
    blocks,
    doubtful_groups,
    key_group,
)
from pyspark_anabranch.jobs.histories import History, read_histories, record_of
from pyspark_anabranch.jobs.job_state import JobState, kept_state
from pyspark_anabranch.jobs.watching import watched
from pyspark_anabranch.limits import RULES_TOLD_RECORDS

JUDGED: Final[tuple[type[Rule], ...]] = (Lost, Phantom, AbortedRead, StoredTwice, KeyOrder)
_ABOUT_NO_MESSAGE: Final = "text is not null and k not in ('ack', 'cursor')"
"""Acknowledgements are many, and of no interest to these rules."""
_OUTCOMES: Final = {
    Status.CLEAN: Outcome.CLEAN,
    Status.VIOLATED: Outcome.FOUND,
    Status.INCOMPLETE: Outcome.INCOMPLETE,
}


@dataclass(slots=True)
class HistoryCheck:
    """Judges a run by its histories: a folder of them, or a table that is there already."""

    folder: Path | None = None
    history: History | None = None
    keep: Path | None = None
    """Where to keep what is done, for a run that goes on if this one is ended."""
    name: str = field(default="check-history", init=False)

    def plan(self, spark: SparkSession) -> Sequence[PlanStep]:
        """See `Job.plan`."""
        history = self._history(spark)
        size = sum(Path(file).stat().st_size for file in history.files)
        read = f"{len(history.files)} histories" if history.files else "a table"
        amount, unit = (size, "bytes") if history.files else (0, "rows")
        return [
            PlanStep("few", f"subscriptions and events of {read}", amount, unit),
            PlanStep("blocks", f"counts and hashes over {read}", amount, unit),
            PlanStep("order", f"order of each key over {read}", amount, unit),
            PlanStep("rules", "what is doubtful, judged by the rules", 0, "records"),
        ]

    def run(
        self, spark: SparkSession, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """See `Job.run`."""
        files = [[file, Path(file).stat().st_size] for file in self._history(spark).files]
        with kept_state(self.keep, self.name, {"files": files}) as state:
            verdict = self.verdict(spark, watches, state)
        return _OUTCOMES[verdict.status], verdict.as_json()

    def verdict(
        self, spark: SparkSession, watches: Mapping[str, StepWatch], state: JobState
    ) -> Verdict:
        """What `anabranch verify check` says, of the rules that are judged here."""
        history = self._history(spark)
        rows = history.rows
        few = watched(spark, watches["few"], lambda: _few(rows))
        subscriptions = _subscriptions(few)

        def made(step: str, make: Callable[[], DataFrame]) -> DataFrame:
            return watched(spark, watches[step], lambda: state.table(spark, step, make)).cache()

        counted = made("blocks", lambda: blocks(rows, subscriptions))
        held = [counted]
        try:
            sums = watched(spark, watches["blocks"], lambda: _sums(counted))
            doubtful = counted.where("not clean").select(*BLOCK_KEYS)
            groups = made("order", lambda: doubtful_groups(rows, subscriptions))
            held.append(groups)
            watched(spark, watches["order"], groups.count)
            judges = _Judges(history)
            # Kept: whoever sorts reads twice, and whoever has counted knows the end.
            picked = _picked(rows, doubtful, groups).cache()
            held.append(picked)
            total = watched(spark, watches["rules"], picked.count)
            for number, row in enumerate(_in_order(picked).toLocalIterator(), start=1):
                judges.see(row)
                if number % RULES_TOLD_RECORDS == 0:
                    watches["rules"].tell(number, total)
        finally:
            for table in held:
                table.unpersist()
        return judges.conclude(sums, subscriptions)

    def _history(self, spark: SparkSession) -> History:
        if self.history is None:
            assert self.folder is not None, "there is something to check"
            self.history = read_histories(spark, self.folder)
        return self.history


def _few(rows: DataFrame) -> list[Row]:
    return rows.where(_ABOUT_NO_MESSAGE).orderBy("t", "file", "line").collect()


def _subscriptions(few: Sequence[Row]) -> list[KnownSubscription]:
    found: dict[str, KnownSubscription] = {}
    for row in few:
        record = record_of(row)
        if isinstance(record, Subscribed) and record.sub not in found:
            known = KnownSubscription(record.sub, record.t, record.type.is_ordered)
            found[record.sub] = known
    return list(found.values())


def _sums(counted: DataFrame) -> Row:
    sent = f.when(f.col("sends") > 0, f.struct("p", "e"))
    found = counted.agg(
        f.count_if(~f.col("clean")).alias("doubtful"),
        f.sum(f.when(f.col("clean"), f.col("sends"))).alias("clean_sends"),
        f.count_distinct(sent).alias("lines"),
    ).first()
    assert found is not None, "an aggregate over everything has one row"
    return found


def _picked(rows: DataFrame, doubtful: DataFrame, groups: DataFrame) -> DataFrame:
    """Records of doubtful blocks and of doubtful groups, and those about no message."""
    blocks_marked = doubtful.withColumn("in_block", f.lit(True))
    groups_marked = groups.withColumn("in_group", f.lit(True))
    grouped = f.when(f.col("k") == "recv", key_group())
    return (
        rows.withColumn("block", block_of(f.col("s")))
        .withColumn("group", grouped)
        .join(blocks_marked, list(BLOCK_KEYS), "left")
        .join(groups_marked, "group", "left")
        .where(f"in_block or in_group or ({_ABOUT_NO_MESSAGE})")
    )


def _in_order(picked: DataFrame) -> DataFrame:
    return picked.orderBy("t", "file", "line")


class _Judges:
    """The rules of single messages see whole blocks, that of the order sees whole groups."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._messages = Judge(dedup=history.dedup, rules=JUDGED)
        self._order = Judge(dedup=history.dedup, rules=(KeyOrder,))
        self._unfinished = set(range(len(history.files)))

    def see(self, row: Row) -> None:
        """One more record, in the order of time."""
        record = record_of(row)
        about_no_message = row["text"] is not None
        if about_no_message or row["in_block"]:
            try:
                self._messages.see(record)
            except FormatError as error:
                file = self._history.files[row["file"]] if self._history.files else "the table"
                raise FormatError(f"{file}: {error}") from None
        if about_no_message or row["in_group"]:
            self._order.see(record)
        if isinstance(record, End):
            self._unfinished.discard(row["file"])

    def conclude(self, sums: Row, subscriptions: Sequence[KnownSubscription]) -> Verdict:
        """The verdict on everything: what arithmetic dismissed was judged as well."""
        clean = sums["clean_sends"] or 0
        got = clean * len(subscriptions)
        counts = self._messages.facts.counts
        counts.records += 2 * clean + got
        counts.sends += clean
        counts.acknowledged += clean
        counts.deliveries += got
        counts.placed += clean
        for rule in self._messages.rules:
            if isinstance(rule, Lost | Phantom):
                rule.checked += got
            elif isinstance(rule, KeyOrder):
                rule.checked += clean * sum(one.is_ordered for one in subscriptions)
                (ordered,) = self._order.rules
                rule.violations, rule.findings = ordered.violations, ordered.findings
        missing = self._history.missing_clients
        verdict = conclude(
            self._messages, reasons=[f"client {client!r} left no history" for client in missing]
        )
        for judge in (self._messages, self._order):
            judge.facts.spill.close()
        del verdict.counts["confirmed_acks"]  # no rule here looks at acknowledgements
        verdict.counts["producers"] = sums["lines"]
        verdict.counts["doubtful_blocks"] = sums["doubtful"]
        verdict.counts["histories"] = len(self._history.files)
        verdict.counts["unfinished_histories"] = len(self._unfinished)
        return verdict
