"""What a client may still believe of its session. Pure: time is handed in.

Counted from when a renewal was *sent*, once it was answered: the server heard it later than that,
so the server's own count ends later than the client's.
"""

from typing import Final

_RENEW_SHARE: Final = 1 / 3
_ANSWER_SHARE: Final = 1 / 6
_LOST_SHARE: Final = 5 / 6


class Lease:
    """The time that a session has, as its client sees it."""

    def __init__(self) -> None:
        self.timeout_s = 0.0
        self._renewed_s = float("-inf")

    def begin(self, timeout_s: float, sent_s: float) -> None:
        """A session was granted or taken up again, by a request sent at that time."""
        self.timeout_s = timeout_s
        self._renewed_s = sent_s

    def renewed(self, sent_s: float) -> None:
        """A renewal sent at that time was answered."""
        self._renewed_s = max(self._renewed_s, sent_s)

    @property
    def valid_until_s(self) -> float:
        """Before this the server cannot have ended the session."""
        return self._renewed_s + self.timeout_s

    @property
    def lost_at_s(self) -> float:
        """At this moment, without another answer, the session must be given up."""
        return self._renewed_s + self.timeout_s * _LOST_SHARE

    @property
    def renew_every_s(self) -> float:
        """How often to renew."""
        return self.timeout_s * _RENEW_SHARE

    @property
    def answer_within_s(self) -> float:
        """A renewal that takes longer says that the connection is dead."""
        return self.timeout_s * _ANSWER_SHARE
