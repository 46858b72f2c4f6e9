"""The records of the embedded ledger store, as bytes and back. Pure.

    ENTRY    ledger, epoch of the writer, entry id, payload
    CREATE   ledger, epoch, custom metadata
    FENCE    ledger, epoch
    CLOSE    ledger, last entry id, length in bytes
    DELETE   ranges of ledger ids

All but ENTRY are facts that merge: epochs only grow, closed stays closed, deleted stays deleted.
So a fact may be written again at any time, and it does not matter in which order facts are read.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import FormatError

KIND: Final = b"LDG1"
"""Names the format of these records in the journal; a new format gets a new name."""

ENTRY: Final = 1
_CREATE: Final = 2
_FENCE: Final = 3
_CLOSE: Final = 4
_DELETE: Final = 5

ENTRY_HEADER: Final = struct.Struct(">BQIQ")
ENTRY_HEADER_BYTES: Final = ENTRY_HEADER.size
_CREATE_HEADER = struct.Struct(">BQII")
_PAIR_HEADER = struct.Struct(">II")
_FENCE_RECORD = struct.Struct(">BQI")
_CLOSE_RECORD = struct.Struct(">BQqQ")
_DELETE_HEADER = struct.Struct(">BI")
_RANGE = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class Create:
    """A ledger exists."""

    ledger_id: int
    epoch: int
    custom_metadata: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Fence:
    """Writers of smaller epochs have lost the ledger."""

    ledger_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    """The ledger has ended."""

    ledger_id: int
    last_entry_id: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Ledgers, as inclusive ranges of ids, are gone and their ids used up."""

    ranges: Sequence[tuple[int, int]]


Fact = Create | Fence | Close | Delete


def encode_fact(fact: Fact) -> bytes:
    """The record of a fact."""
    match fact:
        case Create(ledger_id, epoch, metadata):
            parts = [_CREATE_HEADER.pack(_CREATE, ledger_id, epoch, len(metadata))]
            for key in sorted(metadata):
                name = key.encode()
                parts.append(_PAIR_HEADER.pack(len(name), len(metadata[key])))
                parts += (name, metadata[key])
            return b"".join(parts)
        case Fence(ledger_id, epoch):
            return _FENCE_RECORD.pack(_FENCE, ledger_id, epoch)
        case Close(ledger_id, last, length):
            return _CLOSE_RECORD.pack(_CLOSE, ledger_id, last, length)
        case Delete(ranges):
            packed = b"".join(_RANGE.pack(first, last) for first, last in ranges)
            return _DELETE_HEADER.pack(_DELETE, len(ranges)) + packed


def decode_fact(record: memoryview) -> Fact:
    """The fact in a record that is not an ENTRY.

    Raises:
        FormatError: if it is of no known type or shape.
    """
    try:
        fact = _decode(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"a ledger record of type {record[0]} is malformed: {error}") from error
    if encode_fact(fact) != record:
        raise FormatError(f"a ledger record of type {record[0]} has bytes left over")
    return fact


def _decode(record: memoryview) -> Fact:
    match record[0]:
        case 2:
            return _decode_create(record)
        case 3:
            _, ledger_id, epoch = _FENCE_RECORD.unpack(record)
            return Fence(ledger_id, epoch)
        case 4:
            _, ledger_id, last, length = _CLOSE_RECORD.unpack(record)
            return Close(ledger_id, last, length)
        case 5:
            _, count = _DELETE_HEADER.unpack_from(record)
            start = _DELETE_HEADER.size
            ranges = [_RANGE.unpack_from(record, start + n * _RANGE.size) for n in range(count)]
            return Delete([(first, last) for first, last in ranges])
        case unknown:
            raise FormatError(f"unknown ledger record type {unknown}")


def _decode_create(record: memoryview) -> Create:
    _, ledger_id, epoch, count = _CREATE_HEADER.unpack_from(record)
    at = _CREATE_HEADER.size
    metadata = {}
    for _ in range(count):
        name_bytes, value_bytes = _PAIR_HEADER.unpack_from(record, at)
        at += _PAIR_HEADER.size
        name = bytes(record[at : at + name_bytes]).decode()
        at += name_bytes
        metadata[name] = bytes(record[at : at + value_bytes])
        at += value_bytes
    return Create(ledger_id, epoch, metadata)
