"""How the embedded store writes a command, that is a batch of operations, into its log.

Pure. The wall time is part of the command: replaying must not read a clock.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata.store import ABSENT, ANY, Delete, Expected, Operation, Put, Version

FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BqI")
_OPERATION: Final = struct.Struct(">BBHI")
_VERSION: Final = struct.Struct(">qqq")
_PUT, _DELETE = 1, 2
_IF_ANY, _IF_ABSENT, _IF_VERSION = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Command:
    """Operations that were asked for together."""

    wall_ms: int
    operations: Sequence[Operation]


def encode(command: Command) -> bytes:
    """Return the bytes of a command."""
    parts = [_HEADER.pack(FORMAT_VERSION, command.wall_ms, len(command.operations))]
    for operation in command.operations:
        expected = operation.expected
        condition = (
            _IF_ANY if expected is ANY else _IF_ABSENT if expected is ABSENT else _IF_VERSION
        )
        kind, value = (_PUT, operation.value) if isinstance(operation, Put) else (_DELETE, b"")
        path = operation.path.encode()
        parts.append(_OPERATION.pack(kind, condition, len(path), len(value)))
        if isinstance(expected, Version):
            parts.append(_VERSION.pack(expected.epoch, expected.native, expected.life))
        parts += (path, value)
    return b"".join(parts)


def decode(data: bytes) -> Command:
    """Undo `encode`.

    Raises:
        FormatError: if it is no command, or one of a version this build does not know.
    """
    if data[:1] != bytes([FORMAT_VERSION]):
        raise FormatError(
            f"metadata command of format {data[:1].hex() or 'nothing'}: "
            f"this build knows {FORMAT_VERSION}"
        )
    try:
        _, wall_ms, count = _HEADER.unpack_from(data)
        operations: list[Operation] = []
        offset = _HEADER.size
        for _ in range(count):
            operation, offset = _decode_operation(data, offset)
            operations.append(operation)
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"metadata command cannot be read: {error}") from None
    if offset != len(data):
        raise FormatError(f"metadata command has {len(data)} bytes, expected {offset}")
    return Command(wall_ms, operations)


def _decode_operation(data: bytes, offset: int) -> tuple[Operation, int]:
    kind, condition, path_bytes, value_bytes = _OPERATION.unpack_from(data, offset)
    offset += _OPERATION.size
    expected: Expected
    if condition == _IF_VERSION:
        expected = Version(*_VERSION.unpack_from(data, offset))
        offset += _VERSION.size
    elif condition in (_IF_ANY, _IF_ABSENT):
        expected = ANY if condition == _IF_ANY else ABSENT
    else:
        raise FormatError(f"metadata operation with unknown condition {condition}")
    path = data[offset : offset + path_bytes].decode()
    offset += path_bytes
    if kind == _PUT:
        return Put(path, data[offset : offset + value_bytes], expected), offset + value_bytes
    if kind == _DELETE and value_bytes == 0:
        return Delete(path, expected), offset
    raise FormatError(f"metadata operation of unknown kind {kind}")
