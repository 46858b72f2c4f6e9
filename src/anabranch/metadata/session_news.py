"""Tells whoever listens what happens to a handle's session."""

import asyncio
from typing import Final

from anabranch.metadata.store import SessionEvent

_UNREAD_MAX: Final = 16


class SessionNews:
    """Where a handle announces what happens to its session."""

    def __init__(self) -> None:
        self.closed = False
        self._listeners: list[SessionListener] = []

    def listen(self) -> "SessionListener":
        """Read along from the next event on."""
        listener = SessionListener(self)
        self._listeners.append(listener)
        return listener

    def publish(self, event: SessionEvent) -> None:
        """Tell everybody."""
        for listener in self._listeners:
            listener.tell(event)

    def close(self) -> None:
        """End every iterator once it has been read to its end."""
        self.closed = True
        for listener in self._listeners:
            listener.wake()


class SessionListener:
    """An iterator over events; one reader at a time."""

    def __init__(self, news: SessionNews) -> None:
        self._news = news
        self._unread: list[SessionEvent] = []
        self._woken: asyncio.Future[None] | None = None

    def __aiter__(self) -> "SessionListener":
        return self

    async def __anext__(self) -> SessionEvent:
        assert self._woken is None, "an iterator has one reader"
        while not self._unread:
            if self._news.closed:
                raise StopAsyncIteration
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None
        return self._unread.pop(0)

    def tell(self, event: SessionEvent) -> None:
        """Add an event to be read."""
        self._unread.append(event)
        if len(self._unread) > _UNREAD_MAX:
            # For a reader that never comes: that the session was lost, and how it stands now.
            lost = SessionEvent.SESSION_LOST in self._unread
            self._unread = [SessionEvent.SESSION_LOST] * lost + [event]
        self.wake()

    def wake(self) -> None:
        """Let the reader look again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
