"""How an operation is, as JSON, as text for a terminal, and as figures. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.metadata.announced import Report
from anabranch.migrations.engine.progress import Shown
from anabranch.migrations.engine.state import State
from anabranch.migrations.engine.table import Outward, Table, Verb
from anabranch.telemetry.metrics import Metric, Sample, gauge


@dataclass(frozen=True, slots=True)
class Status:
    """All that is known of the newest attempt."""

    kind: str
    table: Table
    state: State | None
    """None if there never was one."""
    reports: Sequence[Report]
    shown: Shown | None

    @property
    def outward(self) -> Outward:
        """The phase in the words of Pulsar's interface."""
        if self.state is None:
            return Outward.NOT_STARTED
        return self.table[self.state.phase].outward

    @property
    def verbs(self) -> list[str]:
        """What can be asked now."""
        if self.state is None:
            return ["start"]
        phase = self.table[self.state.phase]
        if phase.ends:
            return ["start"]
        named = (Verb.ABORT, Verb.ROLLBACK, Verb.FINALIZE)
        verbs = [verb.value for verb in named if getattr(phase, verb.value)]
        if self.state.one_way and Verb.ROLLBACK.value in verbs:
            verbs.remove(Verb.ROLLBACK.value)
        if self.state.paused:
            return [Verb.RESUME.value, *verbs]
        return [Verb.PAUSE.value, *verbs] if phase.pausable else verbs

    @property
    def held_ms(self) -> int:
        """How long writes waited in this attempt, in the phases that are over."""
        return 0 if self.state is None else self.state.held_ms

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        state = self.state
        if state is None:
            return {"kind": self.kind, "phase": None, "verbs": self.verbs}
        return {
            "kind": self.kind,
            **asdict(state.announced),
            "outward": self.outward.value,
            "words": self.table[state.phase].words,
            "holds_writes": self.table[state.phase].holds_writes,
            "held_ms": self.held_ms,
            "paused": state.paused,
            "driver": state.driver,
            "error": state.error,
            "one_way": state.one_way,
            "entered_ms": state.entered_ms,
            "figures": dict(state.figures),
            "verbs": self.verbs,
            "progress": self._progress(),
            "participants": [self._participant(report) for report in self.reports],
            "trail": [asdict(line) for line in state.trail],
            "trail_dropped": state.trail_dropped,
        }

    def _progress(self) -> dict[str, Any] | None:
        shown, state = self.shown, self.state
        if shown is None or state is None:
            return None
        if (shown.attempt, shown.phase) != (state.announced.attempt, state.phase):
            return None
        return {
            **asdict(shown.progress),
            "waits_for": list(shown.waits_for),
            "trouble": shown.trouble,
        }

    def _participant(self, report: Report) -> dict[str, Any]:
        assert self.state is not None
        announced = self.state.announced
        there = (report.attempt, report.serial) == (announced.attempt, announced.serial)
        return {**asdict(report), "there": there and not report.error}

    def lines(self) -> Iterator[str]:
        """For people; a live view shows them again and again."""
        state = self.state
        if state is None:
            yield f"{self.kind}: never started"
            return
        announced = state.announced
        phase = self.table[state.phase]
        held = ", writes wait" if phase.holds_writes else ""
        paused = ", paused" if state.paused else ""
        yield f"{self.kind}: {phase.name}{paused}{held} ({phase.words})"
        yield f"attempt   {announced.attempt}, number {announced.number}, epoch {announced.epoch}"
        for name, value in announced.parameters.items():
            yield f"{name:<9} {value}"
        if state.driver:
            yield f"driver    {state.driver}"
        progress = self._progress()
        if progress is not None:
            yield f"progress  {_progress_words(progress)}"
        if state.error:
            yield f"because   {state.error}"
        if state.one_way:
            yield f"one way   {state.one_way}"
        if self.held_ms:
            yield f"held      {self.held_ms} ms so far"
        for report in self.reports:
            there = self._participant(report)["there"]
            sign = "!" if report.error else "+" if there else "."
            detail = report.error or f"{report.phase or 'no phase'}, lag {report.lag}"
            yield f"  {sign} {report.id} ({report.role} {report.version}, {report.host}): {detail}"
        if not phase.ends:
            yield f"you may   {', '.join(self.verbs) or 'wait'}"

    def metrics(self) -> Iterator[Metric]:
        """For Prometheus."""
        state = self.state
        phase = "not started" if state is None else state.phase
        name = "anabranch_migration"
        yield Metric(
            f"{name}_phase",
            "gauge",
            "1 for the phase that an operation is in.",
            (Sample(1, {"operation": self.kind, "phase": phase}),),
        )
        if state is None:
            return
        announced = state.announced
        figures = [
            ("epoch", "Rises with every driver and attempt.", announced.epoch),
            ("attempts", "How often it was started.", announced.number),
            ("paused", "1 while somebody has paused it.", int(state.paused)),
            ("failed", "1 if the newest attempt met an error.", int(bool(state.error))),
            ("held_seconds", "How long writes have waited.", self.held_ms / 1000),
            ("participants", "Processes that take part.", len(self.reports)),
            (
                "participants_waited_for",
                "Processes that have not reported the phase.",
                sum(not self._participant(report)["there"] for report in self.reports),
            ),
        ]
        progress = self._progress()
        if progress is not None:
            figures += [
                ("done", "What the phase has done.", progress["done"]),
                ("bytes", "What the phase has moved.", progress["bytes"]),
                ("lag", "What is known and not yet copied.", progress["lag"] or 0),
                (
                    "troubled",
                    "1 while a step is tried again after an error.",
                    int(bool(progress["trouble"])),
                ),
            ]
        for figure, words, value in figures:
            yield gauge(f"{name}_{figure}", words, value, operation=self.kind)


def _progress_words(progress: dict[str, Any]) -> str:
    done, total = progress["done"], progress["total"]
    parts = [f"{done} of {total} ({done / total:.0%})" if total else str(done)]
    parts += [f"{progress['bytes']} bytes"] if progress["bytes"] else []
    parts += [f"lag {progress['lag']}"] if progress["lag"] is not None else []
    parts += [progress["words"]] if progress["words"] else []
    if progress["waits_for"]:
        parts.append(f"waits for {', '.join(progress['waits_for'])}")
    if progress["trouble"]:
        parts.append(f"tried again after: {progress['trouble']}")
    return ", ".join(parts)
