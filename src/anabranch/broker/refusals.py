"""Refusals: an error that is answered on the wire with one of Pulsar's own codes."""

from anabranch.broker.limits import REFUSAL_CHARACTERS_MAX
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    Fenced,
    InvalidName,
    NotAuthenticated,
    NotAuthorized,
    NotFound,
    StorageError,
    Terminated,
)
from anabranch.wire import ServerError


class Refused(AnabranchError):
    """A request the broker will not carry out; `code` is what the client is told."""

    def __init__(self, code: ServerError, text: str) -> None:
        super().__init__(text)
        self.code = code


def sayable(text: str) -> str:
    """A reason as it can be sent: it may quote what a client made up, at any length."""
    return text[:REFUSAL_CHARACTERS_MAX].encode("utf-8", "replace").decode()


def code_of(error: BaseException) -> ServerError:
    """Pulsar's code for an error of ours. Unforeseen ones are retried by clients."""
    if isinstance(error, Refused):
        return error.code
    if isinstance(error, InvalidName):
        return ServerError.InvalidTopicName
    if isinstance(error, NotAuthorized):
        return ServerError.AuthorizationError
    if isinstance(error, NotAuthenticated):
        return ServerError.AuthenticationError
    if isinstance(error, NotFound):
        return ServerError.TopicNotFound
    if isinstance(error, Terminated):
        return ServerError.TopicTerminatedError
    if isinstance(error, Fenced | AlreadyClosed):
        return ServerError.ServiceNotReady
    if isinstance(error, StorageError):
        return ServerError.PersistenceError
    return ServerError.MetadataError
