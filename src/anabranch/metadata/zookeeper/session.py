"""What a client may believe of its ZooKeeper session, and what it has to do for it. Pure.

Time is handed in. The leader of the servers ends sessions, but a client talks to any of them, which
tells the leader of whom it has heard when the leader asks, twice in each tick, and which goes on
answering for a while when it has lost its leader. So an answered ping proves nothing. What is sent
instead is a question (`sync`) that the leader answers, by the one server, in the order of all that
they say to each other. After the leader must have asked, one such answer shows that the server was
asked, and the next that its reply was heard: then the session's time is counted from when the
question before all that was *sent*.
"""

from collections import deque
from enum import Enum
from typing import Final, NamedTuple

from anabranch.metadata.zookeeper import requests
from anabranch.metadata.zookeeper.replies import Welcome

_ASK_SHARE: Final = 1 / 28
"""A little less than the pause between two calls of `duties`."""
_ANSWER_SHARE: Final = 1 / 6
_HANDED_ON_SHARE: Final = 1 / 4
"""The leader asks twice in a tick, and grants no session of less than two ticks."""
_LOST_SHARE: Final = 5 / 6
NOBODY: Final = 0


class Begun(Enum):
    """What a welcome means."""

    NEW = "a new session"
    RESUMED = "the session goes on"
    EXPIRED = "the server does not know the session any more"


class Duty(Enum):
    """What is to be done now."""

    ASK = "let the leader show that it hears of the session"
    HANG_UP = "the connection is dead: end it"
    GIVE_UP = "the leader may end the session soon: count it as lost"


class _Answered(NamedTuple):
    """A question to the leader that was answered."""

    sent_s: float
    answered_s: float


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
        self._asked_s = float("-inf")
        self._unanswered = False
        self._overdue = False
        self._answered: deque[_Answered] = deque()
        """By this server, oldest first; the leader may not have heard of us since."""

    def hello(self) -> bytes:
        """The request for a session, or to go on with the present one."""
        timeout_ms = round(self._wanted_timeout_s * 1000)
        if self.alive:
            return requests.hello(self.zxid_seen, timeout_ms, self.number, self.password)
        return requests.hello(self.zxid_seen, timeout_ms, NOBODY, b"")

    def welcomed(self, asked_for: int, welcome: Welcome, sent_s: float) -> Begun:
        """The leader has answered a hello, sent at that time in the name of that session."""
        if welcome.session == NOBODY or welcome.timeout_ms <= 0:
            self.alive = False
            return Begun.EXPIRED
        self.number, self.password = welcome.session, welcome.password
        self.timeout_s = welcome.timeout_ms / 1000
        self.alive = True
        self._renewed_s = self._asked_s = sent_s
        self.disconnected()
        return Begun.RESUMED if asked_for == welcome.session else Begun.NEW

    def disconnected(self) -> None:
        """Nobody answers the last question any more, or tells the leader of us."""
        self._unanswered = self._overdue = False
        self._answered.clear()

    def answered(self, now_s: float) -> None:
        """The leader's answer to the last question is here."""
        if not self._unanswered:
            return
        self._unanswered = self._overdue = False
        if self._answered:
            asked_between_s = self._answered[-1].sent_s
            handed_on_s = self.timeout_s * _HANDED_ON_SHARE
            while self._answered and self._answered[0].answered_s + handed_on_s <= asked_between_s:
                self._renewed_s = max(self._renewed_s, self._answered.popleft().sent_s)
        self._answered.append(_Answered(self._asked_s, now_s))

    def given_up(self) -> None:
        """The session counts as lost."""
        self.alive = False
        self.disconnected()

    def duties(self, now_s: float, *, connected: bool) -> list[Duty]:
        """What has to be done at this moment; a question called for here counts as sent."""
        found: list[Duty] = []
        if connected and self._unanswered:
            overdue = now_s - self._asked_s >= self.timeout_s * _ANSWER_SHARE
            # Looked at twice: the answer may be here, behind what has kept this process busy.
            if overdue and self._overdue:
                found.append(Duty.HANG_UP)
            self._overdue = overdue
        elif connected and now_s - self._asked_s >= self.timeout_s * _ASK_SHARE:
            self._asked_s, self._unanswered = now_s, True
            found.append(Duty.ASK)
        if self.alive and now_s >= self._renewed_s + self.timeout_s * _LOST_SHARE:
            found.append(Duty.GIVE_UP)
        return found

    @property
    def valid_until_s(self) -> float:
        """Before this the leader cannot have ended the session."""
        return self._renewed_s + self.timeout_s if self.alive else float("-inf")
