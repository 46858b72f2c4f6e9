"""Reading the log of one of several voters back: votes, cuts, and records that came to nothing.

Pure. What is read is checked against the record before it, not against the snapshot: that may be
newer than all of it, and records that a later cut voids may not fit to it.
"""

from anabranch.consensus import log
from anabranch.consensus.log import NOBODY, LogPosition, LogRecord, RecordKind
from anabranch.consensus.tail import LogTail


class LogDiscontinuity(Exception):
    """A recovered record does not follow the one before it; the driver knows the file."""


def check_follows(record: LogRecord, before: LogPosition) -> None:
    """Refuse a record that cannot stand behind a position.

    Raises:
        LogDiscontinuity: if it leaves a gap or its term goes back.
    """
    if record.index != before.index + 1:
        raise LogDiscontinuity(
            f"log record {record.index} follows record {before.index}: the ones between are missing"
        )
    if record.term < before.term:
        raise LogDiscontinuity(
            f"log record {record.index} has term {record.term} after term {before.term}"
        )


class ReadBack:
    """The log as far as it was read."""

    def __init__(self, snapshot: LogPosition) -> None:
        self.term = 0
        self.voted_for = NOBODY
        self.tail = LogTail(snapshot)
        self._snapshot = snapshot
        self._at: LogPosition | None = None
        self._fits = True
        """Whether what was read up to the snapshot's index is what the snapshot holds."""

    def read(self, record: LogRecord) -> None:
        """Take in the next record.

        Raises:
            LogDiscontinuity: if it cannot stand where it was found.
        """
        if record.kind is RecordKind.VOTE:
            if record.term < self.term:
                raise LogDiscontinuity(f"vote of term {record.term} after term {self.term}")
            self.term, self.voted_for = record.term, log.voted_for(record)
            return
        if record.kind is RecordKind.CUT:
            self._cut(record)
            return
        if self._at is not None:
            check_follows(record, self._at)
        elif record.index > self._snapshot.index:
            check_follows(record, self._snapshot)
        self._at = record.position
        if record.index > self._snapshot.index:
            self.tail.append(record)
        self._compare(record)
        self._raise_term(record.term)

    def _raise_term(self, term: int) -> None:
        if term > self.term:
            self.term, self.voted_for = term, NOBODY

    def _cut(self, record: LogRecord) -> None:
        if record.index <= self._snapshot.index:
            self.tail = LogTail(self._snapshot)
        elif self.tail.term_at(record.index) == record.term:
            self.tail.cut_behind(record.index)
        else:
            raise LogDiscontinuity(
                f"the log is cut behind record {record.index} of term {record.term}, "
                "which it does not hold"
            )
        self._at = record.position
        self._compare(record)

    def _compare(self, record: LogRecord) -> None:
        if record.index == self._snapshot.index:
            self._fits = record.term == self._snapshot.term
        elif record.index < self._snapshot.index:
            self._fits = True

    def end(self) -> LogRecord | None:
        """Join the log to the snapshot; return the cut to be written, if they do not meet."""
        self._raise_term(self._snapshot.term)
        if not self._fits:
            # A snapshot of another history was installed; the cut behind it was not written yet.
            self.tail = LogTail(self._snapshot)
        last = self.tail.last
        return None if self._at in (None, last) else log.cut(last)
