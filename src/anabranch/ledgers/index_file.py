"""The index file of a sealed segment: what scanning the segment would tell, for a fast start.

    file := magic 8 | version u16 | segment u64 | crc u32 of body | body
    body := segment bytes u64  count u32 (length u32, fact)*  count u32 (ledger u64,
            first entry u64, bytes u64, count u32, packed places u64 little-endian *)*

A file that is damaged or of another version is never trusted; the segment is scanned instead.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from anabranch.errors import FormatError
from anabranch.ledgers.index import LedgerIndex, packed_length_bytes
from anabranch.runtime.disk import Disk

FORMAT_VERSION: Final = 2
_MAGIC = b"ANBLIDX\n"
_HEADER = struct.Struct(">8sHQI")
_SIZE = struct.Struct(">Q")
_COUNT = struct.Struct(">I")
_RUN = struct.Struct(">QQQI")


@dataclass(frozen=True, slots=True)
class Run:
    """The entries of one ledger in the segment."""

    ledger_id: int
    first_entry: int
    length_bytes: int
    places: "array[int]"


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What is in a segment."""

    segment_bytes: int
    facts: Sequence[bytes]
    runs: Sequence[Run]


def index_name(segment: int) -> str:
    """The name of a segment's index file."""
    return f"{segment:012d}.index"


def runs_of(index: LedgerIndex, segment: int) -> Iterator[Run]:
    """The living ledgers' entries in a sealed segment, one ledger at a time, and weigh them.

    Ledgers may be deleted while the iteration is paused; their deletion is recorded elsewhere.
    """
    for ledger_id in list(index.segment(segment).ledgers):
        ledger = index.ledgers.get(ledger_id)
        if ledger is not None:
            first, places = ledger.run(segment)
            run = Run(ledger_id, first, packed_length_bytes(places), places)
            index.segment(segment).weigh(ledger_id, len(places), run.length_bytes)
            yield run


def encode_run(run: Run) -> bytes:
    """A run as it stands in the file."""
    header = _RUN.pack(run.ledger_id, run.first_entry, run.length_bytes, len(run.places))
    return header + _swapped(run.places).tobytes()


def encode_index(
    segment: int, segment_bytes: int, facts: Sequence[bytes], runs: Sequence[bytes]
) -> bytes:
    """The file; `runs` are encoded already."""
    parts = [_SIZE.pack(segment_bytes), _COUNT.pack(len(facts))]
    for fact in facts:
        parts += (_COUNT.pack(len(fact)), fact)
    parts.append(_COUNT.pack(len(runs)))
    parts += runs
    body = b"".join(parts)
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, segment, crc32c(body)) + body


def decode_index(content: bytes, segment: int) -> SegmentIndex:
    """Read a file back.

    Raises:
        FormatError: if it is not the intact index of that segment.
    """
    if len(content) < _HEADER.size:
        raise FormatError("the index file is cut off")
    magic, version, found, crc = _HEADER.unpack_from(content)
    body = memoryview(content)[_HEADER.size :]
    if magic != _MAGIC or version != FORMAT_VERSION or found != segment or crc32c(body) != crc:
        raise FormatError(f"not an intact index of segment {segment}, version {FORMAT_VERSION}")
    facts: list[bytes] = []
    (segment_bytes,) = _SIZE.unpack_from(body)
    (count,) = _COUNT.unpack_from(body, _SIZE.size)
    at = _SIZE.size + _COUNT.size
    for _ in range(count):
        (length,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        facts.append(bytes(body[at : at + length]))
        at += length
    runs: list[Run] = []
    (count,) = _COUNT.unpack_from(body, at)
    at += _COUNT.size
    for _ in range(count):
        ledger_id, first, length, entries = _RUN.unpack_from(body, at)
        at += _RUN.size
        places = array("Q")
        places.frombytes(body[at : at + 8 * entries])
        at += 8 * entries
        runs.append(Run(ledger_id, first, length, _swapped(places)))
    return SegmentIndex(segment_bytes, facts, runs)


def restore(index: LedgerIndex, segment: int, content: SegmentIndex) -> None:
    """Take in a segment by its index file, as replaying it would."""
    for run in content.runs:
        index.add_run(segment, run.ledger_id, run.first_entry, run.places, run.length_bytes)
    for fact in content.facts:
        index.learn(segment, fact)
    use = index.segment(segment)
    use.facts.clear()
    use.total_bytes = content.segment_bytes


async def restore_sealed(disk: Disk, folder: str, index: LedgerIndex, segment: int) -> bool:
    """Take in a sealed segment by its index file; False if it must be scanned."""
    try:
        file = await disk.read(f"{folder}/index/{index_name(segment)}")
        content = decode_index(file, segment)
    except (FileNotFoundError, FormatError):
        return False
    restore(index, segment, content)
    return True


def _swapped(places: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        places = places[:]
        places.byteswap()
    return places
