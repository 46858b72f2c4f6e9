"""The compressed form that nodes of managed ledgers and cursors may have, Pulsar's. Pure.

    magic u16 0x4778 | length of the metadata u32 | metadata: type and size before | packed document

No protocol buffer begins with that magic, so a reader tells the two forms apart by the first bytes.
"""

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from anabranch import limits
from anabranch.errors import ConfigError, FormatError, ProtocolError
from anabranch.generated import ml_data_formats_pb2 as pb
from anabranch.wire.compression import Compression, compress, compression_number, decompress

_MAGIC: Final = b"\x47\x78"
_HEAD: Final = struct.Struct(">2sI")


@dataclass(frozen=True, slots=True)
class DocumentCompression:
    """How documents are written; every form is read, whatever this says."""

    kind: Compression = "none"
    above_bytes: int = limits.DOCUMENT_COMPRESSED_ABOVE_BYTES
    """Smaller documents are written as they are."""

    def __post_init__(self) -> None:
        compression_number(self.kind)
        if self.above_bytes < 0:
            raise ConfigError(f"documents above {self.above_bytes} bytes: it must not be negative")

    def pack(self, document: bytes) -> bytes:
        """The document as it is stored."""
        number = compression_number(self.kind)
        if not number or len(document) <= self.above_bytes:
            return document
        metadata = pb.CompressedInfoMetadata(
            compressionType=self.kind.upper(), uncompressedSize=len(document)
        ).SerializeToString()
        return _HEAD.pack(_MAGIC, len(metadata)) + metadata + compress(number, document)


def unpack(value: bytes, what: str) -> bytes:
    """Undo `DocumentCompression.pack`; what is not compressed stays as it is.

    Raises:
        FormatError: if it is damaged, of an unknown kind, or too large.
        ConfigError: if the library that it takes is missing.
    """
    if not value.startswith(_MAGIC):
        return value
    metadata = pb.CompressedInfoMetadata()
    begin = _HEAD.size + _HEAD.unpack_from(value)[1] if len(value) >= _HEAD.size else len(value) + 1
    if begin > len(value):
        raise FormatError(f"{what} is compressed and ends within its head")
    try:
        metadata.ParseFromString(value[_HEAD.size : begin])
    except DecodeError as error:
        raise FormatError(f"{what} is compressed, and its head is damaged: {error}") from None
    if not metadata.IsInitialized():
        # An enum value that this build does not know counts as missing.
        raise FormatError(f"{what} is compressed in a way that this build does not know")
    size = metadata.uncompressedSize
    if not 0 <= size <= limits.DOCUMENT_BYTES_MAX:
        raise FormatError(
            f"{what} says that it has {size} bytes uncompressed; "
            f"at most {limits.DOCUMENT_BYTES_MAX} are read"
        )
    try:
        return bytes(decompress(metadata.compressionType, value[begin:], size))
    except ProtocolError as error:
        raise FormatError(f"{what} is compressed and damaged: {error}") from error
