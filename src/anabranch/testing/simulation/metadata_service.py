"""A metadata store for simulated processes: late answers, lost ones, sessions that run out.

Quicker than a served store on the simulated network, since nothing is turned into bytes, and ruder:
a request of a broken connection may arrive long after its client gave up, whatever a session has
become. The client's side is `remote_store`.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import AnabranchError
from anabranch.metadata.commands import EndSessions, OpenSession, Write
from anabranch.metadata.entries import node_of
from anabranch.metadata.state_machine import StateMachine
from anabranch.metadata.store import Event, EventKind, Node, Operation, Revision, Stat
from anabranch.runtime import Clock
from anabranch.testing.simulation.world import World

if TYPE_CHECKING:
    from anabranch.testing.simulation.remote_store import Link

_EPOCH: Final = 1
_GAP_SHARE: Final = 0.2
"""Reconnects after which the store does not remember what its client has missed."""
_SUCCESSION_SHARE: Final = 0.5
"""New sessions that end the old one of the same client at once."""


class DriftingClock:
    """A clock that runs faster or slower than the world's."""

    def __init__(self, clock: Clock, rate: float) -> None:
        self._clock = clock
        self._rate = rate
        self._start_s = clock.monotonic_s()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return self._clock.wall_ms()

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._start_s + (self._clock.monotonic_s() - self._start_s) * self._rate


class MetadataService:
    """The store's side. It belongs to no process: what crashes is the connection to it."""

    def __init__(self, world: World, *, timeout_s: float, delay_s: float, flaky: float) -> None:
        self.world = world
        self.timeout_s = timeout_s
        self.flaky = flaky
        """Share of requests whose connection breaks while they are under way."""
        self.up = True
        self.machine = StateMachine()
        self.rng = world.rng("metadata service")
        self._delay_s = delay_s
        self._rate = self.rng.uniform(0.99, 1.01)
        self._prefixes: tuple[str, ...] = ()
        self._events: list[Event] = []
        self._expiry: dict[int, asyncio.TimerHandle] = {}
        self._links: dict[Link, None] = {}

    def later(self, then: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the store's side after the way there."""
        self.world.loop.call_later(self.delay(), then, *arguments, context=self.world.context)

    def delay(self) -> float:
        """How long one way takes this time."""
        return self._delay_s * (0.2 + 2.0 * self.rng.random() ** 4)

    # --- sessions -----------------------------------------------------------------------------

    def open_session(self, instead_of: int) -> int:
        """Begin a session."""
        ends = (instead_of,) if self.rng.random() < _SUCCESSION_SHARE else ()
        opened = self._apply(OpenSession(0, int(self.timeout_s * 1000), ends=ends))
        for session in ends:
            self._forget(session)
        self.renew(opened)
        return opened

    def end_session(self, session: int) -> None:
        """End a session as its client wishes."""
        self._forget(session)
        if session in self.machine.sessions:
            self._apply(EndSessions(0, (session,)))

    def renew(self, session: int) -> bool:
        """Hear of a session's client; False if the session has ended."""
        if session not in self.machine.sessions:
            return False
        self._forget(session)
        self._expiry[session] = self.world.loop.call_later(
            self.timeout_s / self._rate, self._expire, session, context=self.world.context
        )
        return True

    def _expire(self, session: int) -> None:
        del self._expiry[session]
        if self.up:
            self.world.reach("session expired")
            self._apply(EndSessions(0, (session,)))

    def _forget(self, session: int) -> None:
        timer = self._expiry.pop(session, None)
        if timer is not None:
            timer.cancel()

    # --- requests -----------------------------------------------------------------------------

    def _apply(self, command: OpenSession | EndSessions) -> int:
        effect = self.machine.apply(command, epoch=_EPOCH)
        self._publish(effect.events)
        return effect.opened

    def write(self, session: int, operation: Operation) -> Stat | AnabranchError | None:
        """Carry out one write."""
        effect = self.machine.apply(Write(0, [operation], session), epoch=_EPOCH)
        self._publish(effect.events)
        return effect.outcomes[0]

    def read(self, session: int, path: str) -> Node | None:
        """The node at a path."""
        entry = self.machine.tree.entry(path)
        return None if entry is None else node_of(path, entry, session)

    def _publish(self, events: list[Event]) -> None:
        watched = [event for event in events if event.path.startswith(self._prefixes)]
        if watched:
            self._events += watched
            for link in self._links:
                link.push(watched)

    def watch(self, prefix: str) -> None:
        """Tell of changes below a path from now on; of others, nobody is told."""
        if prefix not in self._prefixes:
            self._prefixes = (*self._prefixes, prefix)

    def attach(self, link: "Link", since: Revision | None) -> None:
        """Begin to tell a client of changes, from where it was before."""
        self._links[link] = None
        if since is None:
            return
        if self.rng.random() < _GAP_SHARE:
            link.push([Event(EventKind.GAP, "/", self.machine.tree.revision)])
        else:
            after = bisect_right(self._events, since, key=lambda event: event.revision)
            link.push(self._events[after:])

    def detach(self, link: "Link") -> None:
        """Forget a connection."""
        self._links.pop(link, None)

    # --- faults -------------------------------------------------------------------------------

    def crash(self, duration_s: float) -> None:
        """Be away for a time. Sessions get a full timeout afterwards."""
        if not self.up:
            return
        self.world.trace.record(f"metadata service down {duration_s:.6f}")
        self.up = False
        for link in list(self._links):
            link.break_off()
        self.world.loop.call_later(duration_s, self._come_back, context=self.world.context)

    def _come_back(self) -> None:
        self.up = True
        for session in list(self.machine.sessions):
            self.renew(session)
