"""The verdict: what was judged, what was found, and whether that is enough to call a run clean.

Pure. `status` is `clean` only if messages were acknowledged, every subscription was drained, the
rules that need input had it, and none found anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from anabranch.verify.cursor_rules import AckedAgain
from anabranch.verify.message_rules import Lost
from anabranch.verify.order_rules import Stuck
from anabranch.verify.rule import Finding
from anabranch.verify.rules import Judge

FORMAT: Final = "anabranch-verdict"
VERSION: Final = 1
_SHOWN_PER_RULE: Final = 5
_COUNTS_PER_LINE: Final = 5
_NEED_INPUT: Final = ("C1", "C2")


class Status(StrEnum):
    """What can be said of a run."""

    CLEAN = "clean"
    VIOLATED = "violated"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule judged."""

    id: str
    title: str
    checked: int
    violations: int
    tolerated: int


@dataclass(slots=True)
class Violation:
    """A finding with its evidence."""

    finding: Finding
    key: str | None = None
    phase: str = ""
    """The last event before it."""
    records: list[str] = field(default_factory=list)
    """Everything the histories say about the message, as `file:line t=… kind …`."""

    def as_json(self) -> dict[str, Any]:
        """The violation as JSON values."""
        finding = self.finding
        message = finding.message
        return {
            "rule": finding.rule,
            "detail": finding.detail,
            "t": finding.t,
            "phase": self.phase,
            "producer": message.producer if message else None,
            "epoch": message.epoch if message else None,
            "seq": message.seq if message else None,
            "key": self.key,
            "subscription": finding.sub,
            "positions": [str(place) for place in finding.places],
            "records": self.records,
        }

    def as_text(self) -> str:
        """The violation as a few lines."""
        finding = self.finding
        parts = [finding.rule]
        if finding.message:
            parts.append("producer {} epoch {} seq {}".format(*finding.message))
        if self.key:
            parts.append(f"key {self.key!r}")
        if finding.places:
            parts.append("at " + ", ".join(map(str, finding.places)))
        head = "  ".join(parts) + f"  {finding.detail}"
        tail = [f"      after {self.phase}"] if self.phase else []
        return "\n".join([f"  {head}", *tail, *(f"      {line}" for line in self.records)])


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check."""

    status: Status
    reasons: Sequence[str]
    """Why the run cannot be called clean although nothing was found."""
    counts: dict[str, int]
    figures: dict[str, float]
    rules: Sequence[RuleResult]
    violations: Sequence[Violation]

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "status": self.status.value,
            "reasons": list(self.reasons),
            "counts": self.counts,
            "figures": self.figures,
            "rules": [
                {
                    "id": rule.id,
                    "title": rule.title,
                    "checked": rule.checked,
                    "violations": rule.violations,
                    "tolerated": rule.tolerated,
                }
                for rule in self.rules
            ],
            "violations": [violation.as_json() for violation in self.violations],
        }

    def as_text(self) -> str:
        """The verdict for a terminal."""
        counts = [f"{name.replace('_', ' ')} {n:,}" for name, n in self.counts.items()]
        lines = [
            "  ".join(counts[i : i + _COUNTS_PER_LINE])
            for i in range(0, len(counts), _COUNTS_PER_LINE)
        ]
        lines.append(
            "  ".join(f"{name.replace('_', ' ')} {n:g}" for name, n in self.figures.items())
        )
        lines.append("")
        lines.append("rule                        checked  violations  tolerated")
        lines += [
            f"{rule.id:<4} {rule.title:<19} {rule.checked:>11,} {rule.violations:>11,}"
            f" {rule.tolerated:>10,}"
            for rule in self.rules
        ]
        for rule in self.rules:
            found = [v for v in self.violations if v.finding.rule == rule.id][:_SHOWN_PER_RULE]
            if found:
                lines += ["", f"{rule.id} {rule.title}: {len(found)} of {rule.violations}"]
                lines += [violation.as_text() for violation in found]
        lines += ["", *(f"not enough to judge: {reason}" for reason in self.reasons)]
        lines.append(f"verdict: {self.status.value}")
        return "\n".join(lines)


def conclude(judge: Judge, *, reasons: Sequence[str] = ()) -> Verdict:
    """Let the judge conclude and say what follows; evidence is added by who has the records."""
    judge.conclude()
    facts = judge.facts
    counts = facts.counts
    lacking = list(reasons)
    if not counts.acknowledged:
        lacking.append("no send was acknowledged")
    if not facts.subscriptions:
        lacking.append("there was no subscription")
    for rule in judge.rules:
        if rule.id in _NEED_INPUT and not rule.checked:
            lacking.append(f"rule {rule.id} ({rule.title}) had nothing to judge")
        if isinstance(rule, Lost) and rule.undecided:
            lacking.append(
                f"{rule.undecided} acknowledged messages had not arrived when the run was cut short"
            )
    lacking += [
        f"subscription {subscription.name!r} was not drained"
        for subscription in facts.subscriptions.values()
        if subscription.drained_at is None
    ]
    if any(rule.violations for rule in judge.rules):
        status = Status.VIOLATED
    else:
        status = Status.INCOMPLETE if lacking else Status.CLEAN
    return Verdict(
        status,
        lacking,
        {
            "records": counts.records,
            "sends": counts.sends,
            "acknowledged": counts.acknowledged,
            "failed": counts.failed,
            "unknown": facts.unknown_sends(),
            "confirmed_acks": counts.confirmed,
            "deliveries": counts.deliveries,
            "redeliveries": counts.redeliveries,
            "subscriptions": len(facts.subscriptions),
            "producers": len(facts.lines),
            "events": counts.events,
        },
        _figures(judge),
        [
            RuleResult(rule.id, rule.title, rule.checked, rule.violations, rule.tolerated)
            for rule in judge.rules
        ],
        [Violation(finding, finding.key) for rule in judge.rules for finding in rule.findings],
    )


def _figures(judge: Judge) -> dict[str, float]:
    figures = {}
    for rule in judge.rules:
        if isinstance(rule, AckedAgain):
            figures["longest_undone_ack_s"] = round(rule.longest_lag_s, 3)
        elif isinstance(rule, Stuck):
            figures["longest_wait_s"] = round(rule.longest_s, 3)
            figures["longest_wait_in_window_s"] = round(rule.longest_in_window_s, 3)
    return figures
