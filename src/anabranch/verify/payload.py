"""Payloads that say who sent them: they identify themselves wherever they turn up.

Pure. Layout, big-endian: magic `AV`, format version, run (8 bytes), producer (u32), epoch (u32),
seq (u64), length of the key (u16), key, padding, CRC32C of all that precedes it (u32).
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from anabranch.errors import Corruption, FormatError, InputError

MAGIC: Final = b"AV"
VERSION: Final = 1
RUN_BYTES: Final = 8
KEY_BYTES_MAX: Final = 0xFFFF
_HEAD: Final = struct.Struct(">2sB8sIIQH")
_CHECKSUM: Final = struct.Struct(">I")
PAYLOAD_BYTES_MIN: Final = _HEAD.size + _CHECKSUM.size
# Neither constant nor random, so that compression has something to do and something to miss.
_PADDING: Final = bytes((index * index + index // 7) & 0xFF for index in range(4096))


class Payload(NamedTuple):
    """What a message says about itself."""

    run: str
    producer: int
    epoch: int
    seq: int
    key: str
    checksum: int


def build(
    *, run: str, producer: int, epoch: int, seq: int, key: str, length: int = 0
) -> tuple[bytes, int]:
    """Return the bytes of a message, padded to `length` where that is longer, and their checksum.

    Raises:
        InputError: if the run is not 16 hexadecimal digits or the key is too long.
    """
    key_bytes = key.encode()
    try:
        run_bytes = bytes.fromhex(run)
    except ValueError:
        run_bytes = b""
    if len(run_bytes) != RUN_BYTES:
        raise InputError(f"a run is named by {2 * RUN_BYTES} hexadecimal digits, not {run!r}")
    if len(key_bytes) > KEY_BYTES_MAX:
        raise InputError(f"a key of {len(key_bytes)} bytes is longer than {KEY_BYTES_MAX}")
    head = _HEAD.pack(MAGIC, VERSION, run_bytes, producer, epoch, seq, len(key_bytes))
    missing = max(0, length - len(head) - len(key_bytes) - _CHECKSUM.size)
    padding = (_PADDING * (missing // len(_PADDING) + 1))[:missing]
    body = head + key_bytes + padding
    checksum = crc32c(body)
    return body + _CHECKSUM.pack(checksum), checksum


def parse(data: bytes) -> Payload:
    """Read what a message says about itself.

    Raises:
        FormatError: if it is no payload of this format, or of another version.
        Corruption: if its bytes are not the ones that were sent.
    """
    if data[:2] != MAGIC:
        raise FormatError(f"not a payload of a verification run: it begins with {data[:2]!r}")
    if len(data) > 2 and data[2] != VERSION:
        raise FormatError(
            f"payload format version {data[2]} is unknown; this build reads {VERSION}"
        )
    if len(data) < PAYLOAD_BYTES_MIN:
        raise Corruption("payload", len(data), f"shorter than {PAYLOAD_BYTES_MIN} bytes")
    body, (stored,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack(data[-_CHECKSUM.size :])
    checksum = crc32c(body)
    if checksum != stored:
        raise Corruption("payload", len(body), f"checksum {checksum:#010x}, stored {stored:#010x}")
    _, _, run, producer, epoch, seq, key_length = _HEAD.unpack_from(body)
    if _HEAD.size + key_length > len(body):
        raise Corruption("payload", _HEAD.size, f"key of {key_length} bytes passes the end")
    try:
        key = body[_HEAD.size : _HEAD.size + key_length].decode()
    except UnicodeDecodeError:
        raise Corruption("payload", _HEAD.size, "the key is not UTF-8") from None
    return Payload(run.hex(), producer, epoch, seq, key, checksum)
