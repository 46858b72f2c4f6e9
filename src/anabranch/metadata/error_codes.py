"""Numbers for the errors that a store answers with, where answers are stored or sent. Pure."""

from typing import Final

from anabranch import errors
from anabranch.errors import AnabranchError, BadVersion

# Stored and sent by number: never renumber one.
_CODES: Final[dict[int, type[AnabranchError]]] = {
    1: errors.InputError,
    2: errors.InvalidPath,
    3: errors.BadVersion,
    4: errors.NotEmpty,
    5: errors.Fenced,
    6: errors.SessionExpired,
    7: errors.ConflictError,
    8: errors.NotFound,
    9: errors.OutcomeUnknown,
    10: errors.StorageError,
    11: errors.StoreFailed,
    12: errors.AlreadyClosed,
    13: errors.ProtocolError,
    14: errors.FormatError,
    15: errors.FrameTooLarge,
    16: errors.AnabranchError,
}
_NUMBERS: Final = {kind: code for code, kind in _CODES.items()}


def code_of(error: AnabranchError) -> int:
    """The number of an error, or of the nearest kind above it that has one."""
    return next(_NUMBERS[kind] for kind in type(error).__mro__ if kind in _NUMBERS)


def path_of(error: AnabranchError) -> str:
    """The path an error is about; "" if it does not say."""
    return error.path if isinstance(error, BadVersion) else ""


def error_of(code: int, message: str, path: str) -> AnabranchError:
    """Make an error from its number; one this build does not know keeps its message."""
    kind = _CODES.get(code, AnabranchError)
    if kind is BadVersion:
        error: AnabranchError = BadVersion(path)
        error.args = (message,)
        return error
    return kind(message)
