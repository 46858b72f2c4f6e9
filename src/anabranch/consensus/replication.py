"""What a leader knows of the others: how far each has its log, and what to send next.

Pure. A follower gets at most a few requests that it has not answered; further records gather and go
together. What is lost is sent again with a later heartbeat.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.consensus.events import Instruction, Send, SendSnapshot
from anabranch.consensus.log import BEGINNING, LogPosition
from anabranch.consensus.messages import AppendReply, AppendRequest
from anabranch.consensus.tail import LogTail


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a leader sends at once."""

    requests_in_flight_max: int
    request_records_max: int
    request_bytes_max: int


@dataclass(slots=True)
class Follower:
    """Another voter, as its leader sees it."""

    following: int
    """The index that is to be sent next, minus one."""
    matched: int = 0
    """Up to here its log is the leader's, durably."""
    round: int = 0
    """The newest round it has answered."""
    in_flight: int = 0
    since_round: int = 0
    """Answers to older requests say nothing of what is in flight: it was begun anew."""
    answered: bool = True
    """Since the last heartbeat."""
    heard: bool = True
    """Since the leader last made sure of its majority."""
    needs_snapshot: bool = False
    """One was sent; until it is answered nothing else makes sense."""


class Followers:
    """The other voters during one leadership."""

    def __init__(self, others: Sequence[int], majority: int, last: LogPosition, pace: Pace) -> None:
        self._followers = {voter: Follower(last.index) for voter in others}
        self._majority = majority
        self._pace = pace
        self.round = 0

    def send(self, term: int, tail: LogTail, committed: int) -> list[Instruction]:
        """What every follower is to be given now."""
        instructions: list[Instruction] = []
        for voter in self._followers:
            instructions += self.send_to(voter, term, tail, committed)
        return instructions

    def send_to(self, voter: int, term: int, tail: LogTail, committed: int) -> list[Instruction]:
        """What one follower is to be given now."""
        follower = self._followers[voter]
        instructions: list[Instruction] = []
        while (
            follower.following < tail.last_index
            and follower.in_flight < self._pace.requests_in_flight_max
        ):
            if follower.following < tail.begin.index:
                if not follower.needs_snapshot:
                    follower.needs_snapshot = True
                    instructions.append(SendSnapshot(voter, term))
                break
            request = self._request(follower, term, tail, committed)
            follower.following += len(request.records)
            follower.in_flight += 1
            instructions.append(Send(voter, request))
        return instructions

    def _request(
        self, follower: Follower, term: int, tail: LogTail, committed: int
    ) -> AppendRequest:
        self.round += 1
        records = tail.after(
            follower.following,
            records_max=self._pace.request_records_max,
            bytes_max=self._pace.request_bytes_max,
        )
        previous_term = tail.term_at(follower.following)
        assert previous_term is not None
        previous = LogPosition(previous_term, follower.following)
        return AppendRequest(term, self.round, previous, records, committed)

    def beat(self, term: int, tail: LogTail, committed: int) -> list[Instruction]:
        """Tell everybody who leads. Whoever lost something says so in the answer."""
        instructions: list[Instruction] = []
        for voter, follower in self._followers.items():
            if not follower.answered:
                self._begin_anew(follower)
            else:
                instructions += self.send_to(voter, term, tail, committed)
            follower.answered = False
        return instructions + self.probe(term, tail, committed)

    def probe(self, term: int, tail: LogTail, committed: int) -> list[Instruction]:
        """Begin a round: ask everybody whether this voter still leads."""
        instructions: list[Instruction] = []
        self.round += 1
        for voter, follower in self._followers.items():
            known = tail.term_at(follower.following)
            previous = BEGINNING if known is None else LogPosition(known, follower.following)
            request = AppendRequest(term, self.round, previous, (), committed)
            instructions.append(Send(voter, request))
        return instructions

    def answered(self, voter: int, reply: AppendReply) -> None:
        """Take in an answer of this term."""
        follower = self._followers[voter]
        follower.answered = follower.heard = True
        follower.round = max(follower.round, reply.round)
        current = reply.round >= follower.since_round
        if current:
            follower.in_flight = max(0, follower.in_flight - 1)
        if reply.accepted:
            if reply.index > follower.matched:
                follower.matched = reply.index
                follower.needs_snapshot = False
            follower.following = max(follower.following, follower.matched)
        elif current and follower.matched <= reply.index < follower.following:
            # Every request behind the one that was lost will be refused: once is enough.
            follower.following = reply.index
            self._begin_anew(follower)

    def _begin_anew(self, follower: Follower) -> None:
        follower.in_flight = 0
        follower.since_round = self.round + 1

    def durable_on_majority(self, own_index: int) -> int:
        """The newest index that a majority has durably, this voter's own log included."""
        return self._reached([follower.matched for follower in self._followers.values()], own_index)

    def confirmed_round(self) -> int:
        """The newest round that a majority has answered."""
        return self._reached([follower.round for follower in self._followers.values()], self.round)

    def _reached(self, theirs: list[int], own: int) -> int:
        return sorted([*theirs, own], reverse=True)[self._majority - 1]

    def has_majority(self) -> bool:
        """Whether a majority was heard since this was last asked; begins anew."""
        heard = 1
        for follower in self._followers.values():
            heard += follower.heard
            follower.heard = False
            follower.needs_snapshot = False
        return heard >= self._majority

    def needed_from(self, index: int) -> int:
        """Up to where records can be forgotten without sending a snapshot to a live follower."""
        near = [each.matched for each in self._followers.values() if each.heard]
        return min([index, *near])
