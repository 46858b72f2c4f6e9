"""The file that holds the whole state: a header block, sessions, blocks of nodes, an end block.

Pure. Each block has its length and a CRC-32C of its own, so that damage is found with its place
and writing and reading can be done in slices. Nodes come parents first. Version 2 is written;
files of version 1, which knew no sessions, are read.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from anabranch.consensus.log import LogPosition
from anabranch.errors import Corruption, FormatError
from anabranch.metadata.entries import NOBODY, Counters, Entry
from anabranch.metadata.fields import FieldReader, indexes_field
from anabranch.metadata.outcomes import decode_sessions, encode_session
from anabranch.metadata.state_machine import Session
from anabranch.metadata.store import Revision

MAGIC: Final = b"ANBRTREE"
FORMAT_VERSION: Final = 2
OLDEST_VERSION: Final = 1
_FILE_START: Final = struct.Struct(">8sI")
_BLOCK: Final = struct.Struct(">BII")
_HEADER: Final = struct.Struct(">QQQQQQ")
_HEADER_V1: Final = struct.Struct(">QQQQQ")
_END: Final = struct.Struct(">Q")
_NODE: Final = struct.Struct(">HIQQQQqqQQ")
_NODE_V1: Final = struct.Struct(">HIQQQQqq")
_HEADER_BLOCK, _NODES_BLOCK, _END_BLOCK, _SESSIONS_BLOCK = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """What a snapshot says of itself."""

    position: LogPosition
    """The last log record whose effect is in it."""
    counters: Counters
    last_session: int = NOBODY
    """The newest number a session was given."""


def _block(kind: int, payload: bytes) -> bytes:
    # The checksum covers the kind and the length too, by starting from their own.
    start = crc32c(struct.pack(">BI", kind, len(payload)))
    return _BLOCK.pack(kind, len(payload), crc32c(payload, start)) + payload


def encode_header(header: SnapshotHeader) -> bytes:
    """The beginning of the file."""
    revision = header.counters.revision
    payload = _HEADER.pack(
        header.position.term,
        header.position.index,
        revision.epoch,
        revision.index,
        header.counters.life,
        header.last_session,
    )
    return _FILE_START.pack(MAGIC, FORMAT_VERSION) + _block(_HEADER_BLOCK, payload)


def encode_sessions(sessions: Mapping[int, Session]) -> bytes:
    """The block of sessions, which follows the header."""
    encoded = (encode_session(number, session) for number, session in sessions.items())
    return _block(_SESSIONS_BLOCK, b"".join(encoded))


def encode_nodes(nodes: Sequence[tuple[str, Entry]]) -> bytes:
    """One block of nodes."""
    parts: list[bytes] = []
    for path, entry in nodes:
        path_bytes = path.encode()
        value, *numbers, indexes = entry
        head = _NODE.pack(len(path_bytes), len(value), *numbers)
        parts += (head, path_bytes, value, indexes_field(indexes))
    return _block(_NODES_BLOCK, b"".join(parts))


def encode_end(node_count: int) -> bytes:
    """The end of the file, which proves that nothing is missing."""
    return _block(_END_BLOCK, _END.pack(node_count))


class SnapshotReader:
    """Reads a snapshot block by block."""

    def __init__(self, file: str, content: bytes) -> None:
        self._file = file
        self._content = content
        self._offset = 0
        self._version = 0
        self.header = self._read_header()
        self.sessions = self._read_sessions()

    def _read_header(self) -> SnapshotHeader:
        if len(self._content) < _FILE_START.size:
            raise FormatError(f"{self._file} is not a metadata snapshot: it is too short")
        magic, version = _FILE_START.unpack_from(self._content)
        if magic != MAGIC:
            raise FormatError(f"{self._file} is not a metadata snapshot: it begins with {magic!r}")
        if not OLDEST_VERSION <= version <= FORMAT_VERSION:
            raise FormatError(
                f"{self._file} has format {version}: "
                f"this build knows {OLDEST_VERSION} to {FORMAT_VERSION}"
            )
        self._version = version
        self._offset = _FILE_START.size
        kind, payload = self._next_block()
        layout = _HEADER_V1 if version == OLDEST_VERSION else _HEADER
        if kind != _HEADER_BLOCK or len(payload) != layout.size:
            raise self._damaged("the header block is not where it belongs")
        term, index, epoch, revision_index, life, *last_session = layout.unpack(payload)
        counters = Counters(Revision(epoch, revision_index), life)
        return SnapshotHeader(LogPosition(term, index), counters, *last_session)

    def _read_sessions(self) -> dict[int, Session]:
        if self._version == OLDEST_VERSION:
            return {}
        block_offset = self._offset
        kind, payload = self._next_block()
        try:
            if kind != _SESSIONS_BLOCK:
                raise FormatError(f"a block of kind {kind} is where the sessions belong")
            return decode_sessions(payload)
        except FormatError as error:
            self._offset = block_offset
            raise self._damaged(str(error)) from None

    def _damaged(self, detail: str) -> Corruption:
        return Corruption(self._file, self._offset, detail)

    def _next_block(self) -> tuple[int, bytes]:
        if len(self._content) - self._offset < _BLOCK.size:
            raise self._damaged("the file ends within a block")
        kind, length, checksum = _BLOCK.unpack_from(self._content, self._offset)
        start = self._offset + _BLOCK.size
        payload = self._content[start : start + length]
        if len(payload) != length:
            raise self._damaged("the file ends within a block")
        if crc32c(payload, crc32c(struct.pack(">BI", kind, length))) != checksum:
            raise self._damaged("the checksum of the block is wrong")
        self._offset = start + length
        return kind, payload

    def blocks(self) -> Iterator[list[tuple[str, Entry]]]:
        """The nodes, block by block.

        Raises:
            Corruption: at the first block that is not as it was written.
        """
        node_count = 0
        while True:
            block_offset = self._offset
            kind, payload = self._next_block()
            if kind == _NODES_BLOCK:
                nodes = self._decode_nodes(payload, block_offset)
                node_count += len(nodes)
                yield nodes
            elif kind == _END_BLOCK and payload == _END.pack(node_count):
                break
            else:
                self._offset = block_offset
                raise self._damaged(f"a block of kind {kind} does not belong here")
        if self._offset != len(self._content):
            raise self._damaged("there are bytes after the end block")

    def _decode_nodes(self, payload: bytes, block_offset: int) -> list[tuple[str, Entry]]:
        layout = _NODE_V1 if self._version == OLDEST_VERSION else _NODE
        nodes: list[tuple[str, Entry]] = []
        fields = FieldReader(payload)
        try:
            while not fields.at_end:
                path_bytes, value_bytes, *numbers = fields.numbers(layout)
                path = fields.take(path_bytes).decode()
                value = fields.take(value_bytes)
                entry = Entry(value, *numbers)
                if layout is _NODE and (indexes := fields.indexes()):
                    entry = entry._replace(indexes=indexes)
                nodes.append((path, entry))
        except (FormatError, UnicodeDecodeError) as error:
            self._offset = block_offset
            raise self._damaged(f"a node cannot be read: {error}") from None
        return nodes
