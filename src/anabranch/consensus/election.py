"""Who may lead: terms, votes, and the canvass before a vote.

Pure decisions; writing them down before they are told belongs to `replica.py`.
"""

from dataclasses import dataclass
from typing import Final

from anabranch.consensus.log import NOBODY, LogPosition
from anabranch.consensus.messages import VoteRequest


@dataclass(frozen=True, slots=True)
class Voters:
    """Who takes part, and who of them this one is. The same for the life of a log."""

    own: int
    everybody: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.own in self.everybody, f"voter {self.own} is not one of {self.everybody}"
        assert min(self.everybody) > NOBODY, "voters are numbered from 1"
        assert len(set(self.everybody)) == len(self.everybody), "each voter has its own number"

    @property
    def others(self) -> tuple[int, ...]:
        """All but this one."""
        return tuple(voter for voter in self.everybody if voter != self.own)

    @property
    def majority(self) -> int:
        """How many must agree."""
        return len(self.everybody) // 2 + 1


ALONE: Final = Voters(1, (1,))


class Election:
    """The term of a voter, its vote in it, and the votes it was given."""

    def __init__(self, voters: Voters) -> None:
        self.term = 0
        self.voted_for = NOBODY
        self._voters = voters
        self._votes: dict[int, None] = {}

    def enter(self, term: int, voted_for: int = NOBODY) -> None:
        """Go to a later term, or restore a term and its vote."""
        assert term >= self.term, f"term {term} after term {self.term}"
        self.term = term
        self.voted_for = voted_for
        self._votes = {}

    def canvass(self, last: LogPosition) -> VoteRequest:
        """Begin to ask whether the others would vote for this one; changes no term."""
        self._votes = {self._voters.own: None}
        return VoteRequest(self.term + 1, last, canvass=True)

    def stand(self, last: LogPosition) -> VoteRequest:
        """Begin a term with a vote for oneself; it is to be durable before others are asked."""
        self.enter(self.term + 1, self._voters.own)
        self._votes = {self._voters.own: None}
        return VoteRequest(self.term, last, canvass=False)

    def would_vote(self, request: VoteRequest, last: LogPosition) -> bool:
        """Whether a canvass is answered with yes: nothing is promised by that."""
        return request.term > self.term and request.last >= last

    def may_vote(self, candidate: int, request: VoteRequest, last: LogPosition) -> bool:
        """Whether a vote of the present term is still free for a candidate that lacks nothing."""
        free = self.voted_for in (NOBODY, candidate)
        return request.term == self.term and free and request.last >= last

    def count(self, voter: int) -> bool:
        """Count a vote; True once it makes a majority."""
        if len(self._votes) >= self._voters.majority:
            return False
        self._votes[voter] = None
        return len(self._votes) >= self._voters.majority
