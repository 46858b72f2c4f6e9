"""A bound on bytes in flight: who finds no room waits, in order of arrival."""

import asyncio
from collections import deque


class ByteBudget:
    """Bytes that may be taken and must be given back."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken_bytes(self) -> int:
        """How much is in flight."""
        return self._taken_bytes

    async def take(self, byte_count: int) -> None:
        """Wait until there is room and take it."""
        assert byte_count <= self._limit_bytes, "nobody could ever make room for this"
        if not self._waiting and self._taken_bytes + byte_count <= self._limit_bytes:
            self._taken_bytes += byte_count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((byte_count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove((byte_count, turn))
                self._let_in()
            else:
                self.give_back(byte_count)
            raise

    def give_back(self, byte_count: int) -> None:
        """Make room for others."""
        self._taken_bytes -= byte_count
        assert self._taken_bytes >= 0
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            byte_count, turn = self._waiting[0]
            if turn.cancelled():
                return  # its waiter is about to take itself out and let the next one in
            if self._taken_bytes + byte_count > self._limit_bytes:
                return
            self._waiting.popleft()
            self._taken_bytes += byte_count
            turn.set_result(None)
