"""Planted bugs of the broker's sessions: what a peer may do to a connection."""

from anabranch import limits
from anabranch.broker import requests
from anabranch.broker.doorkeeper import Doorkeeper
from anabranch.broker.liveness import KeepAlive
from anabranch.broker.session import Session
from anabranch.errors import ProtocolError
from anabranch.runtime.network import Connection
from anabranch.testing.planted import original, planted
from anabranch.wire import PROTOCOL_VERSION, BaseCommand, Command, ServerError, replies

_SESSION = "anabranch.broker.session:Session"
_DOORKEEPER = "anabranch.broker.doorkeeper:Doorkeeper"


@planted("handshake_is_optional", target=f"{_SESSION}._handshake")
def handshake_is_optional(self: Session, command: Command) -> None:
    """A peer that does not greet is served all the same."""
    try:
        requests.shake_hands(self, command)
    except ProtocolError:
        self.is_connected = True
        self._serve(command)
    self.is_connected = True


@planted("nonsense_is_passed_over", target=f"{_SESSION}.refuse_connection")
def nonsense_is_passed_over(
    self: Session, reason: str, code: ServerError = ServerError.UnknownError
) -> None:
    """A peer that broke the protocol may go on."""
    del self, reason, code


@planted("broken_frames_break_the_session", target=f"{_SESSION}.data_received")
def broken_frames_break_the_session(self: Session, data: bytes, /) -> None:
    """Bytes that cannot be read end in an error that nobody catches."""
    for command in self._decoder.feed(data):
        self._serve(command)


@planted("refusals_give_no_reason", target=f"{_SESSION}.refuse_connection")
def refusals_give_no_reason(
    self: Session, reason: str, code: ServerError = ServerError.UnknownError
) -> None:
    """A peer that broke the protocol finds its connection closed, and that is all."""
    del reason, code
    self.close()


@planted("any_protocol_is_spoken", target="anabranch.broker.requests:shake_hands")
def any_protocol_is_spoken(session: Session, command: Command) -> None:
    """A client of any age is let in, to be sent what it cannot read."""
    if isinstance(command, BaseCommand) and command.type == BaseCommand.CONNECT:
        command.connect.protocol_version = PROTOCOL_VERSION
    original("any_protocol_is_spoken")(session, command)


@planted("the_silent_are_kept", target="anabranch.broker.liveness:KeepAlive._look")
def the_silent_are_kept(self: KeepAlive) -> None:
    """Peers are pinged, and nobody looks whether they answer."""
    self._session.reply(replies.ping())
    self.begin()


@planted("frames_are_as_large_as_they_say", target=f"{_SESSION}._handshake")
def frames_are_as_large_as_they_say(self: Session, command: Command) -> None:
    """Whatever a client declares is waited for, and kept until it is there."""
    original("frames_are_as_large_as_they_say")(self, command)
    self._decoder.frame_bytes_max = 2**31


@planted("strangers_send_what_they_like", target=f"{_SESSION}.connection_made")
def strangers_send_what_they_like(self: Session, transport: Connection, /) -> None:
    """A peer may send a large frame before it said who it is."""
    original("strangers_send_what_they_like")(self, transport)
    self._decoder.frame_bytes_max = limits.FRAME_BYTES_MAX


@planted("silence_is_waited_for", target="anabranch.broker.liveness:KeepAlive.begin")
def silence_is_waited_for(self: KeepAlive) -> None:
    """A peer that says nothing has as long as a client that is silent."""
    if self._timer is not None:
        self._timer.cancel()
    self._timer = self._session.loop.call_later(self._interval_s, self._look)


@planted("any_number_may_connect", target=f"{_DOORKEEPER}.admit")
def any_number_may_connect(self: Doorkeeper, host: str) -> str | None:
    """Connections are counted, and never too many."""
    self._all += 1
    self._of_host[host] += 1
    return None


@planted("one_host_counts_for_all", target=f"{_DOORKEEPER}.admit")
def one_host_counts_for_all(self: Doorkeeper, host: str) -> str | None:
    """The limit of one host is shared by all."""
    if 0 < self._per_host_max <= self._all:
        return f"Reached the maximum number of connections of {host}"
    return original("one_host_counts_for_all")(self, host)  # type: ignore[no-any-return]
