"""What every bulk job has: a plan that changes nothing, progress, one verdict, one exit code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from anabranch.runtime import Clock
from anabranch.runtime.real import real_runtime

FORMAT: Final = "anabranch-job"
VERSION: Final = 1


class Outcome(StrEnum):
    """What a job says in the end."""

    CLEAN = "clean"
    """Done, and everything is as it should be."""
    FOUND = "found"
    """Done, and something is not as it should be."""
    INCOMPLETE = "incomplete"
    """Not enough to say."""
    PLANNED = "planned"
    """A dry run: nothing was done."""


_EXIT_CODES: Final = {
    Outcome.CLEAN: 0,
    Outcome.PLANNED: 0,
    Outcome.FOUND: 1,
    Outcome.INCOMPLETE: 2,
}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One row of the table that a dry run shows."""

    step: str
    what: str
    amount: int
    unit: str
    writes: bool = False

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "step": self.step,
            "what": self.what,
            "amount": self.amount,
            "unit": self.unit,
            "writes": self.writes,
        }


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The one document that a job ends with."""

    job: str
    outcome: Outcome
    plan: Sequence[PlanStep]
    result: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """What a command that ran the job ends with."""
        return _EXIT_CODES[self.outcome]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "job": self.job,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 3),
            "plan": [step.as_json() for step in self.plan],
            "result": dict(self.result),
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    step: str
    done: int
    total: int
    """0 while nobody knows."""
    unit: str
    seconds: float

    @property
    def remaining_s(self) -> float | None:
        """How long it takes still, if it goes on like this; None while nobody can say."""
        if not self.done or not self.total:
            return None
        return self.seconds * (self.total - self.done) / self.done

    @property
    def text(self) -> str:
        """One line for a person."""
        remaining = self.remaining_s
        told = "" if remaining is None else f", about {remaining:,.0f} s more"
        whole = f" of {self.total:,}" if self.total else ""
        return f"{self.step}: {self.done:,}{whole} {self.unit}{told}"


OnProgress = Callable[[Progress], None]


def no_progress(progress: Progress) -> None:
    """For callers that do not want to know."""


class StepWatch:
    """Tells how far one step of a job is."""

    def __init__(self, clock: Clock, step: PlanStep, on_progress: OnProgress) -> None:
        self._clock = clock
        self._step = step
        self._on_progress = on_progress
        self._began_s = clock.monotonic_s()

    def tell(self, done: int, total: int, unit: str | None = None) -> None:
        """So much is done of so much; 0 if nobody knows of how much."""
        seconds = self._clock.monotonic_s() - self._began_s
        whole = max(done, total) if total else 0
        told = self._step.unit if unit is None else unit
        self._on_progress(Progress(self._step.step, done, whole, told, seconds))


class Job(Protocol):
    """One piece of bulk work. Running it twice does no more than running it once."""

    @property
    def name(self) -> str:
        """What `anabranch spark` calls it."""
        ...

    def plan(self, spark: SparkSession) -> Sequence[PlanStep]:
        """What would be done, in order. Changes nothing.

        Raises:
            AnabranchError: if it cannot be done, with the reason.
        """
        ...

    def run(
        self, spark: SparkSession, watches: Mapping[str, StepWatch]
    ) -> tuple[Outcome, Mapping[str, Any]]:
        """Do it; `watches` has one for each step of the plan, by name."""
        ...


def run_job(
    job: Job,
    spark: SparkSession,
    *,
    dry_run: bool = False,
    on_progress: OnProgress = no_progress,
    clock: Clock | None = None,
) -> JobVerdict:
    """Plan a job, do it unless it is a dry run, and say what came of it.

    Raises:
        AnabranchError: if it cannot be done, with the reason.
    """
    time = real_runtime().clock if clock is None else clock
    began_s = time.monotonic_s()
    plan = list(job.plan(spark))
    if dry_run:
        return JobVerdict(job.name, Outcome.PLANNED, plan, {}, time.monotonic_s() - began_s)
    watches = {step.step: StepWatch(time, step, on_progress) for step in plan}
    outcome, result = job.run(spark, watches)
    return JobVerdict(job.name, outcome, plan, result, time.monotonic_s() - began_s)
