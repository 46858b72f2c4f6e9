"""The index file of a sealed segment: what scanning the segment would tell, for a fast start.

    file := magic 8 | version u16 | segment u64 | crc u32 of body | body
    body := segment bytes u64  count u32 (length u32, fact)*  count u32 (ledger u64,
            first entry u64, bytes u64, count u32, packed places u64 little-endian *)*

A file that is damaged or of another version is never trusted; the segment is scanned instead.
"""

import struct
import sys
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from anabranch.errors import FormatError
from anabranch.ledgers.index import LedgerIndex, packed_length_bytes
from anabranch.limits import LEDGER_INDEX_SLICE_ENTRIES
from anabranch.runtime.disk import Disk

FORMAT_VERSION: Final = 2
_MAGIC = b"ANBLIDX\n"
_HEADER = struct.Struct(">8sHQI")
_SIZE = struct.Struct(">Q")
_COUNT = struct.Struct(">I")
_RUN = struct.Struct(">QQQI")
_ITEM_WORTH = 16
"""What a fact or a ledger costs, in entries."""


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


def runs_of(index: LedgerIndex, segment: int) -> Iterator[Run | int]:
    """The living ledgers' entries in a sealed segment, one ledger at a time, and weigh them.

    A number in between says how many entries were looked at, for whoever goes on later. Ledgers
    may be deleted meanwhile; their deletion is recorded elsewhere.
    """
    for ledger_id in list(index.segment(segment).ledgers):
        ledger = index.ledgers.get(ledger_id)
        if ledger is None:
            continue
        first, places = ledger.run(segment)
        length_bytes = 0
        for start in range(0, len(places), LEDGER_INDEX_SLICE_ENTRIES):
            some = places[start : start + LEDGER_INDEX_SLICE_ENTRIES]
            length_bytes += packed_length_bytes(some)
            yield len(some)
        if index.ledgers.get(ledger_id) is ledger:
            index.segment(segment).weigh(ledger_id, len(places), length_bytes)
            yield Run(ledger_id, first, length_bytes, places)


def encode_index(
    segment: int, segment_bytes: int, facts: Sequence[bytes], runs: Iterable[Run | int]
) -> Generator[int, None, bytearray]:
    """Return the file, after steps of which each says how many entries it was worth."""
    content = bytearray(_HEADER.size)
    content += _SIZE.pack(segment_bytes) + _COUNT.pack(len(facts))
    for fact in facts:
        content += _COUNT.pack(len(fact)) + fact
        yield _ITEM_WORTH
    count_at = len(content)
    count = 0
    content += _COUNT.pack(count)
    for run in runs:
        if isinstance(run, int):
            yield run
            continue
        count += 1
        places = run.places
        content += _RUN.pack(run.ledger_id, run.first_entry, run.length_bytes, len(places))
        yield _ITEM_WORTH
        for start in range(0, len(places), LEDGER_INDEX_SLICE_ENTRIES):
            some = places[start : start + LEDGER_INDEX_SLICE_ENTRIES]
            content += _swapped(some).tobytes()
            yield len(some)
    _COUNT.pack_into(content, count_at, count)
    crc = 0
    body = memoryview(content)[_HEADER.size :]
    for start in range(0, len(body), 8 * LEDGER_INDEX_SLICE_ENTRIES):
        crc = crc32c(body[start : start + 8 * LEDGER_INDEX_SLICE_ENTRIES], crc)
        yield LEDGER_INDEX_SLICE_ENTRIES
    _HEADER.pack_into(content, 0, _MAGIC, FORMAT_VERSION, segment, crc)
    return content


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
