"""When a server may end the sessions of clients it does not hear of. Pure: time is handed in.

A session runs out when its timeout has passed since its client was last heard of, by the clock of
a server that was there to hear. A server that just started was not: it gives every session its full
timeout. Nor was one that stood still: what it missed, and no more, is added to every deadline, so
that a machine that stutters ends sessions later, but ends them.
"""

from typing import Final

_TICKS_MISSED: Final = 2.0
"""A tick that comes later than this many intervals after the one before means a pause."""


class SessionClock:
    """The deadlines of all sessions."""

    def __init__(self, now_s: float, tick_s: float) -> None:
        self._tick_s = tick_s
        self._last_tick_s = now_s
        self._timeouts_s: dict[int, float] = {}
        self._deadlines_s: dict[int, float] = {}

    def __contains__(self, session: int) -> bool:
        return session in self._timeouts_s

    def begin(self, session: int, timeout_s: float, now_s: float) -> None:
        """Watch over a session, which has its full timeout from now on."""
        self._timeouts_s[session] = timeout_s
        self._deadlines_s[session] = now_s + timeout_s

    def heard(self, session: int, now_s: float) -> None:
        """Its client has said something."""
        timeout_s = self._timeouts_s.get(session)
        if timeout_s is not None:
            self._deadlines_s[session] = now_s + timeout_s

    def forget(self, session: int) -> None:
        """It has ended."""
        self._timeouts_s.pop(session, None)
        self._deadlines_s.pop(session, None)

    def tick(self, now_s: float) -> list[int]:
        """The sessions that have run out; to be called once per interval."""
        passed_s = now_s - self._last_tick_s
        self._last_tick_s = now_s
        if passed_s > _TICKS_MISSED * self._tick_s:
            missed_s = passed_s - self._tick_s
            for session, timeout_s in self._timeouts_s.items():
                later_s = self._deadlines_s[session] + missed_s
                self._deadlines_s[session] = min(later_s, now_s + timeout_s)
        return [session for session, at_s in self._deadlines_s.items() if at_s <= now_s]
