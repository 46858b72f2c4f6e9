"""One voter of the replicated log: `step(event)` returns what is to be done, in order.

Pure: no clock, no disk, no network, no tasks. The only voter of a log leads as soon as it has read
it; of several one is elected. A record is committed once a majority has it durably, and the rule
sits in one place (`_committable_to`).

The driver's duties, in this order: feed `Opened`, one `Recovered` per record of the log, then
`RecoveryEnded`; carry out instructions in the order given; report every append with `Appended` in
log order, or `AppendFailed` once. Nothing may be shown to anybody before `Ready`: records that were
read back may still be volatile, and the durable record of the new term is what proves them.

With several voters it also carries messages, runs the two timers, and reports each append singly.
Messages may be lost, late, repeated and reordered. What a voter says about its term, vote or log is
given to the driver only when it is durable.
"""

from typing import Final

from anabranch import limits
from anabranch.consensus.election import ALONE, Election, Voters
from anabranch.consensus.events import (
    Abandon,
    Append,
    Appended,
    AppendFailed,
    Apply,
    DropLog,
    InstallSnapshot,
    Instruction,
    NotLeader,
    Opened,
    Propose,
    Read,
    ReadNow,
    Ready,
    Received,
    Recovered,
    RecoveryEnded,
    Refuse,
    ReplicaEvent,
    Seal,
    Send,
    SendSnapshot,
    SnapshotInstalled,
    SnapshotStored,
    StartTimer,
    TakeSnapshot,
    Timer,
    TimerFired,
)
from anabranch.consensus.following import Following
from anabranch.consensus.kept_log import KeptLog
from anabranch.consensus.log import NOBODY, LogPosition, LogRecord, RecordKind
from anabranch.consensus.messages import (
    AppendReply,
    AppendRequest,
    SnapshotRequest,
    VoteReply,
    VoteRequest,
)
from anabranch.consensus.phases import ACCEPTS, LEADS, Phase
from anabranch.consensus.recovery import LogDiscontinuity
from anabranch.consensus.replication import Followers, Pace

__all__ = [
    "Abandon",
    "Append",
    "AppendFailed",
    "Appended",
    "Apply",
    "DropLog",
    "InstallSnapshot",
    "Instruction",
    "LogDiscontinuity",
    "NotLeader",
    "Opened",
    "Phase",
    "Propose",
    "Read",
    "ReadNow",
    "Ready",
    "Received",
    "Recovered",
    "RecoveryEnded",
    "Refuse",
    "Replica",
    "ReplicaEvent",
    "Seal",
    "Send",
    "SendSnapshot",
    "SnapshotInstalled",
    "SnapshotStored",
    "StartTimer",
    "TakeSnapshot",
    "Timer",
    "TimerFired",
]


DEFAULT_PACE: Final = Pace(
    limits.VOTER_REQUESTS_IN_FLIGHT_MAX,
    limits.VOTER_REQUEST_RECORDS_MAX,
    limits.VOTER_REQUEST_BYTES_MAX,
)


class Replica:
    """The state of one voter."""

    def __init__(
        self, *, snapshot_after_bytes: int, voters: Voters = ALONE, pace: Pace = DEFAULT_PACE
    ) -> None:
        self.phase = Phase.NEW
        self.leader = NOBODY
        """Whom this voter takes for the leader of its term."""
        self._voters = voters
        self._alone = not voters.others
        self._pace = pace
        self._election = Election(voters)
        self._log = KeptLog(snapshot_after_bytes=snapshot_after_bytes, alone=self._alone)
        self._followers = Followers((), 1, self._log.last, pace)
        self._following = Following(self._log)
        self._reads: list[tuple[int, int, int]] = []
        """Round, index and ticket of reads that wait for them."""

    @property
    def term(self) -> int:
        """The newest term this voter takes part in."""
        return self._election.term

    @property
    def last(self) -> LogPosition:
        """The newest record, durable or not."""
        return self._log.last

    @property
    def applied(self) -> LogPosition:
        """The newest record whose effect is in the state."""
        return self._log.applied

    def step(self, event: ReplicaEvent) -> list[Instruction]:
        """Take in one event.

        Raises:
            LogDiscontinuity: if a recovered record cannot stand where it was found.
            FormatError: if the log is one that this voter cannot own.
        """
        assert isinstance(event, ACCEPTS[self.phase]), f"{event} while {self.phase.value}"
        if self.phase is Phase.FAILED:
            return [Refuse(event.ticket)] if isinstance(event, Propose | Read) else []
        match event:
            case Propose():
                return self._propose(event)
            case Appended():
                return self._appended(event.up_to_index)
            case Recovered():
                return self._log.recovered(event.record)
            case Opened():
                self._log.opened(event.snapshot, event.snapshot_bytes)
                self.phase = Phase.RECOVERING
                return []
            case RecoveryEnded():
                return self._recovery_ended()
            case AppendFailed():
                return self._append_failed()
            case SnapshotStored():
                return self._snapshot_stored(event)
            case Read():
                return self._read(event.ticket)
            case _:
                return self._of_several(event)

    def _of_several(self, event: Received | TimerFired | SnapshotInstalled) -> list[Instruction]:
        assert not self._alone, f"{event} with a single voter"
        if isinstance(event, TimerFired):
            return self._heartbeat() if event.timer is Timer.HEARTBEAT else self._time_out()
        if isinstance(event, SnapshotInstalled):
            return self._snapshot_installed(event)
        sender, message = event.sender, event.message
        match message:
            case VoteRequest():
                return self._vote_asked(sender, message)
            case VoteReply():
                return self._vote_answered(sender, message)
            case AppendReply():
                return self._append_answered(sender, message)
            case _:
                return self._told_by_leader(sender, message)

    # --- the log ------------------------------------------------------------------------------

    def _recovery_ended(self) -> list[Instruction]:
        term, voted_for, instructions = self._log.recovery_ended()
        self._election.enter(term, voted_for)
        if self._alone:
            self._election.enter(term + 1)
            return self._lead()
        self.phase = Phase.FOLLOWING
        return [*instructions, StartTimer(Timer.ELECTION)]

    def _propose(self, event: Propose) -> list[Instruction]:
        if self.phase is not Phase.LEADING:
            return [NotLeader(event.ticket, NOBODY if self.phase in LEADS else self.leader)]
        instructions = self._write_next(RecordKind.COMMAND, event.payload, event.ticket)
        return instructions if self._alone else instructions + self._replicate()

    def _write_next(
        self, kind: RecordKind, payload: bytes, ticket: int | None
    ) -> list[Instruction]:
        record = LogRecord(self._election.term, self._log.tail.last_index + 1, kind, payload)
        return self._log.write(record, ticket)

    def _replicate(self) -> list[Instruction]:
        log = self._log
        return self._followers.send(self.term, log.tail, log.committed_index)

    def _appended(self, up_to_index: int) -> list[Instruction]:
        instructions = self._log.appended(up_to_index)
        if self.phase in LEADS:
            return instructions + self._commit()
        return instructions + self._log.commit_to(self._log.committed_index)

    def _commit(self) -> list[Instruction]:
        instructions = self._log.commit_to(self._committable_to())
        if self.phase is Phase.RAISING_TERM and self._log.applied.term == self.term:
            self.phase = Phase.LEADING
            instructions.append(Ready(self.term))
        return instructions + self._answer_reads() if self._reads else instructions

    def _committable_to(self) -> int:
        log = self._log
        if self._alone:
            return log.durable_index
        index = self._followers.durable_on_majority(log.durable_index)
        # A majority may have a record of an older term and yet lose it to a voter with a newer
        # one. Only a record of this term makes those before it safe.
        return index if log.tail.term_at(index) == self.term else log.committed_index

    def _append_failed(self) -> list[Instruction]:
        self.phase = Phase.FAILED
        self._log.writes.abandon()
        reads: list[Instruction] = [Refuse(ticket) for _, _, ticket in self._reads]
        self._reads = []
        return self._log.abandon() + reads

    # --- reading ------------------------------------------------------------------------------

    def _read(self, ticket: int) -> list[Instruction]:
        if self.phase is not Phase.LEADING:
            return [NotLeader(ticket, NOBODY if self.phase in LEADS else self.leader)]
        if self._alone:
            return [ReadNow(ticket)]
        # Another may lead a later term by now and have answered what this one does not know:
        # a majority has to say once more that it has heard of none.
        probes = self._followers.probe(self.term, self._log.tail, self._log.committed_index)
        self._reads.append((self._followers.round, self._log.committed_index, ticket))
        return probes

    def _answer_reads(self) -> list[Instruction]:
        confirmed, applied = self._followers.confirmed_round(), self._log.applied.index
        free = [read for read in self._reads if read[0] <= confirmed and read[1] <= applied]
        self._reads = [read for read in self._reads if read not in free]
        return [ReadNow(ticket) for _, _, ticket in free]

    # --- elections ----------------------------------------------------------------------------

    def _time_out(self) -> list[Instruction]:
        again = StartTimer(Timer.ELECTION)
        if self.phase in LEADS:
            if self._followers.has_majority():
                return [again]
            return [*self._step_down(), again]
        if self._following.is_installing:
            return [again]
        self.phase, self.leader = Phase.CANVASSING, NOBODY
        return [*self._tell_others(self._election.canvass(self._log.last)), again]

    def _tell_others(self, message: VoteRequest) -> list[Instruction]:
        instructions: list[Instruction] = []
        for voter in self._voters.others:
            instructions += self._log.once_promised(Send(voter, message))
        return instructions

    def _promise(self) -> list[Instruction]:
        return self._log.promise(self._election.term, self._election.voted_for)

    def _stand(self) -> list[Instruction]:
        request = self._election.stand(self._log.last)
        self.phase = Phase.STANDING
        return [*self._promise(), *self._tell_others(request), StartTimer(Timer.ELECTION)]

    def _lead(self) -> list[Instruction]:
        self.phase = Phase.RAISING_TERM
        self.leader = self._voters.own
        before = self._log.last
        instructions = self._write_next(RecordKind.TERM, b"", None)
        if self._alone:
            return instructions
        self._followers = Followers(self._voters.others, self._voters.majority, before, self._pace)
        timers = [StartTimer(Timer.HEARTBEAT), StartTimer(Timer.ELECTION)]
        return [*instructions, *self._replicate(), *timers]

    def _step_down(self) -> list[Instruction]:
        """Follow nobody for now; whoever waits for an answer of this leader gets one."""
        self.phase, self.leader = Phase.FOLLOWING, NOBODY
        reads: list[Instruction] = [NotLeader(ticket, NOBODY) for _, _, ticket in self._reads]
        self._reads = []
        return self._log.abandon() + reads

    def _enter(self, term: int) -> list[Instruction]:
        """Take part in a later term; to be followed by `_promise`."""
        self._election.enter(term)
        self._following.begin_term()
        return self._step_down()

    def _vote_asked(self, sender: int, request: VoteRequest) -> list[Instruction]:
        last = self._log.last
        if request.canvass:
            granted = self.leader == NOBODY and self._election.would_vote(request, last)
            term = request.term if granted else self.term
            return self._log.once_promised(Send(sender, VoteReply(term, granted, canvass=True)))
        instructions = self._enter(request.term) if request.term > self.term else []
        granted = self._election.may_vote(sender, request, last)
        if granted:
            self._election.voted_for = sender
            self.phase = Phase.FOLLOWING
            instructions.append(StartTimer(Timer.ELECTION))
        instructions += self._promise()
        reply = VoteReply(self.term, granted, canvass=False)
        return instructions + self._log.once_promised(Send(sender, reply))

    def _vote_answered(self, sender: int, reply: VoteReply) -> list[Instruction]:
        if not reply.granted:
            if reply.term <= self.term:
                return []
            return [*self._enter(reply.term), *self._promise()]
        if reply.canvass:
            wanted = self.phase is Phase.CANVASSING and reply.term == self.term + 1
            return self._stand() if wanted and self._election.count(sender) else []
        wanted = self.phase is Phase.STANDING and reply.term == self.term
        return self._lead() if wanted and self._election.count(sender) else []

    # --- leading ------------------------------------------------------------------------------

    def _heartbeat(self) -> list[Instruction]:
        if self.phase not in LEADS:
            return []
        log = self._log
        beats = self._followers.beat(self.term, log.tail, log.committed_index)
        return [*beats, StartTimer(Timer.HEARTBEAT)]

    def _append_answered(self, sender: int, reply: AppendReply) -> list[Instruction]:
        if reply.term > self.term:
            return [*self._enter(reply.term), *self._promise()]
        if reply.term < self.term or self.phase not in LEADS:
            return []
        self._followers.answered(sender, reply)
        instructions = self._commit()
        log = self._log
        return instructions + self._followers.send_to(
            sender, self.term, log.tail, log.committed_index
        )

    # --- following ----------------------------------------------------------------------------

    def _told_by_leader(
        self, sender: int, message: AppendRequest | SnapshotRequest
    ) -> list[Instruction]:
        if message.term < self.term:
            reply = AppendReply(self.term, 0, accepted=False, index=0)
            return self._log.once_promised(Send(sender, reply))
        instructions = self._enter(message.term) if message.term > self.term else []
        assert self.phase not in LEADS, f"{sender} leads term {self.term} too"
        self.phase, self.leader = Phase.FOLLOWING, sender
        instructions += [*self._promise(), StartTimer(Timer.ELECTION)]
        return instructions + self._following.take(sender, message)

    # --- snapshots ----------------------------------------------------------------------------

    def _snapshot_stored(self, event: SnapshotStored) -> list[Instruction]:
        index = event.position.index
        needed_from = self._followers.needed_from(index) if self.phase in LEADS else index
        return self._log.snapshot_stored(
            event.position, event.snapshot_bytes, needed_from=needed_from
        )

    def _snapshot_installed(self, event: SnapshotInstalled) -> list[Instruction]:
        instructions = self._following.snapshot_installed(event.position, event.snapshot_bytes)
        if self.leader in self._voters.others:
            reply = AppendReply(self.term, 0, accepted=True, index=event.position.index)
            instructions += self._log.once_durable(Send(self.leader, reply))
        return instructions

    def validate(self) -> None:
        """Check what must hold between events."""
        self._log.validate()
        if self.phase is Phase.LEADING:
            assert self._log.last.term == self.term, "a leader's newest record is of its own term"
        if self.phase not in LEADS:
            assert not self._reads, "only a leader has readers"
