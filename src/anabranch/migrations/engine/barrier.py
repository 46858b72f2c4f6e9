"""Whether everybody is where a phase wants them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.metadata.announced import Announced, Report


@dataclass(frozen=True, slots=True)
class Barrier:
    """What stands between a driver and the step of its phase."""

    waits_for: tuple[str, ...]
    """Participants that have not reported this announcement."""
    failed: tuple[tuple[str, str], ...]
    """Participants that cannot get there, and why."""

    @property
    def open(self) -> bool:
        """Whether the step may begin."""
        return not self.waits_for and not self.failed


def barrier(announced: Announced, reports: Sequence[Report]) -> Barrier:
    """Compare what is announced with what all who live report.

    A report for another attempt, or for an announcement before this one, counts for nothing. Who
    is not in `reports` has lost its session, and so can do nothing that counts.
    """
    waits_for, failed = [], []
    for report in reports:
        if (report.attempt, report.serial) != (announced.attempt, announced.serial):
            waits_for.append(report.id)
        elif report.error:
            failed.append((report.id, report.error))
    return Barrier(tuple(waits_for), tuple(failed))
