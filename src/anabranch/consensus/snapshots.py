"""When a snapshot is due, and which part of the log it will make superfluous.

Pure. A snapshot covers exactly what is in the log's files before the seal.
"""

from anabranch.consensus.log import BEGINNING, HEADER_BYTES, LogPosition, LogRecord


class SnapshotSchedule:
    """The last snapshot, the next one, and the log between them."""

    def __init__(self, after_bytes: int) -> None:
        self._after_bytes = after_bytes
        self.position = BEGINNING
        self._snapshot_bytes = 0
        self._log_bytes = 0
        self._bytes_when_sealed = 0
        self.planned_index: int | None = None
        """The log was sealed behind this record: when it is applied, the state is to be stored."""
        self.being_stored = False

    def loaded(self, position: LogPosition, snapshot_bytes: int) -> None:
        """A snapshot is there, and the log begins behind it."""
        self.position = position
        self._snapshot_bytes = snapshot_bytes
        self._log_bytes = 0
        self.planned_index = None

    def grow(self, record: LogRecord) -> None:
        """The log got a record."""
        self._log_bytes += HEADER_BYTES + len(record.payload)

    def plan(self, index: int) -> bool:
        """Whether the log is to be sealed behind this record, its newest."""
        # A snapshot costs about its own size: waiting until the log has grown by as much keeps
        # the extra writing at one byte per byte, whatever the size of the state.
        due_bytes = max(self._after_bytes, self._snapshot_bytes)
        if self.planned_index is not None or self._log_bytes < due_bytes:
            return False
        self.planned_index = index
        self._bytes_when_sealed = self._log_bytes
        return True

    def due(self, index: int) -> bool:
        """Whether the state is to be stored now that this record is applied."""
        if index != self.planned_index:
            return False
        self.being_stored = True
        return True

    def give_up(self) -> None:
        """Another snapshot is about to take the place of the planned one."""
        assert not self.being_stored, "two snapshots cannot be written at once"
        self.planned_index = None

    def cut_behind(self, index: int) -> None:
        """The log lost records: a seal behind one of them seals nothing whole."""
        if self.planned_index is not None and index < self.planned_index:
            assert not self.being_stored, "what is applied is never cut"
            self.planned_index = None

    def stored(self, position: LogPosition, snapshot_bytes: int) -> None:
        """The snapshot that was due is durable."""
        assert position.index == self.planned_index, "no such snapshot was asked for"
        self.position = position
        self._snapshot_bytes = snapshot_bytes
        self.planned_index = None
        self.being_stored = False
        self._log_bytes -= self._bytes_when_sealed

    def validate(self, last_index: int) -> None:
        """Check what must hold between events."""
        assert self._log_bytes >= 0
        if self.planned_index is not None:
            assert self.position.index < self.planned_index <= last_index
