"""Checks a folder of histories: one pass to judge, a second one for the evidence if needed."""

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.errors import FormatError
from anabranch.verify.cursor_rules import AckedAgain
from anabranch.verify.facts import News
from anabranch.verify.history import HistoryFolder, Located
from anabranch.verify.limits import RECORDS_PER_FINDING_MAX, STUCK_IN_WINDOW_S_MAX
from anabranch.verify.record_lines import encode
from anabranch.verify.records import (
    Ack,
    AckKind,
    CursorAt,
    Damaged,
    Delivery,
    End,
    Event,
    MessageId,
    Outcome,
    Place,
    Record,
    Send,
    Sent,
)
from anabranch.verify.rules import Judge
from anabranch.verify.verdict import Verdict, Violation, conclude

_PROGRESS_RECORDS: Final = 50_000
OnProgress = Callable[[int, float], None]
"""Called with the records judged so far and the share of the files that was read."""


def check_folder(
    folder: Path,
    *,
    on_progress: OnProgress | None = None,
    also: Callable[[Record, News, Judge], None] | None = None,
    wait_in_window_s: float = STUCK_IN_WINDOW_S_MAX,
) -> Verdict:
    """Judge the histories of one run; `also` sees every record after the judge.

    `wait_in_window_s` is how long a producer may wait while there is trouble.

    Raises:
        NotFound: if there is no such folder.
        InputError: if it holds no histories, or those of several runs.
        FormatError: if a file is of another format or version, or contradicts itself.
        Corruption: if a line is damaged, with its place.
    """
    histories = HistoryFolder(folder)
    known = [header for header in histories.headers if header is not None]
    judge = Judge(
        dedup=any(header.dedup for header in known),
        ack_lag_s=max((header.ack_lag_s for header in known), default=0.0),
        wait_in_window_s=wait_in_window_s,
    )
    unfinished = set(range(len(histories.paths)))
    for count, located in enumerate(histories.merged(), start=1):
        try:
            news = judge.see(located.record)
        except FormatError as error:
            path = histories.paths[located.file]
            raise FormatError(f"{path}, line {located.line}: {error}") from None
        if type(located.record) is End:
            unfinished.discard(located.file)
        if also is not None:
            also(located.record, news, judge)
        if on_progress is not None and count % _PROGRESS_RECORDS == 0:
            on_progress(count, histories.share_read())
    present = {header.client for header in known}
    missing = sorted({client for header in known for client in header.clients} - present)
    reasons = [f"client {client!r} left no history" for client in missing]
    verdict = conclude(judge, reasons=reasons)
    judge.facts.spill.close()
    verdict.counts["histories"] = len(histories.paths)
    verdict.counts["unfinished_histories"] = len(unfinished)
    verdict.counts["torn_tails"] = len(histories.torn_files())
    if verdict.violations:
        _add_evidence(histories, verdict)
    return verdict


def _add_evidence(histories: HistoryFolder, verdict: Verdict) -> None:
    evidence = _Evidence(histories, verdict)
    for located in histories.merged():
        evidence.see(located)
    evidence.attribute()


class _Evidence:
    """Puts beside each violation what the histories say about its message and its moment."""

    def __init__(self, histories: HistoryFolder, verdict: Verdict) -> None:
        self._histories = histories
        self._violations = verdict.violations
        self._events: list[tuple[float, str]] = []
        self._by_message: dict[MessageId, list[Violation]] = {}
        self._by_time: dict[float, list[Violation]] = {}
        self._acked: dict[tuple[str | None, Place], list[Violation]] = {}
        for violation in verdict.violations:
            message = violation.finding.message
            if violation.finding.rule == AckedAgain.id:
                name = violation.finding.sub, violation.finding.places[0]
                self._acked.setdefault(name, []).append(violation)
            if message is not None:
                self._by_message.setdefault(message, []).append(violation)
            else:
                self._by_time.setdefault(violation.finding.t, []).append(violation)

    def see(self, located: Located) -> None:
        record = located.record
        if isinstance(record, Event):
            self._events.append((record.t, f"{record.name} {record.about}".strip()))
        elif isinstance(record, Send | Sent | Delivery):
            message = MessageId(record.producer, record.epoch, record.seq)
            for violation in self._by_message.get(message, ()):
                self._note(violation, located)
                if violation.key is None and not isinstance(record, Sent):
                    violation.key = record.key
        elif isinstance(record, Ack):
            if self._acked and record.outcome is Outcome.OK:
                self._see_ack(record, located)
        elif isinstance(record, Damaged | CursorAt):
            for violation in self._by_time.get(record.t, ()):
                self._note(violation, located)

    def _see_ack(self, ack: Ack, located: Located) -> None:
        for place in ack.places:
            if ack.kind is AckKind.INDIVIDUAL:
                for violation in self._acked.get((ack.sub, place), ()):
                    self._note(violation, located)
                continue
            covered = [name for name in self._acked if name[0] == ack.sub and name[1] <= place]
            for name in covered:
                # The first one that covers it is the evidence; all later ones do too.
                for violation in self._acked.pop(name):
                    self._note(violation, located)

    def _note(self, violation: Violation, located: Located) -> None:
        if len(violation.records) < RECORDS_PER_FINDING_MAX:
            name = self._histories.paths[located.file].name
            text = encode(located.record).decode().strip()
            violation.records.append(f"{name}:{located.line} {text}")

    def attribute(self) -> None:
        """Name the last event before each violation."""
        times = [t for t, _ in self._events]
        for violation in self._violations:
            index = bisect_right(times, violation.finding.t)
            if index:
                t, name = self._events[index - 1]
                violation.phase = f"{name} (t={t})"
