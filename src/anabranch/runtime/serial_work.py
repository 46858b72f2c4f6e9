"""Slow operations of one owner, one at a time, without a task that idles between them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anabranch.runtime.tasks import Tasks

T = TypeVar("T")


class SerialWork:
    """Runs operations in the order in which they were asked for."""

    __slots__ = ("_last", "_name", "_tasks")

    def __init__(self, name: str, tasks: Tasks) -> None:
        self._name = name
        self._tasks = tasks
        self._last: asyncio.Task[Any] | None = None

    def submit(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Run an operation once all earlier ones have ended, however they ended."""
        task = self._tasks.spawn(self._name, self._run(self._last, operation))
        self._last = task
        return task

    async def run(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Submit an operation and wait for it; cancelling the wait does not stop it."""
        return await asyncio.shield(self.submit(operation))

    async def _run(
        self, before: asyncio.Task[Any] | None, operation: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        if before is not None and not before.done():
            await asyncio.wait([before])
        try:
            return await operation()
        finally:
            if self._last is asyncio.current_task():
                self._last = None
