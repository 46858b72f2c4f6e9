"""Where writes wait while a store is replaced, and those under way are counted.

A write is counted before it looks whether the gate is open, and until its outcome is known. So once
the gate is closed and nobody is counted, no write of this process is on its way to the store.
"""

import asyncio

from anabranch.errors import Unreachable
from anabranch.metadata.switchable.limits import GATE_WAIT_S_MAX


class Gate:
    """One process's gate."""

    def __init__(self) -> None:
        self.under_way = 0
        """Writes that have passed and whose outcome is not known."""
        self._opened: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether writes wait."""
        return self._opened is not None

    def close(self) -> None:
        """Let no more writes pass."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Let all pass that wait."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.set_result(None)

    def enter(self) -> bool:
        """Be counted if the gate is open; whoever is counted calls `leave`."""
        self.under_way += 1
        if self._opened is None:
            return True
        self.leave()
        return False

    async def pass_in(self) -> None:
        """Be counted once the gate is open.

        Raises:
            Unreachable: if it stays closed for too long.
        """
        if self.enter():
            return
        try:
            async with asyncio.timeout(GATE_WAIT_S_MAX):
                while not self.enter():
                    assert self._opened is not None
                    await asyncio.shield(self._opened)
        except TimeoutError:
            raise Unreachable(
                "the metadata store is being replaced and takes no writes for now: nothing was "
                "changed; try again"
            ) from None

    def leave(self) -> None:
        """The outcome of a write is known, or never will be."""
        self.under_way -= 1
        if self.under_way == 0 and self._idle is not None:
            idle, self._idle = self._idle, None
            idle.set_result(None)

    async def drained(self) -> None:
        """Wait until no write is under way. The gate must be closed."""
        assert self.closed, "new writes would come for ever"
        while self.under_way:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
