"""The file that holds a whole tree: a header block, blocks of nodes, an end block.

Pure. Each block has its length and a CRC-32C of its own, so that damage is found with its place
and writing and reading can be done in slices. Nodes come parents first.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from anabranch.consensus.log import LogPosition
from anabranch.errors import Corruption, FormatError
from anabranch.metadata.store import Revision
from anabranch.metadata.tree import Counters, Entry

MAGIC: Final = b"ANBRTREE"
FORMAT_VERSION: Final = 1
_FILE_START: Final = struct.Struct(">8sI")
_BLOCK: Final = struct.Struct(">BII")
_HEADER: Final = struct.Struct(">QQQQQ")
_END: Final = struct.Struct(">Q")
_NODE: Final = struct.Struct(">HIQQQQqq")
_HEADER_BLOCK, _NODES_BLOCK, _END_BLOCK = 1, 2, 3


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """What a snapshot says of itself."""

    position: LogPosition
    """The last log record whose effect is in it."""
    counters: Counters


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
    )
    return _FILE_START.pack(MAGIC, FORMAT_VERSION) + _block(_HEADER_BLOCK, payload)


def encode_nodes(nodes: Sequence[tuple[str, Entry]]) -> bytes:
    """One block of nodes."""
    parts: list[bytes] = []
    for path, entry in nodes:
        path_bytes = path.encode()
        value, *numbers = entry
        parts += (_NODE.pack(len(path_bytes), len(value), *numbers), path_bytes, value)
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
        self.header = self._read_header()

    def _read_header(self) -> SnapshotHeader:
        if len(self._content) < _FILE_START.size:
            raise FormatError(f"{self._file} is not a metadata snapshot: it is too short")
        magic, version = _FILE_START.unpack_from(self._content)
        if magic != MAGIC:
            raise FormatError(f"{self._file} is not a metadata snapshot: it begins with {magic!r}")
        if version != FORMAT_VERSION:
            raise FormatError(
                f"{self._file} has format {version}: this build knows {FORMAT_VERSION}"
            )
        self._offset = _FILE_START.size
        kind, payload = self._next_block()
        if kind != _HEADER_BLOCK or len(payload) != _HEADER.size:
            raise self._damaged("the header block is not where it belongs")
        term, index, epoch, revision_index, life = _HEADER.unpack(payload)
        return SnapshotHeader(
            LogPosition(term, index), Counters(Revision(epoch, revision_index), life)
        )

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
                nodes = _decode_nodes(payload)
                node_count += len(nodes)
                yield nodes
            elif kind == _END_BLOCK and payload == _END.pack(node_count):
                break
            else:
                self._offset = block_offset
                raise self._damaged(f"a block of kind {kind} does not belong here")
        if self._offset != len(self._content):
            raise self._damaged("there are bytes after the end block")


def _decode_nodes(payload: bytes) -> list[tuple[str, Entry]]:
    nodes: list[tuple[str, Entry]] = []
    offset = 0
    while offset < len(payload):
        path_bytes, value_bytes, *numbers = _NODE.unpack_from(payload, offset)
        path_start = offset + _NODE.size
        value_start = path_start + path_bytes
        offset = value_start + value_bytes
        path = payload[path_start:value_start].decode()
        nodes.append((path, Entry(payload[value_start:offset], *numbers)))
    return nodes
