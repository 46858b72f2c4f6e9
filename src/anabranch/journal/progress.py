"""Waiting until something has changed."""

import asyncio


class Progress:
    """Wakes everybody who waits; each looks for itself whether that was what it waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return after the next `wake`."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Something has changed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
