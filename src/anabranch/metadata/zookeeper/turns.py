"""Those who write to one path by its exact version, one after another.

What is compared by reading stays so until the write, as far as this client goes. Of two removals of
one node the first may make room for another node with the same number, which the second would then
remove.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Turn:
    """Whose turn it is, and for how many."""

    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class Turns:
    """By path."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def at(self, path: str) -> AsyncIterator[None]:
        """Be the only one at a path."""
        turn = self._turns.setdefault(path, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[path]
