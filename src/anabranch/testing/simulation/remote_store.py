"""The client's side of the simulated metadata service: connections that break, and one handle.

It offers the part of the store contract that locks, elections, caches and counters use.
"""

import asyncio
import contextvars
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from anabranch.errors import AlreadyClosed, AnabranchError, OutcomeUnknown, Unreachable
from anabranch.metadata.paths import is_within
from anabranch.metadata.session_news import SessionNews
from anabranch.metadata.store import (
    ANY,
    Delete,
    Event,
    EventKind,
    Expected,
    Fencing,
    Guard,
    Node,
    Put,
    Revision,
    SessionEvent,
    Stat,
)
from anabranch.runtime import Clock
from anabranch.testing.simulation.metadata_service import MetadataService

T = TypeVar("T")
_STRAY_SHARE: Final = 0.5
"""Requests of a broken connection that arrive all the same."""


class Link:
    """One connection of one client."""

    def __init__(self, store: "RemoteStore", service: MetadataService) -> None:
        self.store = store
        self.service = service
        self.broken = False
        self.unanswered: dict[asyncio.Future[Any], bool] = {}
        """Whether each is of a write."""
        self.ping_sent_s: float | None = None
        self._arrives_s = 0.0
        self._events: list[Event] = []

    @property
    def passable(self) -> bool:
        """Whether bytes get through now."""
        return self.service.up and not self.store.cut

    def request(self, work: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        """Send a request; the answer may never come."""
        service = self.service
        if service.rng.random() < service.flaky:
            self.break_off()
        loop = service.world.loop
        self._arrives_s = max(self._arrives_s, loop.time() + service.delay())
        loop.call_at(self._arrives_s, self._arrive, work, answer, context=service.world.context)

    def _arrive(self, work: Callable[[], T], answer: "asyncio.Future[T]") -> None:
        service = self.service
        if self.broken:
            if service.rng.random() < _STRAY_SHARE:
                delay_s = service.timeout_s * service.rng.random() ** 3
                service.world.loop.call_later(
                    delay_s, self._arrive_astray, work, context=service.world.context
                )
        elif self.passable:
            self.tell(self._answered, answer, work())
        else:
            self._stall()

    def _stall(self) -> None:
        """Something was lost: after a while of retransmissions the connection is given up."""
        service = self.service
        service.world.loop.call_later(
            service.timeout_s / 3, self.break_off, context=service.world.context
        )

    def _arrive_astray(self, work: Callable[[], object]) -> None:
        if self.service.up:
            self.service.world.reach("stray request")
            work()

    def _answered(self, answer: "asyncio.Future[Any]", result: object) -> None:
        if self.broken or answer.done():
            return
        if not self.passable:
            self._stall()
        elif isinstance(result, AnabranchError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def tell(self, then: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the client's side after the way there."""
        delay_s = self.service.delay()
        self.service.world.loop.call_later(delay_s, then, *arguments, context=self.store.context)

    def push(self, events: list[Event]) -> None:
        """Tell the client of changes, in order; what gathers under way comes together."""
        if events:
            if not self._events:
                self.tell(self._deliver)
            self._events += events

    def _deliver(self) -> None:
        events, self._events = self._events, []
        if not self.broken:
            if self.passable:
                self.store.hear(events)
            else:
                self.break_off()

    def break_off(self) -> None:
        """Reset the connection; the client learns of it at once."""
        if not self.broken:
            self.broken = True
            self.service.detach(self)
            self.service.world.loop.call_soon(
                self.store.disconnected, self, context=self.store.context
            )


class _Watch:
    """The changes below one path, as told to one client."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._events: deque[Event] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._ended = False

    def __aiter__(self) -> "_Watch":
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        return self._events.popleft()

    def wants(self, event: Event) -> bool:
        return event.kind is EventKind.GAP or is_within(self.prefix, event.path)

    def tell(self, event: Event) -> None:
        self._events.append(event)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class RemoteStore:
    """The client's side: one handle of one process. See `MetadataStore`."""

    fencing = Fencing.SERVER
    failure: AnabranchError | None = None

    def __init__(self, service: MetadataService, clock: Clock) -> None:
        self.context = contextvars.copy_context()
        """Of the process that opened it: what it hears waits while that is paused."""
        self.cut = False
        """Whether everything that is sent vanishes."""
        self.session = 0
        self.session_timeout_s = service.timeout_s
        self.session_valid_until = -math.inf
        self._service = service
        self._clock = clock
        self._link: Link | None = None
        self._news = SessionNews()
        self._watches: list[_Watch] = []
        self._told_to: Revision | None = None
        self._session_over = True
        self._closed = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Connect for the first time."""
        self._connect()
        await self._opened

    # --- connection and session ---------------------------------------------------------------

    def _timer(self, delay_s: float, then: Callable[..., object], *arguments: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, then, *arguments, context=self.context)

    def _connect(self) -> None:
        if self._link is not None or self._closed:
            return
        self._notice_the_end()
        link = Link(self, self._service)
        keep = 0 if self._session_over else self.session
        self._service.later(self._attach, link, keep, self.session, self._clock.monotonic_s())
        self._timer(self._service.timeout_s * self._service.rng.uniform(0.05, 0.2), self._connect)

    def _attach(self, link: Link, keep: int, before: int, sent_s: float) -> None:
        """On the store's side: go on with a session, or begin another one."""
        service = self._service
        if not link.passable:
            return
        session = keep if service.renew(keep) else service.open_session(before)
        link.tell(self._attached, link, session, sent_s)

    def _attached(self, link: Link, session: int, sent_s: float) -> None:
        if self._link is not None or self._closed or not link.passable:
            return
        if session == self.session and self._session_over:
            return  # given up meanwhile: the next attempt asks for another one
        news = [SessionEvent.RECONNECTED]
        if session != self.session:
            news = [SessionEvent.SESSION_REESTABLISHED]
            if not self._session_over:
                news.insert(0, SessionEvent.SESSION_LOST)
        self._link, self.session, self._session_over = link, session, False
        self.session_valid_until = sent_s + self.session_timeout_s
        self._service.attach(link, self._told_to)
        self._told_to = self._told_to or self._service.machine.tree.revision
        for event in news if self._opened.done() else ():
            self._service.world.reach(event.value)
            self._news.publish(event)
        if not self._opened.done():
            self._opened.set_result(None)
        self._timer(self.session_timeout_s / 3, self._ping, link)

    def _notice_the_end(self) -> None:
        """Announce the loss of the session before the store itself ends it."""
        lost_s = self.session_valid_until - self.session_timeout_s / 6
        if not self._session_over and self._clock.monotonic_s() > lost_s:
            self._session_over = True
            self.session_valid_until = -math.inf
            self._service.world.reach(SessionEvent.SESSION_LOST.value)
            self._news.publish(SessionEvent.SESSION_LOST)

    def _ping(self, link: Link) -> None:
        if link is not self._link:
            return
        if link.ping_sent_s is not None:
            link.break_off()
            return
        link.ping_sent_s = self._clock.monotonic_s()
        self._service.later(self._renew, link, self.session)
        self._timer(self.session_timeout_s / 3, self._ping, link)

    def _renew(self, link: Link, session: int) -> None:
        if link.passable and not link.broken:
            link.tell(self._renewed, link, self._service.renew(session))

    def _renewed(self, link: Link, alive: bool) -> None:
        if link is not self._link or link.broken:
            return
        if not alive:
            self._session_over = True
            self.session_valid_until = -math.inf
            self._service.world.reach(SessionEvent.SESSION_LOST.value)
            self._news.publish(SessionEvent.SESSION_LOST)
            link.break_off()
            return
        sent_s, link.ping_sent_s = link.ping_sent_s, None
        assert sent_s is not None
        self.session_valid_until = sent_s + self.session_timeout_s

    def disconnected(self, link: Link) -> None:
        """The connection is gone."""
        for answer, is_write in link.unanswered.items():
            if not answer.done():
                lost = "the connection broke before the answer"
                answer.set_exception(OutcomeUnknown(lost) if is_write else Unreachable(lost))
        if self._link is link:
            self._link = None
            self._service.world.reach(SessionEvent.CONNECTION_LOST.value)
            self._news.publish(SessionEvent.CONNECTION_LOST)
            self._timer(0.001, self._connect)

    def reset(self) -> None:
        """A fault: the connection breaks."""
        if self._link is not None:
            self._link.break_off()

    def hear(self, events: list[Event]) -> None:
        """Changes were told of."""
        for event in events:
            self._told_to = event.revision
            for watch in self._watches:
                if watch.wants(event):
                    watch.tell(event)

    # --- the contract ---------------------------------------------------------------------------

    async def _call(self, work: Callable[[], T], *, is_write: bool) -> T:
        if self._closed:
            raise AlreadyClosed("the metadata store was closed")
        link = self._link
        if link is None:
            raise Unreachable("there is no connection to the metadata service")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        link.unanswered[answer] = is_write
        link.request(work, answer)
        try:
            return await answer
        finally:
            del link.unanswered[answer]

    async def get(self, path: str) -> Node | None:
        """See `MetadataStore.get`."""
        session = self.session
        return await self._call(lambda: self._service.read(session, path), is_write=False)

    async def children(self, path: str) -> list[str]:
        """See `MetadataStore.children`."""
        return await self._call(lambda: self._service.machine.tree.children(path), is_write=False)

    async def sync(self) -> None:
        """See `MetadataStore.sync`; every read is answered by the one server there is."""

    async def put(
        self,
        path: str,
        value: bytes,
        expected: Expected = ANY,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        guard: Guard | None = None,
    ) -> Stat:
        """See `MetadataStore.put`."""
        put = Put(path, value, expected, ephemeral, sequential, (), guard)
        session = self.session
        stat = await self._call(lambda: self._service.write(session, put), is_write=True)
        assert isinstance(stat, Stat)
        return stat

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """See `MetadataStore.delete`."""
        delete, session = Delete(path, expected, guard), self.session
        await self._call(lambda: self._service.write(session, delete), is_write=True)

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """See `MetadataStore.watch`; from now on only."""
        assert since is None
        watch = _Watch(prefix)
        self._watches.append(watch)
        self._service.watch(prefix)
        return watch

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """See `MetadataStore.session_events`."""
        return self._news.listen()

    async def close(self) -> None:
        """See `MetadataStore.close`; without a connection the session ends by itself."""
        if self._closed:
            return
        session = self.session
        try:
            async with asyncio.timeout(self.session_timeout_s):
                await self._call(lambda: self._service.end_session(session), is_write=True)
        except (AnabranchError, TimeoutError):
            self._service.world.reach("session left to itself")
        finally:
            self._closed = True
            if self._link is not None:
                self._link.break_off()
            for watch in self._watches:
                watch.end()
            self._news.close()
