"""The end of the log, in memory: what is not applied yet, and what other voters may still need.

Pure. Records before it are in the snapshot, or known to everybody.
"""

from anabranch.consensus.log import HEADER_BYTES, LogPosition, LogRecord


class LogTail:
    """Records without a gap behind a position that is known to be committed."""

    def __init__(self, begin: LogPosition) -> None:
        self.begin = begin
        """The position before the first record that is here."""
        self._records: list[LogRecord] = []

    @property
    def last(self) -> LogPosition:
        """The newest record, durable or not."""
        return self._records[-1].position if self._records else self.begin

    @property
    def last_index(self) -> int:
        """Of the newest record."""
        return self.begin.index + len(self._records)

    def append(self, record: LogRecord) -> None:
        """Add the record that follows the last."""
        self._records.append(record)

    def get(self, index: int) -> LogRecord:
        """The record of an index that is here."""
        assert index > self.begin.index, f"record {index} is before {self.begin}"
        return self._records[index - self.begin.index - 1]

    def term_at(self, index: int) -> int | None:
        """The term of a record; None if it is not known here."""
        place = index - self.begin.index
        if place == 0:
            return self.begin.term
        return self._records[place - 1].term if 0 < place <= len(self._records) else None

    def after(self, index: int, *, records_max: int, bytes_max: int) -> tuple[LogRecord, ...]:
        """Records that follow an index: at least one if there is one, and not too many."""
        start = index - self.begin.index
        assert start >= 0, f"record {index} is before {self.begin}"
        taken: list[LogRecord] = []
        size = 0
        for record in self._records[start : start + records_max]:
            size += HEADER_BYTES + len(record.payload)
            if taken and size > bytes_max:
                break
            taken.append(record)
        return tuple(taken)

    def cut_behind(self, index: int) -> None:
        """Forget all records behind an index."""
        del self._records[index - self.begin.index :]

    def forget_up_to(self, index: int) -> None:
        """Forget records from the beginning, up to and including an index that is here."""
        count = index - self.begin.index
        if count > 0:
            self.begin = self._records[count - 1].position
            del self._records[:count]

    def validate(self) -> None:
        """Check that there is no gap and no term goes back."""
        before = self.begin
        for record in self._records:
            assert record.index == before.index + 1, "the log has no gap"
            assert record.term >= before.term, "terms never go back"
            before = record.position
