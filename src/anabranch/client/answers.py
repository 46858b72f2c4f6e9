"""What callers of a producer wait for: one future per message."""

import asyncio
from collections.abc import Sequence

from anabranch.client.message import MessageId

Answer = asyncio.Future[MessageId]


def fail_all(waiters: Sequence[Answer], error: Exception) -> None:
    """Tell everybody who still waits."""
    for answer in waiters:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # a caller who does not look is not an error of the loop
