"""How payloads are packed: Pulsar's five ways, and nothing else. Pure.

A payload is compressed as a whole, a batch too, and travels without any header of its own: how long
it was before is in the metadata. zlib is Python's own; for the others the package cramjam is asked.
"""

import zlib
from types import ModuleType
from typing import Final, Literal, get_args

from anabranch import limits
from anabranch.errors import ConfigError, ProtocolError
from anabranch.generated import pulsar_api_pb2 as pb
from anabranch.wire.commands import Buffer

Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]
COMPRESSIONS: Final[tuple[Compression, ...]] = get_args(Compression)
"""In the order of the protocol's numbers."""
_NONE, _LZ4, _ZLIB, _ZSTD, _SNAPPY = range(5)
_NUMBERS: Final = {
    "none": pb.NONE,
    "lz4": pb.LZ4,
    "zlib": pb.ZLIB,
    "zstd": pb.ZSTD,
    "snappy": pb.SNAPPY,
}


def compression_number(name: Compression) -> pb.CompressionType:
    """The protocol's number, after a look whether this machine has what it takes.

    Raises:
        ConfigError: if there is no such compression, or its library is missing.
    """
    if name not in _NUMBERS:
        raise ConfigError(f"no compression {name!r}; there are {', '.join(COMPRESSIONS)}")
    number = _NUMBERS[name]
    if number not in (_NONE, _ZLIB):
        _library(number)
    return number


def _library(number: int) -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise ConfigError(
            f"{COMPRESSIONS[number]} needs the extra 'compression': "
            "pip install 'anabranch[compression]'"
        ) from error
    return cramjam


def compress(number: int, data: bytes) -> bytes:
    """Pack a payload."""
    if number == _NONE:
        return data
    if number == _ZLIB:
        return zlib.compress(data)
    library = _library(number)
    if number == _LZ4:
        return bytes(library.lz4.compress_block(data, store_size=False))
    if number == _ZSTD:
        return bytes(library.zstd.compress(data))
    return bytes(library.snappy.compress_raw(data))


def decompress(number: int, data: Buffer, size: int) -> Buffer:
    """Unpack a payload that says it has `size` bytes; never more are taken from it.

    Raises:
        ProtocolError: if it is damaged, of another size, or says that it is absurdly large.
        ConfigError: if the library that it takes is missing.
    """
    if number == _NONE:
        return data
    if number >= len(COMPRESSIONS):
        raise ProtocolError(f"a payload with the unknown compression {number}")
    if size > limits.UNCOMPRESSED_BYTES_MAX:
        raise ProtocolError(
            f"a payload that says it unpacks to {size} bytes; "
            f"at most {limits.UNCOMPRESSED_BYTES_MAX} are unpacked"
        )
    if number == _ZLIB:
        unpacked: Buffer = _inflate(data, size)
        found = len(unpacked)
    else:
        library = _library(number)
        unpacked = bytearray(max(1, size))  # none would let any size pass for none
        into = {
            _LZ4: library.lz4.decompress_block_into,
            _ZSTD: library.zstd.decompress_into,
            _SNAPPY: library.snappy.decompress_raw_into,
        }[number]
        try:
            found = into(bytes(data), unpacked)
        except library.DecompressionError as error:
            raise ProtocolError(f"a damaged {COMPRESSIONS[number]} payload: {error}") from error
    if found != size:
        raise ProtocolError(
            f"a {COMPRESSIONS[number]} payload of {found} bytes where {size} were said"
        )
    return unpacked[:size] if size == 0 else unpacked


def _inflate(data: Buffer, size: int) -> bytes:
    # Pulsar's Java code flushes a stream and does not finish it, so the end cannot be asked for.
    try:
        return zlib.decompressobj().decompress(data, size + 1)  # a limit of 0 would be none
    except zlib.error as error:
        raise ProtocolError(f"a damaged zlib payload: {error}") from error
