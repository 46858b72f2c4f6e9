"""Planted bugs of `anabranch.consensus`."""

from anabranch.consensus.election import Election
from anabranch.consensus.events import Append, Instruction
from anabranch.consensus.following import Following
from anabranch.consensus.kept_log import KeptLog
from anabranch.consensus.log import LogPosition, LogRecord
from anabranch.consensus.messages import VoteRequest
from anabranch.consensus.replica import Replica
from anabranch.testing.planted import original, planted


@planted(
    "vote_told_before_durable",
    target="anabranch.consensus.kept_log:KeptLog.once_promised",
)
def vote_told_before_durable(self: KeptLog, instruction: Instruction) -> list[Instruction]:
    """A vote is answered while it is on its way to the disk."""
    return [instruction]


@planted(
    "older_terms_are_counted",
    target="anabranch.consensus.replica:Replica._committable_to",
)
def older_terms_are_counted(self: Replica) -> int:
    """A leader commits whatever a majority has, also records of terms before its own."""
    return self._followers.durable_on_majority(self._log.durable_index)


@planted("conflicting_tail_is_kept", target="anabranch.consensus.following:Following._merge")
def conflicting_tail_is_kept(self: Following, records: tuple[LogRecord, ...]) -> list[Instruction]:
    """A follower takes any record it has at an index for the one its leader has there."""
    instructions: list[Instruction] = []
    for record in records:
        if record.index > self._log.last.index:
            instructions += self._log.write(record)
    return instructions


@planted("cut_is_not_written", target="anabranch.consensus.kept_log:KeptLog.cut_behind")
def cut_is_not_written(self: KeptLog, index: int) -> list[Instruction]:
    """Records are taken back in memory, and are in the log again after a restart."""
    (cut,) = original("cut_is_not_written")(self, index)
    assert isinstance(cut, Append)
    self.writes._under_way.pop()
    self.writes.given -= 1
    return []


@planted("two_votes_in_a_term", target="anabranch.consensus.election:Election.may_vote")
def two_votes_in_a_term(
    self: Election, candidate: int, request: VoteRequest, last: LogPosition
) -> bool:
    """A voter gives its vote to every candidate that asks."""
    del candidate
    return request.term == self.term and request.last >= last
