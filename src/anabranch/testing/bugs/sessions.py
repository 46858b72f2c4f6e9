"""Planted bugs of the broker's sessions: what a peer may do to a connection."""

from anabranch.broker import requests
from anabranch.broker.session import Session
from anabranch.errors import ProtocolError
from anabranch.testing.planted import planted
from anabranch.wire import Command

_SESSION = "anabranch.broker.session:Session"


@planted("handshake_is_optional", target=f"{_SESSION}._handshake")
def handshake_is_optional(self: Session, command: Command) -> None:
    """A peer that does not greet is served all the same."""
    try:
        requests.shake_hands(self, command)
    except ProtocolError:
        self._connected = True
        self._serve(command)
    self._connected = True


@planted("nonsense_is_passed_over", target=f"{_SESSION}.refuse_connection")
def nonsense_is_passed_over(self: Session, reason: str) -> None:
    """A peer that broke the protocol may go on."""
    del self, reason


@planted("broken_frames_break_the_session", target=f"{_SESSION}.data_received")
def broken_frames_break_the_session(self: Session, data: bytes, /) -> None:
    """Bytes that cannot be read end in an error that nobody catches."""
    for command in self._decoder.feed(data):
        self._serve(command)
