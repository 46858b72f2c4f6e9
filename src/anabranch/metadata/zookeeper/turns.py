"""Those who write to one path by its exact version, one after another.

What is compared by reading stays so until the write, as far as this client goes. Of two removals of
one node the first may make room for another node with the same number, which the second would then
remove. The same holds if the outcome of the first is unknown: the leader may be about to carry it
out, and another server shows the node until then. So after such a write the leader is asked first.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from anabranch.errors import OutcomeUnknown


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
        self._doubts = 0
        """Writes that ended without an answer."""
        self._settled = 0
        """So many of them are carried out by now, or never will be."""

    @asynccontextmanager
    async def at(self, path: str) -> AsyncIterator[None]:
        """Be the only one at a path."""
        turn = self._turns.setdefault(path, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        except (OutcomeUnknown, asyncio.CancelledError):
            self._doubts += 1
            raise
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[path]

    def in_doubt(self) -> bool:
        """Whether what is read may change by a write that nobody waits for any more."""
        return self._doubts > self._settled

    async def settle(self, sync: Callable[[], Awaitable[object]]) -> None:
        """Catch up with the leader: what was sent before has been carried out then, or is void."""
        doubts = self._doubts
        await sync()
        self._settled = max(self._settled, doubts)
