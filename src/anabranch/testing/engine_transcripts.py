"""Readable scenarios of the migration engine: commands, and after each what it led to.

A line that begins with ">" is a command, one with "#" a remark, the others are what came of the
command before them. Pure: no store, no clock; what is played is `advance` and `barrier` alone.

    > start WHO [PARTICIPANT...]      > take-over WHO           > done [epoch N]
    > fail WHY                        > keep NAME=VALUE         > members PARTICIPANT...
    > pause|resume|abort|rollback|finalize WHO [WHY]
    > reports PARTICIPANT=now|before|ANOTHER-ATTEMPT|error:WHY...
    > run PHASE                       (steps are done until it is reached)
"""

from collections.abc import Callable, Sequence
from typing import Final

from anabranch.errors import AnabranchError
from anabranch.metadata.announced import Report
from anabranch.migrations.engine import barrier, machine
from anabranch.migrations.engine.state import (
    Asked,
    Event,
    Kept,
    MembersChanged,
    Started,
    State,
    StepDone,
    StepFailed,
    TookOver,
)
from anabranch.migrations.engine.table import Table, Verb

_STEPS_MAX: Final = 50
_VERBS: Final = [verb.value for verb in Verb]


class Transcript:
    """One scenario while it is played."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._state: State | None = None
        self._attempts = 0

    def play(self, text: str) -> str:
        """The scenario with what its commands lead to, now."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("#") or (not line and (not lines or lines[-1])):
                lines.append(line)
            elif line.startswith("> "):
                lines += [line, *self._command(line[2:].split())]
        return "\n".join(lines).rstrip() + "\n"

    def _command(self, words: Sequence[str]) -> list[str]:
        name, *rest = words
        named: dict[str, Callable[[list[str]], list[str]]] = {
            "run": self._run,
            "reports": self._reports,
        }
        if name in named:
            return named[name](rest)
        return [self._advance(self._event(name, rest))]

    def _event(self, name: str, rest: list[str]) -> Event:
        epoch, serial = self._place()
        if name in _VERBS:
            return Asked(rest[0], Verb(name), " ".join(rest[1:]))
        match name:
            case "start":
                self._attempts += 1
                return Started(rest[0], f"try-{self._attempts}", {"target": "b"}, tuple(rest[1:]))
            case "take-over":
                return TookOver(rest[0])
            case "done":
                return StepDone(int(rest[1]) if rest else epoch, serial)
            case "fail":
                return StepFailed(epoch, serial, " ".join(rest))
            case "keep":
                key, _, value = rest[0].partition("=")
                return Kept(epoch, serial, {key: value})
            case "members":
                return MembersChanged(epoch, tuple(rest))
            case _:
                raise ValueError(f"no command {name}")

    def _place(self) -> tuple[int, int]:
        if self._state is None:
            return 0, 0
        return self._state.announced.epoch, self._state.announced.serial

    def _advance(self, event: Event) -> str:
        before = self._state
        try:
            self._state, effects = machine.advance(self._table, before, event, at_ms=0)
        except AnabranchError as error:
            return f"{type(error).__name__}: {error}"
        if self._state == before:
            return "nothing changes"
        then = [effect.value for effect in effects]
        return " · ".join([*self._shown(self._state), *then])

    def _shown(self, state: State) -> list[str]:
        phase = self._table[state.phase]
        shown = [f"{state.announced.attempt} is {state.phase}", f"epoch {state.announced.epoch}"]
        shown += ["writes wait"] if phase.holds_writes else []
        shown += ["paused"] if state.paused else []
        shown += [f"participants {' '.join(state.expected)}"] if state.expected else []
        shown += [f"checkpoint {dict(state.checkpoint)}"] if state.checkpoint else []
        shown += [f"because {state.error}"] if state.error else []
        return shown

    def _run(self, rest: list[str]) -> list[str]:
        wanted = " ".join(rest)
        passed = []
        for _ in range(_STEPS_MAX):
            if self._state is None or self._state.phase == wanted:
                break
            passed.append(self._advance(self._event("done", [])))
        return passed

    def _reports(self, rest: list[str]) -> list[str]:
        assert self._state is not None, "nothing is announced yet"
        announced = self._state.announced
        reports = []
        for word in rest:
            who, _, what = word.partition("=")
            serial = announced.serial - 1 if what == "before" else announced.serial
            attempt = announced.attempt
            if what not in ("now", "before") and not what.startswith("error:"):
                attempt = what
            error = what.partition("error:")[2]
            reports.append(
                Report(who, "broker", "host", "1", attempt=attempt, serial=serial, error=error)
            )
        found = barrier.barrier(announced, reports)
        if found.failed:
            return [f"cannot open: {', '.join(f'{who}: {why}' for who, why in found.failed)}"]
        return ["open" if found.open else f"waits for {' '.join(found.waits_for)}"]
