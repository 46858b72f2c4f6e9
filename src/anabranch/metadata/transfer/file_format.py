"""The bytes of an export file: a header block, blocks of nodes, an end block with the totals. Pure.

    file   := magic 8 | version u32 | block*
    block  := kind u8 | payload length u32 | crc u32 | payload

The checksum (CRC-32C) covers the block's place in the file, its kind, its length and its payload,
so that a flipped, lost or misplaced block is found with its position. The end block has the totals
and the digests: a file without it was cut off.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from anabranch import limits
from anabranch.errors import Corruption, FormatError, InputError
from anabranch.metadata.fields import FieldReader, bytes_field, indexes_field, text_field
from anabranch.metadata.operation_checks import check_record
from anabranch.metadata.store import AccessRight, Record
from anabranch.metadata.transfer.digest import DIGEST_BYTES, NO_NODES, Digest, Summing

MAGIC: Final = b"ANBRMETA"
FORMAT_VERSION: Final = 1
SUFFIX: Final = ".anabranch-metadata"
HEADER_BLOCK, NODES_BLOCK, END_BLOCK = 1, 2, 3
_FILE_START: Final = struct.Struct(">8sI")
_BLOCK: Final = struct.Struct(">BII")
_PLACE: Final = struct.Struct(">QBI")
_TIME: Final = struct.Struct(">q")
_NODE: Final = struct.Struct(">BqqqQ")
_SESSION: Final = struct.Struct(">Q")
_COUNT: Final = struct.Struct(">H")
_RIGHT: Final = struct.Struct(">i")
_END: Final = struct.Struct(f">QQQ{DIGEST_BYTES}s{DIGEST_BYTES}s")
_EPHEMERAL, _ACLS = 1, 2
FILE_START_BYTES: Final = _FILE_START.size
BLOCK_HEAD_BYTES: Final = _BLOCK.size


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """What an export file says of itself."""

    source: str
    """The store it was taken from, without secrets."""
    prefix: str
    taken_ms: int
    """When, in milliseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class ExportTotals:
    """What an export file holds."""

    digest: Digest = NO_NODES
    ephemerals: int = 0
    """Nodes that lived by a session; they are in the file and never restored."""


class Totalling:
    """Totals that nodes are added to, for whole trees of them."""

    def __init__(self, *, digests: bool = True) -> None:
        """Without digests they are zero: for files that nobody keeps."""
        self._digests = digests
        self._summing = Summing()
        self._nodes = self._value_bytes = self._ephemerals = 0

    def add(self, record: Record) -> None:
        """One more node."""
        if record.session is not None:
            self._ephemerals += 1
        elif self._digests:
            self._summing.add(record)
        else:
            self._nodes += 1
            self._value_bytes += len(record.value)

    @property
    def totals(self) -> ExportTotals:
        """Of all so far."""
        digest = self._summing.digest if self._digests else Digest(self._nodes, self._value_bytes)
        return ExportTotals(digest, self._ephemerals)


# --- writing ----------------------------------------------------------------------------------


def encode_block(offset: int, kind: int, payload: bytes) -> bytes:
    """A block that will be written at `offset`."""
    assert len(payload) <= limits.METADATA_EXPORT_BLOCK_BYTES_MAX, len(payload)
    return _BLOCK.pack(kind, len(payload), _checksum(offset, kind, payload)) + payload


def encode_start(header: ExportHeader) -> bytes:
    """The beginning of a file."""
    payload = _TIME.pack(header.taken_ms) + text_field(header.prefix) + text_field(header.source)
    start = _FILE_START.pack(MAGIC, FORMAT_VERSION)
    return start + encode_block(len(start), HEADER_BLOCK, payload)


def encode_record(record: Record) -> bytes:
    """One node, as it stands in a block."""
    flags = (_EPHEMERAL if record.session is not None else 0) | (_ACLS if record.access else 0)
    parts = [
        _NODE.pack(
            flags,
            record.native_version,
            record.created_ms,
            record.modified_ms,
            record.next_sequence,
        ),
        text_field(record.path),
        bytes_field(record.value),
        indexes_field(record.indexes),
    ]
    if record.session is not None:
        parts.append(_SESSION.pack(record.session))
    if record.access:
        parts.append(_encode_acls(record))
    return b"".join(parts)


def _encode_acls(record: Record) -> bytes:
    if len(record.access) > limits.METADATA_ACLS_PER_NODE_MAX:
        raise InputError(
            f"{record.path} has {len(record.access)} access rights, "
            f"an export file holds at most {limits.METADATA_ACLS_PER_NODE_MAX} of a node"
        )
    parts = [_COUNT.pack(len(record.access))]
    for right in record.access:
        if (
            len(right.scheme.encode()) + len(right.identity.encode())
            > limits.METADATA_ACL_BYTES_MAX
        ):
            raise InputError(
                f"{record.path} has an access right of more than "
                f"{limits.METADATA_ACL_BYTES_MAX} bytes"
            )
        parts += (
            _RIGHT.pack(right.permissions),
            text_field(right.scheme),
            text_field(right.identity),
        )
    return b"".join(parts)


def encode_end(offset: int, totals: ExportTotals) -> bytes:
    """The end of a file, which proves that nothing is missing."""
    return encode_block(offset, END_BLOCK, _encode_totals(totals))


def _encode_totals(totals: ExportTotals) -> bytes:
    digest = totals.digest
    return _END.pack(
        digest.nodes,
        digest.value_bytes,
        totals.ephemerals,
        digest.content.to_bytes(DIGEST_BYTES, "big"),
        digest.exact.to_bytes(DIGEST_BYTES, "big"),
    )


# --- reading ----------------------------------------------------------------------------------


def check_start(file: str, data: bytes) -> None:
    """Refuse what is no export file of a known version.

    Raises:
        FormatError: saying what was found instead.
    """
    if len(data) < FILE_START_BYTES:
        raise FormatError(f"{file} is not a metadata export: it has {len(data)} bytes")
    magic, version = _FILE_START.unpack(data)
    if magic != MAGIC:
        raise FormatError(f"{file} is not a metadata export: it begins with {magic!r}")
    if version != FORMAT_VERSION:
        raise FormatError(f"{file} has format {version}: this build knows {FORMAT_VERSION}")


def payload_length(file: str, offset: int, head: bytes) -> int:
    """How long the payload of the block is whose head was read.

    Raises:
        Corruption: if the head is cut off, or says what cannot be.
    """
    if len(head) < BLOCK_HEAD_BYTES:
        raise Corruption(file, offset, "the file ends before its end block: it was cut off")
    _, length, _ = _BLOCK.unpack(head)
    if length > limits.METADATA_EXPORT_BLOCK_BYTES_MAX:
        raise Corruption(file, offset, f"a block cannot have {length} bytes")
    return int(length)


def check_block(file: str, offset: int, head: bytes, payload: bytes) -> int:
    """The kind of an intact block.

    Raises:
        Corruption: if it is not as it was written.
    """
    kind, length, checksum = _BLOCK.unpack(head)
    if len(payload) != length:
        raise Corruption(file, offset, "the file ends within a block: it was cut off")
    if _checksum(offset, kind, payload) != checksum:
        raise Corruption(file, offset, "the checksum of the block is wrong")
    return int(kind)


def _checksum(offset: int, kind: int, payload: bytes) -> int:
    return int(crc32c(payload, crc32c(_PLACE.pack(offset, kind, len(payload)))))


def decode_header(file: str, offset: int, payload: bytes) -> ExportHeader:
    """The content of a header block.

    Raises:
        Corruption: if it is none.
    """
    fields = FieldReader(payload)
    try:
        (taken_ms,) = fields.numbers(_TIME)
        prefix, source = fields.text(), fields.text()
        if not fields.at_end:
            raise FormatError("there are bytes after the header")
    except FormatError as error:
        raise Corruption(file, offset, f"the header cannot be read: {error}") from None
    return ExportHeader(source, prefix, taken_ms)


def decode_records(file: str, offset: int, payload: bytes) -> Iterable[Record]:
    """The nodes of a block.

    Raises:
        Corruption: if one is no node that a store can have exported.
    """
    fields = FieldReader(payload)
    records: list[Record] = []
    try:
        while not fields.at_end:
            record = _decode_record(fields)
            check_record(record, holds_access=True)
            records.append(record)
    except (FormatError, InputError) as error:
        raise Corruption(file, offset, f"a node cannot be read: {error}") from None
    return records


def _decode_record(fields: FieldReader) -> Record:
    flags, native, created_ms, modified_ms, next_sequence = fields.numbers(_NODE)
    if flags & ~(_EPHEMERAL | _ACLS):
        raise FormatError(f"unknown flags {flags:#x}")
    path, value, indexes = fields.text(), fields.bytes(), fields.indexes()
    session = int(fields.numbers(_SESSION)[0]) if flags & _EPHEMERAL else None
    acls = _decode_acls(fields) if flags & _ACLS else ()
    return Record(
        path, value, native, created_ms, modified_ms, next_sequence, session, indexes, acls
    )


def _decode_acls(fields: FieldReader) -> tuple[AccessRight, ...]:
    (count,) = fields.numbers(_COUNT)
    if not 0 < count <= limits.METADATA_ACLS_PER_NODE_MAX:
        raise FormatError(f"{count} access rights")
    return tuple(
        AccessRight(fields.numbers(_RIGHT)[0], fields.text(), fields.text()) for _ in range(count)
    )


def check_end(file: str, offset: int, payload: bytes, found: ExportTotals) -> None:
    """Hold what was read to the end block.

    Raises:
        Corruption: if something is missing, or was not there.
    """
    if payload == _encode_totals(found):
        return
    detail = "the end block cannot be read"
    if len(payload) == _END.size:
        nodes, _, ephemerals, *_ = _END.unpack(payload)
        said, there = nodes + ephemerals, found.digest.nodes + found.ephemerals
        detail = f"the end block tells of {said} other nodes, the file holds {there}"
    raise Corruption(file, offset, detail)
