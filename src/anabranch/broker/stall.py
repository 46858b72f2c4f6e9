"""Waiting before an entry that cannot be read: what a subscription does instead of ending a topic.

One damaged entry concerns those who need it and nobody else. It is tried again after a while, for
a disk may recover and a file may be put back; a seek, an acknowledgement or a new consumer is
quicker.
"""

import asyncio
from collections.abc import Callable

from anabranch import limits
from anabranch.errors import Corruption, StorageError, StoreFailed
from anabranch.ids import Position
from anabranch.telemetry import get_logger

_log = get_logger("broker")


def concerns_one_entry(error: Exception) -> bool:
    """Whether an error of a read says nothing about other entries, or about the whole store."""
    return isinstance(error, Corruption | StorageError) and not isinstance(error, StoreFailed)


class Stall:
    """Where one subscription waits, if it does."""

    __slots__ = ("_retry", "_said", "_subscription", "_timer", "_wait_s", "position")

    def __init__(self, subscription: str, retry: Callable[[], None]) -> None:
        self.position: Position | None = None
        self._subscription = subscription
        self._retry = retry
        self._said: Position | None = None
        self._wait_s = limits.UNREADABLE_ENTRY_RETRY_S_MIN
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, position: Position, error: Exception) -> None:
        """Wait at a position until `end`, and ask for another try after a while."""
        self.end()
        self.position = position
        self._wait_s = min(2 * self._wait_s, limits.UNREADABLE_ENTRY_RETRY_S_MAX)
        if self._said != position:
            self._said = position
            self._wait_s = limits.UNREADABLE_ENTRY_RETRY_S_MIN
            _log.error(
                "entry_unreadable",
                subscription=self._subscription,
                position=str(position),
                error=str(error),
            )
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wait_s, self._try_again)

    def end(self) -> None:
        """Go on; whoever comes to the place again finds out whether it can be read."""
        self.position = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_again(self) -> None:
        self.end()
        self._retry()
