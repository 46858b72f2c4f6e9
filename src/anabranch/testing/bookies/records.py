"""How a model bookie's journal keeps its records.

    record := kind u8 | ledger u64 | content

Sums and torn ends are the journal's own business.
"""

import struct
from typing import Final

from anabranch.testing.bookies.shelves import Record, RecordKind

KIND: Final = b"BOOK"
"""What the journal's files say they hold."""
_HEADER: Final = struct.Struct(">BQ")


def encode(record: Record) -> list[bytes]:
    """The parts of a record, to be written one after the other."""
    return [_HEADER.pack(record.kind, record.ledger_id), record.content]


def decode(data: memoryview) -> Record:
    """Undo `encode`; the journal has checked the bytes."""
    kind, ledger_id = _HEADER.unpack_from(data)
    return Record(RecordKind(kind), ledger_id, bytes(data[_HEADER.size :]))
