"""Commands of format 1, which had neither sessions nor guards: still read, never written. Pure."""

import struct
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata.fields import FieldReader
from anabranch.metadata.store import ABSENT, ANY, Delete, Expected, Operation, Put, Version

FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BqI")
_OPERATION: Final = struct.Struct(">BBHI")
_VERSION: Final = struct.Struct(">qqq")
_PUT, _DELETE = 1, 2
_IF_ANY, _IF_ABSENT, _IF_VERSION = 0, 1, 2


def decode(data: bytes) -> tuple[int, list[Operation]]:
    """Return the wall time and the operations of a command.

    Raises:
        FormatError: if it cannot be read.
    """
    fields = FieldReader(data)
    try:
        _, wall_ms, count = fields.numbers(_HEADER)
        operations = [_decode_operation(fields) for _ in range(count)]
    except (FormatError, UnicodeDecodeError) as error:
        raise FormatError(f"metadata command cannot be read: {error}") from None
    if not fields.at_end:
        raise FormatError(f"metadata command has {len(data)} bytes, expected {fields.offset}")
    return wall_ms, operations


def _decode_operation(fields: FieldReader) -> Operation:
    kind, condition, path_bytes, value_bytes = fields.numbers(_OPERATION)
    expected: Expected
    if condition == _IF_VERSION:
        expected = Version(*fields.numbers(_VERSION))
    elif condition in (_IF_ANY, _IF_ABSENT):
        expected = ANY if condition == _IF_ANY else ABSENT
    else:
        raise FormatError(f"operation with unknown condition {condition}")
    path = fields.take(path_bytes).decode()
    if kind == _PUT:
        return Put(path, fields.take(value_bytes), expected)
    if kind == _DELETE and value_bytes == 0:
        return Delete(path, expected)
    raise FormatError(f"operation of unknown kind {kind}")
