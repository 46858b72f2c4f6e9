"""Supervised tasks: every background coroutine has a name, an owner and somewhere to fail to.

`Tasks` is ordinary asyncio and is the same in both worlds.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

FailureSink = Callable[[str, BaseException], None]


class Tasks:
    """A group of background tasks that live and end together."""

    def __init__(self, on_failure: FailureSink) -> None:
        self._on_failure = on_failure
        # A dict keeps spawn order; a set's order would differ between two runs of one seed.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be spawned any more."""
        return self._closed

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background; if it raises, the group's owner is told."""
        assert not self._closed, f"task {name} spawned after its group was closed"
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failure(task.get_name(), failure)

    def report(self, name: str, error: BaseException) -> None:
        """Tell the group's owner of a failure, as if a task of that name had raised it."""
        self._on_failure(name, error)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        self._closed = True
        doomed = list(self._running)
        for task in doomed:
            task.cancel()
        for task in doomed:
            await asyncio.wait([task])
