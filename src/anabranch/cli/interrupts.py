"""Ctrl-C in a command with an event loop: the first asks it to end, the second cuts it short."""

import asyncio
import signal
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupts:
    """Notes Ctrl-C instead of raising, within a `with` block."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> "Interrupts":
        self._loop.add_signal_handler(signal.SIGINT, self.ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)

    def ask(self) -> None:
        """What a first Ctrl-C does; after it the next one raises as usual."""
        self._asked.set()
        self._loop.remove_signal_handler(signal.SIGINT)

    @property
    def asked(self) -> bool:
        """Whether somebody wants an end."""
        return self._asked.is_set()

    async def or_else(
        self, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None
    ) -> T | None:
        """What comes of something that may be cancelled; None if Ctrl-C or the time comes first."""
        working = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait(
                {working, asked}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if working.done():
                return working.result()
            return None
        finally:
            asked.cancel()
            working.cancel()
            await asyncio.wait({working})

    async def rest(self, seconds: float) -> None:
        """Do nothing for a while, or until Ctrl-C."""
        await self.or_else(asyncio.sleep(seconds))
