"""What a follower does with what its leader sends: records and snapshots.

Pure. Whether the sender leads the present term is decided before, in `replica.py`.
"""

from anabranch.consensus.events import InstallSnapshot, Instruction, Send
from anabranch.consensus.kept_log import KeptLog
from anabranch.consensus.log import LogPosition, LogRecord
from anabranch.consensus.messages import AppendReply, AppendRequest, SnapshotRequest


class Following:
    """How far the own log is known to be that of the term's leader."""

    def __init__(self, log: KeptLog) -> None:
        self._log = log
        self._matched = 0
        self.is_installing = False
        """Whether a snapshot is on its way to the disk; until then nothing else is taken."""

    def begin_term(self) -> None:
        """Another may lead now: nothing is known of its log."""
        self._matched = 0

    def take(self, leader: int, message: AppendRequest | SnapshotRequest) -> list[Instruction]:
        """Take in what the leader of the present term says, and answer."""
        if self.is_installing:
            return []
        if isinstance(message, SnapshotRequest):
            return self._take_snapshot(leader, message)
        refused_at = self._mismatch(message.previous)
        if refused_at is not None:
            reply = AppendReply(message.term, message.round, accepted=False, index=refused_at)
            return self._log.once_promised(Send(leader, reply))
        return self._take_records(leader, message)

    def _mismatch(self, previous: LogPosition) -> int | None:
        """None if the records fit; else the index up to which the logs may be alike."""
        log = self._log
        if previous.index > log.last.index:
            return log.last.index
        # What is committed is in the leader's log as well, whoever it is.
        if previous.index <= log.committed_index:
            return None
        return None if log.tail.term_at(previous.index) == previous.term else log.committed_index

    def _take_records(self, leader: int, request: AppendRequest) -> list[Instruction]:
        log = self._log
        given = log.writes.given
        instructions = self._merge(request.records)
        end = request.previous.index + len(request.records)
        self._matched = max(self._matched, end, log.committed_index)
        if log.writes.given > given:
            answer = AppendReply(request.term, request.round, accepted=True, index=self._matched)
            instructions += log.once_durable(Send(leader, answer))
        else:
            index = min(self._matched, log.durable_index)
            answer = AppendReply(request.term, request.round, accepted=True, index=index)
            instructions += log.once_promised(Send(leader, answer))
        return instructions + log.commit_to(min(request.committed, self._matched))

    def _merge(self, records: tuple[LogRecord, ...]) -> list[Instruction]:
        """Add what the own log lacks; what contradicts the leader's goes first."""
        log = self._log
        instructions: list[Instruction] = []
        for record in records:
            if record.index <= log.committed_index:
                continue
            known = log.tail.term_at(record.index)
            if known == record.term:
                continue
            if known is not None:
                instructions += log.cut_behind(record.index - 1)
            instructions += log.write(record)
        return instructions

    def _take_snapshot(self, leader: int, request: SnapshotRequest) -> list[Instruction]:
        log, position = self._log, request.position
        if position.index <= log.committed_index:
            index = min(log.committed_index, log.durable_index)
            reply = AppendReply(request.term, 0, accepted=True, index=index)
            return log.once_promised(Send(leader, reply))
        if log.is_storing:
            return []  # two snapshots cannot be written at once; the leader will offer it again
        self.is_installing = True
        log.begin_install()
        return [InstallSnapshot(position, request.content)]

    def snapshot_installed(self, position: LogPosition, snapshot_bytes: int) -> list[Instruction]:
        """The state is that of the snapshot, and the log begins behind it."""
        self.is_installing = False
        self._matched = position.index
        return self._log.snapshot_installed(position, snapshot_bytes)
