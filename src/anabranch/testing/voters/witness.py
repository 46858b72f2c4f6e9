"""What must hold among voters in every moment, checked from outside while they run and die.

The witness survives every crash. It knows what the replicated log promises and nothing of how the
voters keep it.
"""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.consensus.log import LogRecord
from anabranch.consensus.messages import Message, VoteReply, VoteRequest
from anabranch.metadata.store import Revision

if TYPE_CHECKING:
    from anabranch.testing.voters.server import VoterServer

Fingerprint = tuple[int, int, int]


def fingerprint(record: LogRecord) -> Fingerprint:
    """What tells a record from any other at its index."""
    return record.term, record.kind, zlib.crc32(record.payload)


class Witness:
    """Everything the voters ever promised."""

    def __init__(self) -> None:
        self.servers: dict[int, VoterServer] = {}
        """The present or last life of each voter."""
        self.leaders: dict[int, int] = {}
        """By term."""
        self.on_elected: Callable[[int], None] = lambda _: None
        self.snapshots_installed = 0
        self.on_vote: Callable[[int], None] = lambda _: None
        self._terms_said: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], tuple[Fingerprint, int | None]] = {}
        self._committed: dict[int, Fingerprint] = {}
        self._states: dict[int, Revision] = {}

    def started(self, voter: int, term: int) -> None:
        """A voter has read its log back: it must know every term it spoke in."""
        said = self._terms_said.get(voter, 0)
        assert term >= said, f"voter {voter} is back in term {term} and spoke in term {said}"

    def elected(self, voter: int, term: int) -> None:
        """A voter takes itself for the leader of a term: nobody else may."""
        if term not in self.leaders:
            self.leaders[term] = voter
            self.on_elected(voter)
        assert self.leaders[term] == voter, f"{voter} and {self.leaders[term]} lead term {term}"

    def said(self, voter: int, to: int, message: Message) -> None:
        """A voter sends a message; a vote, also one for itself, is for one candidate of a term."""
        canvass = isinstance(message, VoteRequest | VoteReply) and message.canvass
        if canvass:
            return
        self._terms_said[voter] = max(self._terms_said.get(voter, 0), message.term)
        if isinstance(message, VoteRequest):
            self._voted(voter, message.term, voter)
        elif isinstance(message, VoteReply) and message.granted:
            self._voted(voter, message.term, to)
            self.on_vote(voter)

    def _voted(self, voter: int, term: int, candidate: int) -> None:
        before = self._votes.setdefault((voter, term), candidate)
        assert before == candidate, f"{voter} voted for {before} and {candidate} in term {term}"

    def wrote(self, record: LogRecord, term_before: int | None) -> None:
        """A record is put in a log: all logs that have it are alike, and alike before it."""
        mine = (fingerprint(record), term_before)
        first = self._written.setdefault((record.index, record.term), mine)
        assert first == mine, f"two logs differ at or before record {record.index}"

    def applied(self, record: LogRecord, revision: Revision) -> None:
        """A committed record took effect: everywhere and always the same one, the same way."""
        mine = fingerprint(record)
        first = self._committed.setdefault(record.index, mine)
        assert first == mine, f"committed record {record.index} changed from {first} to {mine}"
        seen = self._states.setdefault(record.index, revision)
        assert seen == revision, f"states differ behind record {record.index}: {seen}, {revision}"
