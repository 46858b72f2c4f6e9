"""The jobs `copy-metadata` and `verify-metadata`: whole trees, between any two stores."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.metadata.credentials import NO_CREDENTIALS, Credentials
from anabranch.migrations.engine.bulk import (
    PLAIN_COMPARISON,
    PLAIN_COPY,
    CompareWishes,
    CopyWishes,
    Mismatch,
    StorePlace,
)
from pyspark_anabranch.jobs.contract import Outcome, PlanStep, StepWatch
from pyspark_anabranch.jobs.job_state import JobState, kept_state
from pyspark_anabranch.jobs.spark_bulk import SparkBulk


@dataclass(slots=True)
class MetadataCopy:
    """Brings a store up to another, and lays both side by side afterwards."""

    source: StorePlace
    target: StorePlace
    prefix: str = "/"
    wishes: CopyWishes = PLAIN_COPY
    credentials: Credentials = NO_CREDENTIALS
    verify: bool = True
    keep: Path | None = None
    """Where to keep what is done, for a run that goes on if this one is ended."""
    name: str = field(default="copy-metadata", init=False)

    def plan(self, spark: SparkSession) -> Sequence[PlanStep]:
        """See `Job.plan`."""
        parts = _parts(spark, self.source, self.target, self.prefix, self.credentials)
        what = f"{self.source.name} to {self.target.name}, {self.prefix} and below"
        steps = [PlanStep("copy", what, parts, "parts", writes=True)]
        if self.verify:
            steps.append(PlanStep("verify", "both side by side", parts, "parts"))
        return steps

    def run(
        self, spark: SparkSession, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """See `Job.run`."""
        of: dict[str, Any] = {
            "from": self.source.name,
            "to": self.target.name,
            "prefix": self.prefix,
        }
        of |= {"overwrite": self.wishes.overwrite, "drop_acls": self.wishes.drop_acls}
        with kept_state(self.keep, self.name, of) as state:
            return self._run(spark, state, watches)

    def _run(
        self, spark: SparkSession, state: JobState, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        copying = SparkBulk(spark, self.credentials, state, watches["copy"].tell)
        copied = asyncio.run(copying.copy(self.source, self.target, self.prefix, self.wishes))
        result: dict[str, Any] = copied.as_json()
        if not self.verify:
            return Outcome.CLEAN, result
        verifying = SparkBulk(spark, self.credentials, state, watches["verify"].tell)
        wishes = CompareWishes(nodes_per_s=self.wishes.nodes_per_s)
        found = asyncio.run(verifying.compare(self.source, self.target, self.prefix, wishes))
        # What the target had besides was never to be copied.
        lacking = {kind: count for kind, count in found.counts.items() if kind != Mismatch.EXTRA}
        result["verified"] = found.as_json()
        return (Outcome.FOUND if any(lacking.values()) else Outcome.CLEAN), result


@dataclass(slots=True)
class MetadataVerification:
    """Says whether a store is a copy of another, and where not."""

    left: StorePlace
    right: StorePlace
    prefix: str = "/"
    wishes: CompareWishes = PLAIN_COMPARISON
    credentials: Credentials = NO_CREDENTIALS
    keep: Path | None = None
    """Where to keep what is done, for a run that goes on if this one is ended."""
    name: str = field(default="verify-metadata", init=False)

    def plan(self, spark: SparkSession) -> Sequence[PlanStep]:
        """See `Job.plan`."""
        parts = _parts(spark, self.left, self.right, self.prefix, self.credentials)
        how = "by digests of parts" if self.wishes.by_digest else "side by side"
        what = f"{self.left.name} and {self.right.name}, {self.prefix} and below, {how}"
        return [PlanStep("compare", what, parts, "parts")]

    def run(
        self, spark: SparkSession, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """See `Job.run`."""
        of: dict[str, Any] = {"left": self.left.name, "right": self.right.name}
        of |= {"prefix": self.prefix}
        of |= {"ephemerals": self.wishes.ephemerals, "by_digest": self.wishes.by_digest}
        with kept_state(self.keep, self.name, of) as state:
            engine = SparkBulk(spark, self.credentials, state, watches["compare"].tell)
            found = asyncio.run(engine.compare(self.left, self.right, self.prefix, self.wishes))
        return (Outcome.CLEAN if found.is_same else Outcome.FOUND), found.as_json()


def _parts(
    spark: SparkSession, left: StorePlace, right: StorePlace, prefix: str, secret: Credentials
) -> int:
    engine = SparkBulk(spark, secret)
    return len(asyncio.run(engine.parts(engine.between(left, right), prefix)))
