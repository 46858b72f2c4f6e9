"""A metadata store handle that loses requests or answers when told to, for tests of its users."""

import asyncio
from collections.abc import AsyncIterator
from enum import Enum
from typing import Any

from anabranch.errors import OutcomeUnknown, SessionExpired, Unreachable
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import Event, MetadataStore, Revision, SessionEvent


class Lose(Enum):
    """What becomes of the next request of a kind."""

    REQUEST = "request"
    """It is never carried out; the caller does not know that."""
    ANSWER = "answer"
    """It is carried out; the caller does not know that."""
    EVERYTHING = "everything"
    """There is no connection: nothing was asked, and the caller knows."""
    SESSION = "session"
    """There is no session: nothing was asked, and the caller knows."""


class UnansweredStore:
    """Passes everything on to a real handle, except what is to be lost or held back.

    The lease and the session's news are what the test says.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._losses: dict[str, list[Lose]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._request_gates: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []
        self.news = SessionNews()
        self.session_timeout_s = 10.0
        self.session_valid_until = float("inf")
        self.deaf = False
        """Whether watches hear nothing but what the test tells."""
        self._queues: list[asyncio.Queue[Event]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lose(self, call: str, *losses: Lose) -> None:
        """Lose the next calls of a method."""
        self._losses.setdefault(call, []).extend(losses)

    def hold(self, call: str, *, requests: bool = False) -> asyncio.Event:
        """Keep back the answers of a method, or its requests, until the event is set."""
        gate = asyncio.Event()
        (self._request_gates if requests else self._gates)[call] = gate
        return gate

    async def _pass(self, call: str, *arguments: Any, **options: Any) -> Any:
        self.calls.append(call)
        losses = self._losses.get(call)
        loss = losses.pop(0) if losses else None
        if loss is Lose.EVERYTHING:
            raise Unreachable("no connection")
        if loss is Lose.SESSION:
            raise SessionExpired("the session is over and the next has not begun")
        if gate := self._request_gates.get(call):
            await gate.wait()
        result = None
        if loss is not Lose.REQUEST:
            result = await getattr(self._store, call)(*arguments, **options)
        if gate := self._gates.get(call):
            await gate.wait()
        if loss is not None:
            raise OutcomeUnknown(f"the answer to {call} was lost")
        return result

    async def get(self, *arguments: Any) -> Any:
        """See `MetadataStore.get`."""
        return await self._pass("get", *arguments)

    async def put(self, *arguments: Any, **options: Any) -> Any:
        """See `MetadataStore.put`."""
        return await self._pass("put", *arguments, **options)

    async def delete(self, *arguments: Any, **options: Any) -> Any:
        """See `MetadataStore.delete`."""
        return await self._pass("delete", *arguments, **options)

    async def children(self, *arguments: Any) -> Any:
        """See `MetadataStore.children`."""
        return await self._pass("children", *arguments)

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        return self.news.listen()

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`; of a deaf handle, what `tell` says and nothing else."""
        return self._told() if self.deaf else self._store.watch(prefix, since)

    async def _told(self) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._queues.append(queue)
        while True:
            yield await queue.get()

    def tell(self, event: Event) -> None:
        """Tell the watches of a deaf handle of a change."""
        for queue in self._queues:
            queue.put_nowait(event)
