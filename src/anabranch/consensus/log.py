"""The records of the replicated log and their format.

Pure. Checksums and torn tails belong to the journal below; what a command means belongs to the
state machine above.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from anabranch.errors import FormatError

FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BBQQ")
HEADER_BYTES: Final = _HEADER.size


class RecordKind(IntEnum):
    """What a record is. Stored by number: never renumber a member."""

    TERM = 1
    """A new term begins; no payload."""
    COMMAND = 2


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


def encode(record: LogRecord) -> list[bytes]:
    """Return the bytes of a record, in parts."""
    header = _HEADER.pack(FORMAT_VERSION, record.kind, record.term, record.index)
    return [header, record.payload]


def decode(data: memoryview) -> LogRecord:
    """Undo `encode`.

    Raises:
        FormatError: if it is no log record, or one of a version this build does not know.
    """
    if len(data) < HEADER_BYTES:
        raise FormatError(f"a log record has at least {HEADER_BYTES} bytes, found {len(data)}")
    version, kind, term, index = _HEADER.unpack_from(data)
    if version != FORMAT_VERSION:
        raise FormatError(f"log record of format {version}: this build knows {FORMAT_VERSION}")
    try:
        known_kind = RecordKind(kind)
    except ValueError:
        raise FormatError(f"log record of unknown kind {kind} at index {index}") from None
    return LogRecord(term, index, known_kind, bytes(data[HEADER_BYTES:]))
