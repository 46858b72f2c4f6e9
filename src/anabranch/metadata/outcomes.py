"""How a snapshot keeps sessions, and what they were answered and may ask for again. Pure."""

import struct
from typing import Final

from anabranch.errors import AnabranchError, FormatError
from anabranch.metadata.error_codes import code_of, error_of, path_of
from anabranch.metadata.fields import FieldReader, bytes_field, text_field
from anabranch.metadata.state_machine import Session
from anabranch.metadata.store import Outcome, Revision, Stat, Version

_SESSION: Final = struct.Struct(">QQQI")
_ANSWER: Final = struct.Struct(">QI")
_KIND: Final = struct.Struct(">B")
_STAT: Final = struct.Struct(">qqqqqqqB")
_ERROR: Final = struct.Struct(">H")
_NOTHING, _STAT_KIND, _ERROR_KIND = 0, 1, 2
_EPHEMERAL, _BY_SELF = 1, 2


def encode_session(number: int, session: Session) -> bytes:
    """The bytes of a session."""
    parts = [
        _SESSION.pack(number, session.timeout_ms, session.answered_below, len(session.answers)),
        bytes_field(session.secret),
    ]
    for request, outcomes in sorted(session.answers.items()):
        parts.append(_ANSWER.pack(request, len(outcomes)))
        parts += map(_encode_outcome, outcomes)
    return b"".join(parts)


def decode_sessions(data: bytes) -> dict[int, Session]:
    """Undo `encode_session`, for several after one another.

    Raises:
        FormatError: if they cannot be read.
    """
    fields = FieldReader(data)
    sessions: dict[int, Session] = {}
    while not fields.at_end:
        number, timeout_ms, answered_below, count = fields.numbers(_SESSION)
        session = Session(timeout_ms, fields.bytes(), answered_below)
        for _ in range(count):
            request, outcome_count = fields.numbers(_ANSWER)
            session.answers[request] = [_decode_outcome(fields) for _ in range(outcome_count)]
        sessions[number] = session
    return sessions


def _encode_outcome(outcome: Outcome) -> bytes:
    if outcome is None:
        return _KIND.pack(_NOTHING)
    if isinstance(outcome, AnabranchError):
        message = str(outcome).encode()[: 2**16 - 1].decode(errors="ignore")
        parts = (_KIND.pack(_ERROR_KIND), _ERROR.pack(code_of(outcome)))
        return b"".join((*parts, text_field(message), text_field(path_of(outcome))))
    version, revision = outcome.version, outcome.revision
    numbers = _STAT.pack(
        version.epoch,
        version.native,
        version.life,
        revision.epoch,
        revision.index,
        outcome.created_ms,
        outcome.modified_ms,
        _EPHEMERAL * outcome.ephemeral | _BY_SELF * outcome.created_by_self,
    )
    return _KIND.pack(_STAT_KIND) + numbers + text_field(outcome.path)


def _decode_outcome(fields: FieldReader) -> Outcome:
    (kind,) = fields.numbers(_KIND)
    if kind == _NOTHING:
        return None
    if kind == _ERROR_KIND:
        (code,) = fields.numbers(_ERROR)
        return error_of(code, fields.text(), fields.text())
    if kind != _STAT_KIND:
        raise FormatError(f"outcome of unknown kind {kind}")
    *numbers, created_ms, modified_ms, flags = fields.numbers(_STAT)
    return Stat(
        fields.text(),
        Version(*numbers[:3]),
        Revision(*numbers[3:]),
        created_ms,
        modified_ms,
        bool(flags & _EPHEMERAL),
        bool(flags & _BY_SELF),
    )
