"""Planted bugs of `anabranch.runtime`."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from anabranch.runtime.channels import Headers, Security
from anabranch.runtime.tasks import Tasks
from anabranch.testing.planted import planted


@planted("tasks_swallow_failures", target="anabranch.runtime.tasks:Tasks._finished")
def tasks_swallow_failures(self: Tasks, task: asyncio.Task[Any]) -> None:
    """A background task fails and its owner is not told."""
    self._running.pop(task, None)
    if not task.cancelled():
        task.exception()


@planted("token_is_not_sent", target="anabranch.runtime.real_channels:headers_of")
def token_is_not_sent(security: Security) -> Headers:
    """A client that has a token keeps it to itself."""
    del security
    return ()


@planted("nobody_else_has_a_turn", target="anabranch.runtime.slices:in_slices")
async def nobody_else_has_a_turn(items: Iterable[Any], size: int) -> AsyncIterator[Any]:
    """Many things are gone through at once, however long that takes."""
    del size
    for item in items:
        yield item
