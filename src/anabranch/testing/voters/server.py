"""One voter as a process: the shell around `consensus.replica` with journal, tree and timers.

It serves clients too: a put is answered when its record is applied, a read behind a barrier.
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final

from anabranch.consensus import events, log, messages
from anabranch.consensus.election import Voters
from anabranch.consensus.log import LogPosition, RecordKind
from anabranch.consensus.messages import Message, SnapshotRequest
from anabranch.consensus.replica import Phase, Replica
from anabranch.consensus.replication import Pace
from anabranch.errors import StorageError
from anabranch.journal import Journal, RecordPlace
from anabranch.runtime import Runtime
from anabranch.runtime.tasks import Tasks
from anabranch.testing.voters import state
from anabranch.testing.voters.frames import Frames, Peer
from anabranch.testing.voters.witness import Witness

PORT: Final = 7000
FOLDER: Final = "voter"
SNAPSHOT: Final = f"{FOLDER}/snapshot"
REQUEST: Final = struct.Struct(">QBH")
ANSWER: Final = struct.Struct(">QBI")
VOTER_FRAME, REQUEST_FRAME, ANSWER_FRAME = b"v", b"r", b"a"


class Verb(IntEnum):
    """What a client asks for."""

    PUT = 1
    GET = 2


class Status(IntEnum):
    """What it is told."""

    DONE = 1
    NOT_LEADER = 2
    """Nothing was changed; the number of the answer is the leader, or 0."""
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Character:
    """What differs between worlds: how the driver treats its voter."""

    election_s: tuple[float, float]
    heartbeat_s: float
    snapshot_after_bytes: int
    segment_bytes: int
    loss: float
    repeat: float
    late: float
    """Shares of messages that are lost, sent twice, or held back so that others overtake them."""
    pace: Pace


def host_of(voter: int) -> str:
    """The machine of a voter."""
    return f"voter-{voter}"


class VoterServer:
    """One life of one voter."""

    def __init__(
        self, runtime: Runtime, voters: Voters, character: Character, witness: Witness
    ) -> None:
        self._runtime = runtime
        self._disk = runtime.disk
        self._entropy = runtime.entropy
        self._loop = asyncio.get_running_loop()
        self._own = voters.own
        self._character = character
        self._witness = witness
        self.replica = Replica(
            snapshot_after_bytes=character.snapshot_after_bytes,
            voters=voters,
            pace=character.pace,
        )
        self.machine = state.decode("", None)[0]
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._journal: Journal
        self._tasks = Tasks(self._broke)
        self._peers: dict[int, Peer] = {}
        self._others = voters.others
        self._timers: dict[events.Timer, asyncio.TimerHandle] = {}
        self._callers: dict[int, tuple[Frames, int, str]] = {}
        self._next_ticket = 1
        self._first_kept_segment = 0

    async def run(self) -> None:
        """Read the log back, then take part until the disk fails."""
        await self._disk.make_folder(FOLDER)
        content = await self._disk.read(SNAPSHOT) if await self._disk.exists(SNAPSHOT) else None
        self.machine, position = state.decode(SNAPSHOT, content)
        self._step(events.Opened(position, len(content or b"")))
        self._journal = await Journal.open(
            self._disk,
            f"{FOLDER}/log",
            kind=b"META",
            segment_bytes=self._character.segment_bytes,
            replay=self._replay,
        )
        for voter in self._others:
            self._peers[voter] = Peer(
                self._runtime, self._tasks, host_of(voter), PORT, self._receive
            )
        self._step(events.RecoveryEnded())
        self._witness.servers[self._own] = self
        self._witness.started(self._own, self.replica.term)
        await self._runtime.network.listen("", PORT, lambda: Frames(self._receive))
        await self.failed

    def _replay(self, place: RecordPlace, data: memoryview) -> None:
        self._step(events.Recovered(log.decode(data)))

    def _broke(self, name: str, failure: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(failure)

    def _step(self, event: events.ReplicaEvent) -> None:
        for instruction in self.replica.step(event):
            self._carry_out(instruction)
        if self.replica.phase in (Phase.RAISING_TERM, Phase.LEADING):
            self._witness.elected(self._own, self.replica.term)

    def _carry_out(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.Append(record):
                if record.kind in (RecordKind.TERM, RecordKind.COMMAND):
                    term_before = self.replica._log.tail.term_at(record.index - 1)
                    self._witness.wrote(record, term_before)
                self._journal.append(log.encode(record), partial(self._appended, record.index))
            case events.Apply(record, ticket):
                state.apply(self.machine, record)
                self._witness.applied(record, self.machine.tree.revision)
                self._answer(ticket, Status.DONE)
            case events.Send(to, message):
                self._say(to, message)
            case events.StartTimer(timer):
                self._start(timer)
            case events.NotLeader(ticket, leader):
                self._answer(ticket, Status.NOT_LEADER, leader)
            case events.Abandon(ticket) | events.Refuse(ticket):
                self._answer(ticket, Status.UNKNOWN)
            case events.ReadNow(ticket):
                self._answer(ticket, Status.DONE)
            case _:
                self._carry_out_snapshot(instruction)

    def _carry_out_snapshot(self, instruction: events.Instruction) -> None:
        match instruction:
            case events.Seal():
                self._first_kept_segment = self._journal.roll()
            case events.TakeSnapshot(position):
                content = state.encode(self.machine, position)
                done = events.SnapshotStored(position, len(content))
                self._tasks.spawn("snapshot", self._store(content, done))
            case events.InstallSnapshot(position, content):
                arrived = events.SnapshotInstalled(position, len(content))
                self._tasks.spawn("install", self._store(content, arrived))
            case events.DropLog():
                first = self._first_kept_segment
                self._tasks.spawn("drop", self._journal.drop_segments_below(first))
            case events.SendSnapshot(to, term):
                self._tasks.spawn("offer", self._offer(to, term))
            case events.Ready():
                pass

    # --- the disk -----------------------------------------------------------------------------

    def _appended(self, index: int, error: Exception | None) -> None:
        if error is None:
            self._step(events.Appended(index))
        elif not self.failed.done():
            self._step(events.AppendFailed())
            self.failed.set_exception(error)

    async def _store(
        self, content: bytes, done: events.SnapshotStored | events.SnapshotInstalled
    ) -> None:
        try:
            await self._disk.replace(SNAPSHOT, content)
        except OSError as error:
            raise StorageError(f"cannot store a snapshot: {error}") from error
        if isinstance(done, events.SnapshotInstalled):
            self.machine, _ = state.decode(SNAPSHOT, content)
            self._witness.snapshots_installed += 1
        self._step(done)

    async def _offer(self, to: int, term: int) -> None:
        content = await self._disk.read(SNAPSHOT)
        _, position = state.decode(SNAPSHOT, content)
        self._say(to, SnapshotRequest(term, position, content))

    # --- others -------------------------------------------------------------------------------

    def _say(self, to: int, message: Message) -> None:
        self._witness.said(self._own, to, message)
        content = messages.encode(self._own, message)
        peer, draw, character = self._peers[to], self._entropy.uniform(0.0, 1.0), self._character
        if draw < character.loss:
            return
        if draw > 1.0 - character.late:
            delay_s = self._entropy.uniform(0.0, 0.3)
            self._loop.call_later(delay_s, peer.send, VOTER_FRAME, content)
            return
        peer.send(VOTER_FRAME, content)
        if draw > 1.0 - character.late - character.repeat:
            peer.send(VOTER_FRAME, content)

    def _receive(self, frames: Frames, letter: bytes, content: bytes) -> None:
        if self.failed.done():
            return
        if letter == VOTER_FRAME:
            sender, message = messages.decode(content)
            self._step(events.Received(sender, message))
            return
        number, verb, path_bytes = REQUEST.unpack_from(content)
        rest = content[REQUEST.size :]
        path, value = rest[:path_bytes].decode(), rest[path_bytes:]
        ticket = self._next_ticket
        self._next_ticket += 1
        self._callers[ticket] = (frames, number, path if verb == Verb.GET else "")
        if verb == Verb.GET:
            self._step(events.Read(ticket))
        else:
            command = state.put_command(path, value, self._runtime.clock.wall_ms())
            self._step(events.Propose(ticket, command))

    def _answer(self, ticket: int | None, status: Status, leader: int = 0) -> None:
        if ticket is None:
            return
        frames, number, path = self._callers.pop(ticket)
        found = self.machine.tree.entry(path) if path and status is Status.DONE else None
        value = b"" if found is None else found.value
        frames.send(ANSWER_FRAME, ANSWER.pack(number, status, leader) + value)

    def _start(self, timer: events.Timer) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()
        if timer is events.Timer.ELECTION:
            delay_s = self._entropy.uniform(*self._character.election_s)
        else:
            delay_s = self._character.heartbeat_s
        self._timers[timer] = self._loop.call_later(delay_s, self._fire, timer)

    def _fire(self, timer: events.Timer) -> None:
        if not self.failed.done():
            self._step(events.TimerFired(timer))

    @property
    def applied(self) -> LogPosition:
        """How far the tree is."""
        return self.replica.applied
