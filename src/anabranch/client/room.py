"""Room for messages that are not answered yet, in the order in which it was asked for."""

import asyncio
from collections import deque

from anabranch.errors import ConfigError


class Room:
    """Bounds messages and bytes. What is larger than all the room gets it when it is empty."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        if messages_max < 1 or bytes_max < 1:
            raise ConfigError(f"no room for a single message: {messages_max=}, {bytes_max=}")
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        self._resuming = 0
        """Those that have room and have not gone on yet: nobody may overtake them."""

    def _fits(self, size: int, count: int) -> bool:
        return self.messages == 0 or (
            self.messages + count <= self._messages_max and self.bytes + size <= self._bytes_max
        )

    def try_take(self, size: int, count: int = 1) -> bool:
        """Take room for messages of a size together if nobody else waits for it."""
        if self._waiting or self._resuming or not self._fits(size, count):
            return False
        self.messages += count
        self.bytes += size
        return True

    async def take(self, size: int, count: int = 1) -> None:
        """Take room for messages of a size together as soon as those before have theirs."""
        if self.try_take(size, count):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (granted, size, count)
        self._waiting.append(waiting)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                self._wake()
            else:  # both at once: the room was given and is not wanted any more
                self._resuming -= 1
                self.give_back(count, size)
            raise
        self._resuming -= 1
        self._wake()

    def give_back(self, messages: int, size: int) -> None:
        """Messages were answered, one way or another."""
        self.messages -= messages
        self.bytes -= size
        self._wake()

    def open_up(self) -> None:
        """Let everybody in who waits: there is nothing left to wait for."""
        while self._waiting:
            self._grant()

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0][0].done() or self._fits(*self._waiting[0][1:])):
            self._grant()

    def _grant(self) -> None:
        granted, size, count = self._waiting.popleft()
        if granted.done():
            return  # cancelled, and will find itself gone
        self.messages += count
        self.bytes += size
        self._resuming += 1
        granted.set_result(None)
