"""The commands of the store's state machine, and how they are written into the log.

Pure. The wall time is part of the command: replaying must not read a clock. Version 2 of the format
is written; logs of version 1 are read (`commands_v1`).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.errors import FormatError
from anabranch.metadata import commands_v1
from anabranch.metadata.entries import NOBODY
from anabranch.metadata.fields import (
    FieldReader,
    bytes_field,
    indexes_field,
    text_field,
)
from anabranch.metadata.store import (
    ABSENT,
    ANY,
    Delete,
    Expected,
    Guard,
    Operation,
    Put,
    Record,
    Version,
)

FORMAT_VERSION: Final = 2
_HEADER: Final = struct.Struct(">BBq")
_WRITE: Final = struct.Struct(">QQQI")
_OPERATION: Final = struct.Struct(">BBB")
_VERSION: Final = struct.Struct(">qqq")
_OPEN_SESSION: Final = struct.Struct(">Q")
_SESSIONS: Final = struct.Struct(">I")
_SESSION: Final = struct.Struct(">Q")
_COUNT: Final = struct.Struct(">I")
_RECORD: Final = struct.Struct(">qqqQ")
_WRITE_KIND, _OPEN_KIND, _END_KIND, _RESTORE_KIND = 1, 2, 3, 4
_PUT, _DELETE = 1, 2
_IF_ANY, _IF_ABSENT, _IF_VERSION = 0, 1, 2
_EPHEMERAL, _SEQUENTIAL, _GUARDED, _INDEXED = 1, 2, 4, 8
_KNOWN_FLAGS: Final = _EPHEMERAL | _SEQUENTIAL | _GUARDED | _INDEXED


@dataclass(frozen=True, slots=True)
class Write:
    """Operations that were asked for together."""

    wall_ms: int
    operations: Sequence[Operation]
    session: int = NOBODY
    """Whose ephemeral nodes those of this command are."""
    request: int = 0
    """The number its session gave it, to be answered once only; 0 if it gave none."""
    answered_below: int = 0
    """The session has read the answers to all requests with smaller numbers. This is all there is
    to say if there are no operations, and no number."""


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session begins. Which number it gets is decided by applying this."""

    wall_ms: int
    timeout_ms: int
    """0 for a session inside the store's own process."""
    secret: bytes = b""
    ends: tuple[int, ...] = ()
    """Sessions that it takes the place of."""


@dataclass(frozen=True, slots=True)
class EndSessions:
    """Sessions are over: closed, run out, or ended by an operator."""

    wall_ms: int
    sessions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Exported nodes come in."""

    wall_ms: int
    records: Sequence[Record]


Command = Write | OpenSession | EndSessions | Restore


def encode(command: Command) -> bytes:
    """Return the bytes of a command."""
    match command:
        case Write():
            return b"".join(_encode_write(command))
        case OpenSession():
            return b"".join(
                (
                    _HEADER.pack(FORMAT_VERSION, _OPEN_KIND, command.wall_ms),
                    _OPEN_SESSION.pack(command.timeout_ms),
                    bytes_field(command.secret),
                    _encode_sessions(command.ends),
                )
            )
        case EndSessions():
            header = _HEADER.pack(FORMAT_VERSION, _END_KIND, command.wall_ms)
            return header + _encode_sessions(command.sessions)
        case Restore():
            header = _HEADER.pack(FORMAT_VERSION, _RESTORE_KIND, command.wall_ms)
            parts = [header, _COUNT.pack(len(command.records))]
            parts += map(_encode_record, command.records)
            return b"".join(parts)


def _encode_sessions(sessions: tuple[int, ...]) -> bytes:
    return _SESSIONS.pack(len(sessions)) + b"".join(map(_SESSION.pack, sessions))


def _encode_record(record: Record) -> bytes:
    assert record.session is None, "ephemeral nodes are not restored"
    numbers = _RECORD.pack(
        record.native_version, record.created_ms, record.modified_ms, record.next_sequence
    )
    return b"".join(
        (
            numbers,
            text_field(record.path),
            bytes_field(record.value),
            indexes_field(record.indexes),
        )
    )


def _encode_write(command: Write) -> list[bytes]:
    operations = command.operations
    parts = [
        _HEADER.pack(FORMAT_VERSION, _WRITE_KIND, command.wall_ms),
        _WRITE.pack(command.session, command.request, command.answered_below, len(operations)),
    ]
    for operation in operations:
        expected, guard = operation.expected, operation.guard
        condition = (
            _IF_ANY if expected is ANY else _IF_ABSENT if expected is ABSENT else _IF_VERSION
        )
        flags = _GUARDED if guard is not None else 0
        if isinstance(operation, Put):
            flags |= _EPHEMERAL if operation.ephemeral else 0
            flags |= _SEQUENTIAL if operation.sequential else 0
            flags |= _INDEXED if operation.indexes else 0
        kind = _PUT if isinstance(operation, Put) else _DELETE
        parts += (_OPERATION.pack(kind, condition, flags), text_field(operation.path))
        if isinstance(expected, Version):
            parts.append(_VERSION.pack(expected.epoch, expected.native, expected.life))
        if guard is not None:
            version = guard.version
            parts.append(_VERSION.pack(version.epoch, version.native, version.life))
            parts.append(text_field(guard.path))
        if isinstance(operation, Put):
            if operation.indexes:
                parts.append(indexes_field(operation.indexes))
            parts.append(bytes_field(operation.value))
    return parts


def decode(data: bytes) -> Command:
    """Undo `encode`.

    Raises:
        FormatError: if it is no command, or one of a version this build does not know.
    """
    if data[:1] == bytes([commands_v1.FORMAT_VERSION]):
        return Write(*commands_v1.decode(data))
    if data[:1] != bytes([FORMAT_VERSION]):
        raise FormatError(
            f"metadata command of format {data[:1].hex() or 'nothing'}: "
            f"this build knows {commands_v1.FORMAT_VERSION} to {FORMAT_VERSION}"
        )
    fields = FieldReader(data)
    try:
        command = _decode_body(fields)
    except FormatError as error:
        raise FormatError(f"metadata command cannot be read: {error}") from None
    if not fields.at_end:
        raise FormatError(f"metadata command has {len(data)} bytes, expected {fields.offset}")
    return command


def _decode_body(fields: FieldReader) -> Command:
    _, kind, wall_ms = fields.numbers(_HEADER)
    if kind == _WRITE_KIND:
        session, request, answered_below, count = fields.numbers(_WRITE)
        operations = [_decode_operation(fields) for _ in range(count)]
        return Write(wall_ms, operations, session, request, answered_below)
    if kind == _OPEN_KIND:
        (timeout_ms,) = fields.numbers(_OPEN_SESSION)
        return OpenSession(wall_ms, timeout_ms, fields.bytes(), _decode_sessions(fields))
    if kind == _END_KIND:
        return EndSessions(wall_ms, _decode_sessions(fields))
    if kind == _RESTORE_KIND:
        (count,) = fields.numbers(_COUNT)
        return Restore(wall_ms, [_decode_record(fields) for _ in range(count)])
    raise FormatError(f"unknown kind of command {kind}")


def _decode_sessions(fields: FieldReader) -> tuple[int, ...]:
    (count,) = fields.numbers(_SESSIONS)
    return tuple(int(fields.numbers(_SESSION)[0]) for _ in range(count))


def _decode_record(fields: FieldReader) -> Record:
    native, created_ms, modified_ms, next_sequence = fields.numbers(_RECORD)
    path, value, indexes = fields.text(), fields.bytes(), fields.indexes()
    return Record(path, value, native, created_ms, modified_ms, next_sequence, None, indexes)


def _decode_operation(fields: FieldReader) -> Operation:
    kind, condition, flags = fields.numbers(_OPERATION)
    if flags & ~_KNOWN_FLAGS:
        raise FormatError(f"operation with unknown flags {flags:#x}")
    path = fields.text()
    expected: Expected
    if condition == _IF_VERSION:
        expected = Version(*fields.numbers(_VERSION))
    elif condition in (_IF_ANY, _IF_ABSENT):
        expected = ANY if condition == _IF_ANY else ABSENT
    else:
        raise FormatError(f"operation with unknown condition {condition}")
    guard = None
    if flags & _GUARDED:
        version = Version(*fields.numbers(_VERSION))
        guard = Guard(fields.text(), version)
    if kind == _DELETE:
        return Delete(path, expected, guard)
    if kind != _PUT:
        raise FormatError(f"operation of unknown kind {kind}")
    indexes = fields.indexes() if flags & _INDEXED else ()
    return Put(
        path,
        fields.bytes(),
        expected,
        bool(flags & _EPHEMERAL),
        bool(flags & _SEQUENTIAL),
        indexes,
        guard,
    )
