"""What a client may believe of its ZooKeeper session, and what it has to do for it. Pure.

Time is handed in. The session's time is counted from when a ping was *sent*, once it was answered:
the server heard it later than that, so that the server's own count ends later than the client's.
"""

from enum import Enum
from typing import Final

from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.replies import Welcome

_PING_SHARE: Final = 1 / 3
_ANSWER_SHARE: Final = 1 / 6
_LOST_SHARE: Final = 5 / 6
NOBODY: Final = 0


class Begun(Enum):
    """What a welcome means."""

    NEW = "a new session"
    RESUMED = "the session goes on"
    EXPIRED = "the server does not know the session any more"


class Duty(Enum):
    """What is to be done now."""

    PING = "renew the session"
    HANG_UP = "the connection is dead: end it"
    GIVE_UP = "the server may end the session soon: count it as lost"


class Session:
    """A session over all of its connections, and its successors."""

    def __init__(self, timeout_s: float) -> None:
        self.number = NOBODY
        self.password = b""
        self.alive = False
        """Whether the session is believed to be."""
        self.timeout_s = timeout_s
        self.zxid_seen = 0
        """A server that knows less than this is not to be talked to."""
        self._wanted_timeout_s = timeout_s
        self._renewed_s = float("-inf")
        self._pinged_s = float("-inf")
        self._unanswered = False
        self._overdue = False

    def hello(self) -> bytes:
        """The request for a session, or to go on with the present one."""
        timeout_ms = round(self._wanted_timeout_s * 1000)
        if self.alive:
            return requests.hello(self.zxid_seen, timeout_ms, self.number, self.password)
        return requests.hello(self.zxid_seen, timeout_ms, NOBODY, b"")

    def welcomed(self, asked_for: int, welcome: Welcome, sent_s: float) -> Begun:
        """The server has answered a hello, sent at that time in the name of that session."""
        if welcome.session == NOBODY or welcome.timeout_ms <= 0:
            self.alive = False
            return Begun.EXPIRED
        self.number, self.password = welcome.session, welcome.password
        self.timeout_s = welcome.timeout_ms / 1000
        self.alive = True
        self._renewed_s = self._pinged_s = sent_s
        self._unanswered = self._overdue = False
        return Begun.RESUMED if asked_for == welcome.session else Begun.NEW

    def disconnected(self) -> None:
        """Nobody answers the last ping any more."""
        self._unanswered = self._overdue = False

    def ping_answered(self) -> None:
        """The last ping came back."""
        if self._unanswered:
            self._unanswered = self._overdue = False
            self._renewed_s = max(self._renewed_s, self._pinged_s)

    def given_up(self) -> None:
        """The session counts as lost."""
        self.alive = False
        self.disconnected()

    def duties(self, now_s: float, *, connected: bool) -> list[Duty]:
        """What has to be done at this moment; a ping asked for here counts as sent."""
        found: list[Duty] = []
        if connected and self._unanswered:
            overdue = now_s - self._pinged_s >= self.timeout_s * _ANSWER_SHARE
            # Looked at twice: the answer may be here, behind what has kept this process busy.
            if overdue and self._overdue:
                found.append(Duty.HANG_UP)
            self._overdue = overdue
        elif connected and now_s - self._pinged_s >= self.timeout_s * _PING_SHARE:
            self._pinged_s, self._unanswered = now_s, True
            found.append(Duty.PING)
        if self.alive and now_s >= self._renewed_s + self.timeout_s * _LOST_SHARE:
            found.append(Duty.GIVE_UP)
        return found

    @property
    def valid_until_s(self) -> float:
        """Before this the server cannot have ended the session."""
        return self._renewed_s + self.timeout_s if self.alive else float("-inf")
