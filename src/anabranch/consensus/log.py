"""The records of the replicated log and their format.

Pure. Checksums and torn tails belong to the journal below; what a command means belongs to the
state machine above.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from anabranch.errors import FormatError

FORMAT_VERSION: Final = 2
"""The newest. Each kind of record is written in the oldest version that has it, so that a build
which knows one voter only reads all that one voter writes, and refuses the rest by its version."""
_HEADER: Final = struct.Struct(">BBQQ")
HEADER_BYTES: Final = _HEADER.size


class RecordKind(IntEnum):
    """What a record is. Stored by number: never renumber a member."""

    TERM = 1
    """A new term begins; no payload."""
    COMMAND = 2
    VOTE = 3
    """A promise between voters: this one is in that term and votes for nobody else in it. The
    payload is the voter it voted for, 0 for nobody. It has no place in the log: its index is 0."""
    CUT = 4
    """The log goes on behind this position; what followed it, if anything did, is void."""


_VERSION_OF: Final = {
    RecordKind.TERM: 1,
    RecordKind.COMMAND: 1,
    RecordKind.VOTE: 2,
    RecordKind.CUT: 2,
}
assert _VERSION_OF.keys() == set(RecordKind), "every kind has a version"
_VOTE: Final = struct.Struct(">I")
NOBODY: Final = 0
"""Stands for a voter where there is none; voters are numbered from 1."""


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A record's term and place in the log. The first record has index 1."""

    term: int
    index: int


BEGINNING: Final = LogPosition(0, 0)
"""Before the first record."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record."""

    term: int
    index: int
    kind: RecordKind
    payload: bytes

    @property
    def position(self) -> LogPosition:
        """Where it is."""
        return LogPosition(self.term, self.index)


def vote(term: int, voted_for: int) -> LogRecord:
    """The record of a term and of the vote in it."""
    return LogRecord(term, 0, RecordKind.VOTE, _VOTE.pack(voted_for))


def voted_for(record: LogRecord) -> int:
    """Whom a vote is for; `NOBODY` if it only notes the term.

    Raises:
        FormatError: if its payload is none of a vote.
    """
    if len(record.payload) != _VOTE.size:
        raise FormatError(
            f"a vote has a payload of {_VOTE.size} bytes, found {len(record.payload)}"
        )
    (voter,) = _VOTE.unpack(record.payload)
    return int(voter)


def cut(position: LogPosition) -> LogRecord:
    """The record that lets the log go on behind a position."""
    return LogRecord(position.term, position.index, RecordKind.CUT, b"")


def encode(record: LogRecord) -> list[bytes]:
    """Return the bytes of a record, in parts."""
    header = _HEADER.pack(_VERSION_OF[record.kind], record.kind, record.term, record.index)
    return [header, record.payload]


def decode(data: memoryview) -> LogRecord:
    """Undo `encode`.

    Raises:
        FormatError: if it is no log record, or one of a version this build does not know.
    """
    if len(data) < HEADER_BYTES:
        raise FormatError(f"a log record has at least {HEADER_BYTES} bytes, found {len(data)}")
    version, kind, term, index = _HEADER.unpack_from(data)
    if not 0 < version <= FORMAT_VERSION:
        raise FormatError(f"log record of format {version}: this build knows 1 to {FORMAT_VERSION}")
    try:
        known_kind = RecordKind(kind)
    except ValueError:
        raise FormatError(f"log record of unknown kind {kind} at index {index}") from None
    if version != _VERSION_OF[known_kind]:
        raise FormatError(f"log record of format {version} has kind {kind} of another format")
    return LogRecord(term, index, known_kind, bytes(data[HEADER_BYTES:]))
