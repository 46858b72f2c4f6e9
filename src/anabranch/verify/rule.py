"""What a rule is: it sees each record once, counts what it judged and keeps what it found. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from anabranch.verify.facts import Facts, News
from anabranch.verify.limits import FINDINGS_PER_RULE_MAX
from anabranch.verify.records import MessageId, Place, Record

Handler = Callable[[Any, News], None]
"""Called with the record and with what was new about it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. The evidence (every record about the message) is looked up afterwards."""

    rule: str
    detail: str
    t: float
    message: MessageId | None = None
    key: str | None = None
    sub: str | None = None
    places: tuple[Place, ...] = ()


class Rule:
    """What all rules share: counting, and keeping the first findings."""

    id: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.checked = 0
        self.violations = 0
        self.tolerated = 0
        self.findings: list[Finding] = []

    def handlers(self) -> Mapping[type[Record], Handler]:
        """Return what to call for which kind of record."""
        return {}

    def conclude(self) -> None:
        """Judge what can be judged only at the end."""

    def report(self, detail: str, t: float, **where: Any) -> None:
        """Count a violation and keep it if there is room."""
        self.violations += 1
        if len(self.findings) < FINDINGS_PER_RULE_MAX:
            self.findings.append(Finding(self.id, detail, t, **where))
