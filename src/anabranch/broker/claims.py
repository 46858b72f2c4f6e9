"""Numbers of producers and consumers that are being opened: claimed before, given back after."""

from typing import TYPE_CHECKING

from anabranch.broker.refusals import Refused
from anabranch.wire import ServerError

if TYPE_CHECKING:
    from anabranch.broker.session import Session


def claim(session: "Session", key: tuple[str, int]) -> object:
    """Say that a producer or consumer of that number is being opened.

    Raises:
        Refused: if one is already.
    """
    if key in session.creating:
        kind, number = key
        raise Refused(ServerError.ServiceNotReady, f"{kind} {number} is already being opened")
    token = object()
    session.creating[key] = token
    return token


def release(session: "Session", key: tuple[str, int], token: object) -> bool:
    """Give the claim back; false if the client closed it or went away meanwhile."""
    if session.creating.get(key) is token:
        del session.creating[key]
        return not session.closed
    return False
