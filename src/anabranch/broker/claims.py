"""Numbers of producers and consumers that are being opened: claimed before, given back after."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.broker.refusals import Refused
from anabranch.wire import ServerError

if TYPE_CHECKING:
    from anabranch.broker.session import Session


class Claim:
    """That a producer or consumer is being opened."""

    def __init__(self) -> None:
        self.on_gone: Callable[[], None] = lambda: None
        """Told if the client closes it, or goes away, before it is open."""


def claim(session: "Session", key: tuple[str, int]) -> Claim:
    """Say that a producer or consumer of that number is being opened.

    Raises:
        Refused: if one is already.
    """
    if key in session.creating:
        kind, number = key
        raise Refused(ServerError.ServiceNotReady, f"{kind} {number} is already being opened")
    token = session.creating[key] = Claim()
    return token


def release(session: "Session", key: tuple[str, int], token: Claim) -> bool:
    """Give the claim back; false if the client closed it or went away meanwhile."""
    if session.creating.get(key) is token:
        del session.creating[key]
        return not session.closed
    return False


def withdraw(session: "Session", key: tuple[str, int]) -> None:
    """The client wants it no more; no error if nothing of that number is being opened."""
    if (token := session.creating.pop(key, None)) is not None:
        token.on_gone()


def withdraw_all(session: "Session") -> None:
    """The client went away."""
    for key in list(session.creating):
        withdraw(session, key)
