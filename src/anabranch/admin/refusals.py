"""A refusal of the web interface: an HTTP status and the reason, as Pulsar says it if it does."""

from typing import Final

from anabranch.broker.refusals import Refused
from anabranch.errors import (
    AlreadyClosed,
    AnabranchError,
    ConflictError,
    InputError,
    InvalidName,
    NotAuthenticated,
    NotAuthorized,
    NotFound,
    StorageError,
    Terminated,
    Unreachable,
)
from anabranch.security.rights import Right
from anabranch.wire import ServerError


class RestRefused(AnabranchError):
    """A request that is not carried out; nothing was changed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Redirected(RestRefused):
    """Another broker has what the request is about, and is to be asked."""

    def __init__(self, location: str) -> None:
        super().__init__(307, f"this is served at {location}")
        self.location = location


_BY_CODE: Final[dict[int, int]] = {
    ServerError.TopicNotFound: 404,
    ServerError.SubscriptionNotFound: 404,
    ServerError.ConsumerNotFound: 404,
    ServerError.InvalidTopicName: 412,
    ServerError.NotAllowedError: 405,
    ServerError.AuthorizationError: 403,
    ServerError.AuthenticationError: 401,
    ServerError.IncompatibleSchema: 409,
    ServerError.ConsumerBusy: 412,
    ServerError.ProducerBusy: 412,
    ServerError.ServiceNotReady: 503,
    ServerError.TooManyRequests: 429,
}
_BY_KIND: Final[tuple[tuple[type[AnabranchError], int], ...]] = (
    (InvalidName, 412),
    (NotAuthenticated, 401),
    (NotFound, 404),
    (InputError, 400),
    (Terminated, 405),
    (AlreadyClosed, 503),
    (ConflictError, 409),
    (Unreachable, 503),
    (StorageError, 503),
)


def status_of(error: AnabranchError) -> int:
    """The HTTP status that an error is answered with; 500 for what is nobody's request's fault."""
    if isinstance(error, RestRefused):
        return error.status
    if isinstance(error, Refused):
        return _BY_CODE.get(error.code, 500)
    if isinstance(error, NotAuthorized):
        # As Pulsar: whoever is no administrator is told to come as one.
        as_other = error.right in (Right.SUPERUSER.value, Right.ADMINISTER.value)
        return 401 if as_other else 403
    for kind, status in _BY_KIND:
        if isinstance(error, kind):
            return status
    return 500
