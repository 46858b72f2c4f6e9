"""Signs of life of the peer of one connection: bytes from it, and bytes that it takes."""

import asyncio
from collections.abc import Callable

from anabranch import limits


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
