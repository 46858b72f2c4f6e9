"""Signs of life of the peer of one connection: bytes from it, and bytes that it takes."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.broker.limits import HANDSHAKE_S_MAX
from anabranch.telemetry import get_logger
from anabranch.wire import replies

if TYPE_CHECKING:
    from anabranch.broker.session import Session

_log = get_logger("session")


class Liveness:
    """Whether the peer was heard of lately."""

    __slots__ = ("_heard", "_unread_bytes", "_waiters")

    def __init__(self) -> None:
        self._heard = True
        self._unread_bytes = 0
        """Sent and not taken by the peer, when this was looked at last."""
        self._waiters: list[asyncio.Future[bool]] = []

    def heard(self) -> None:
        """It is alive."""
        self._heard = True
        if self._waiters:
            self.tell(True)

    def is_silent(self, unread_bytes: int) -> bool:
        """Whether there was no sign of life since this was asked last."""
        takes = unread_bytes < self._unread_bytes
        silent = not (self._heard or takes)
        self._heard, self._unread_bytes = False, unread_bytes
        return silent

    async def sign(self, otherwise: Callable[[], bool]) -> bool:
        """Wait for a sign of life; when none comes in time `otherwise` says what to assume."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters.append(waiter)
        timer = loop.call_later(limits.LIVENESS_CHECK_S, lambda: self.tell(otherwise()))
        try:
            return await waiter
        finally:
            timer.cancel()

    def tell(self, alive: bool) -> None:
        """Answer all who wait for a sign."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(alive)


class KeepAlive(Liveness):
    """Asks the peer of a session for signs of life, and ends the connection if none come."""

    __slots__ = ("_interval_s", "_session", "_timer")

    def __init__(self, session: "Session", interval_s: float) -> None:
        super().__init__()
        self._session = session
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look after the interval, again and again; sooner for a handshake."""
        if self._timer is not None:
            self._timer.cancel()
        session, wait_s = self._session, self._interval_s
        if not session.is_connected:
            wait_s = min(wait_s, HANDSHAKE_S_MAX)
        self._timer = session.loop.call_later(wait_s, self._look)

    def end(self) -> None:
        """Look no more; who waits for a sign waits in vain."""
        if self._timer is not None:
            self._timer.cancel()
        self.tell(False)

    def _look(self) -> None:
        session = self._session
        if session.closed:
            return
        if not session.is_connected:
            session.refuse_connection("no handshake in time")
            return
        if self.is_silent(session.unread_bytes()) and not self._is_unheard_by_choice():
            _log.warning("keep_alive_missed", peer=session.peer, client=session.client_version)
            session.cut()
            return
        session.reply(replies.ping())
        self.begin()

    def _is_unheard_by_choice(self) -> bool:
        # A peer whose socket we do not read is not dead for that, unless it does not read either.
        return self._session.reading_paused and self._session.writable

    async def is_alive(self) -> bool:
        """Ask the peer for a sign of life; without one in time the connection is cut."""
        session = self._session
        if session.closed:
            return False
        before = session.unread_bytes()

        def is_slow() -> bool:
            # It takes what is sent, and cannot be heard for that: not read from until it has.
            takes = not session.writable and session.unread_bytes() < before
            return takes or self._is_unheard_by_choice()

        session.reply(replies.ping())
        alive = await self.sign(otherwise=is_slow)
        if not alive and not session.closed:
            session.cut()
            session.connection_lost(None)
        return alive
