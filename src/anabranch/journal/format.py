"""How a journal's segments look in bytes. Pure: no files, no loop.

    segment := header item*
    item    := mark | record
    mark    := MARK_WORD u32 | own offset u64 | synced u64 | crc u32
    record  := payload length u32 | crc u32 | payload

Every group of records that goes to disk with one write and one sync begins with a mark, and an idle
journal ends with one. A mark tells **how much was durable when it was written**: `synced` bytes of
its own segment, or, if it is the first in its segment, all bytes of the segment before, of which
`synced` is the length (0 if not known). That is how recovery tells a torn tail, which nobody was
promised, from damage: bytes that do not parse are damage if an intact mark vouches for them.

A sealed segment may be written once more without the records that nobody needs any more. Its
header then has version 2. It was durable before it took its name, so nothing in it can be torn, and
it ends with a mark that vouches for all of it.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from anabranch.errors import Corruption, FormatError
from anabranch.limits import JOURNAL_RECORD_BYTES_MAX

FORMAT_VERSION: Final = 1
REWRITTEN_VERSION: Final = 2
KIND_BYTES: Final = 4
MARK_WORD: Final = 0xA7C3_96E5
"""Larger than any record length, so the first word of an item tells a mark from a record."""
assert MARK_WORD > JOURNAL_RECORD_BYTES_MAX

_MAGIC = b"ANBJRNL\n"
_HEADER = struct.Struct(">8sH4sQI")
_MARK = struct.Struct(">IQQI")
_CHECKED_MARK_BYTES = _MARK.size - 4
RECORD_HEADER: Final = struct.Struct(">II")
HEADER_BYTES: Final = _HEADER.size
MARK_BYTES: Final = _MARK.size
RECORD_HEADER_BYTES: Final = RECORD_HEADER.size
MARK_START: Final = MARK_WORD.to_bytes(4, "big")


class RecordPlace(NamedTuple):
    """Where a record is."""

    segment: int
    offset: int
    """Of the record's header in the segment's file."""
    length: int
    """Of the payload."""


def segment_name(segment: int) -> str:
    """The file name of a segment; names sort as numbers do."""
    return f"{segment:012d}.journal"


def is_rewriting_name(name: str) -> bool:
    """Whether a file was to take the place of a segment when the process ended."""
    return name.endswith(".new") and segment_number(name.removesuffix(".new")) is not None


def segment_number(name: str) -> int | None:
    """The segment a file name stands for, None if it is not a segment's name."""
    stem, dot, suffix = name.partition(".")
    if dot and suffix == "journal" and stem.isascii() and stem.isdigit():
        number = int(stem)
        if segment_name(number) == name:
            return number
    return None


def seed_of(segment: int) -> int:
    """What checksums of a segment start from: bytes of one never pass for bytes of another."""
    return crc32c(segment.to_bytes(8, "big"))


def encode_header(kind: bytes, segment: int, version: int = FORMAT_VERSION) -> bytes:
    """The first bytes of a segment's file."""
    assert len(kind) == KIND_BYTES, f"a kind has {KIND_BYTES} bytes: {kind!r}"
    checked = _HEADER.pack(_MAGIC, version, kind, segment, 0)[:-4]
    return checked + crc32c(checked).to_bytes(4, "big")


def check_header(header: bytes, path: str, kind: bytes, segment: int) -> int:
    """Refuse a file that is not the wanted segment; return its version.

    Raises:
        FormatError: if it is no journal, of another version or holds another kind of records.
        Corruption: if the header is damaged.
    """
    if header[: len(_MAGIC)] != _MAGIC:
        raise FormatError(f"{path} is not a journal segment: it begins with {header[:8]!r}")
    if len(header) < HEADER_BYTES:
        raise Corruption(path, len(header), "the segment's header is cut off")
    _, version, found_kind, found_segment, crc = _HEADER.unpack(header)
    if version not in (FORMAT_VERSION, REWRITTEN_VERSION):
        raise FormatError(
            f"{path} has journal format version {version}; this build reads {FORMAT_VERSION} "
            f"and {REWRITTEN_VERSION}"
        )
    if crc32c(header[:-4]) != crc:
        raise Corruption(path, 0, "the segment's header fails its checksum")
    if found_kind != kind:
        raise FormatError(f"{path} holds records of kind {found_kind!r}, wanted {kind!r}")
    if found_segment != segment:
        raise Corruption(path, 0, f"the header says segment {found_segment}: was it renamed?")
    return int(version)


def is_torn_header(header: bytes, kind: bytes, segment: int) -> bool:
    """Whether the bytes are what a crash leaves of a header that was being written."""
    wanted = encode_header(kind, segment)
    written = header.rstrip(b"\0")
    return len(header) <= HEADER_BYTES and header != wanted and wanted.startswith(written)


def encode_mark(segment: int, offset: int, synced: int) -> bytes:
    """A mark that will be written at `offset`."""
    checked = _MARK.pack(MARK_WORD, offset, synced, 0)[:_CHECKED_MARK_BYTES]
    return checked + crc32c(checked, seed_of(segment)).to_bytes(4, "big")


def decode_mark(data: memoryview, seed: int, offset: int) -> int | None:
    """The `synced` of an intact mark that was written at `offset`, else None."""
    if len(data) < MARK_BYTES:
        return None
    word, own, synced, crc = _MARK.unpack_from(data)
    if word != MARK_WORD or own != offset:
        return None
    if crc32c(data[:_CHECKED_MARK_BYTES], seed) != crc:
        return None
    return int(synced)


def record_payload(data: memoryview, seed: int) -> memoryview | None:
    """The payload of the record that the bytes are, None if they are not one."""
    if len(data) <= RECORD_HEADER_BYTES:
        return None
    length, crc = RECORD_HEADER.unpack_from(data)
    payload = data[RECORD_HEADER_BYTES:]
    if len(payload) != length or crc32c(payload, seed ^ length) != crc:
        return None
    return payload


def find_marks(data: bytes, seed: int, offset: int) -> Iterator[tuple[int, int]]:
    """Offset and `synced` of the intact marks in bytes that begin at `offset`, parsed or not."""
    view = memoryview(data)
    at = data.find(MARK_START)
    while at >= 0:
        synced = decode_mark(view[at : at + MARK_BYTES], seed, offset + at)
        if synced is not None:
            yield offset + at, synced
        at = data.find(MARK_START, at + 1)


class Parsed(NamedTuple):
    """How far a piece of a segment could be cut into items."""

    consumed: int
    wanted_bytes: int
    """Of the item that begins after `consumed`, as far as is known; 0 if it is damaged."""
    damage: str
    synced: int
    """How much of the segment its marks vouch for, -1 if there is none in the piece."""
    previous: int | None
    """What the segment's first mark says of the segment before, if it is in the piece."""


def parse_items(
    data: memoryview, segment: int, offset: int, replay: Callable[[RecordPlace, memoryview], None]
) -> Parsed:
    """Cut bytes that begin at an item of a segment, handing every intact record to `replay`."""
    seed = seed_of(segment)
    at = 0
    synced = -1
    previous: int | None = None
    total = len(data)
    while total - at >= RECORD_HEADER_BYTES:
        length, crc = RECORD_HEADER.unpack_from(data, at)
        if length == MARK_WORD:
            if total - at < MARK_BYTES:
                return Parsed(at, MARK_BYTES, "", synced, previous)
            said = decode_mark(data[at : at + MARK_BYTES], seed, offset + at)
            if said is None:
                return Parsed(at, 0, "a mark fails its checksum", synced, previous)
            if offset + at == HEADER_BYTES:
                previous, said = said, HEADER_BYTES
            synced = max(synced, said)
            at += MARK_BYTES
            continue
        if not 0 < length <= JOURNAL_RECORD_BYTES_MAX:
            return Parsed(at, 0, f"a record cannot have {length} bytes", synced, previous)
        start = at + RECORD_HEADER_BYTES
        if total - start < length:
            return Parsed(at, RECORD_HEADER_BYTES + length, "", synced, previous)
        payload = data[start : start + length]
        if crc32c(payload, seed ^ length) != crc:
            return Parsed(at, 0, "a record fails its checksum", synced, previous)
        replay(RecordPlace(segment, offset + at, length), payload)
        at = start + length
    return Parsed(at, RECORD_HEADER_BYTES, "", synced, previous)
