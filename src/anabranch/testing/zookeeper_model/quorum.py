"""Who decides in the modelled ZooKeeper: one history of entries, and which sessions live.

It is the majority of the servers and their leader in one object, which belongs to no process: what
was decided stays. A server hears of decisions late, in their order, and its own words reach the
leader late, too.
"""

import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anabranch.metadata.zookeeper.replies import Code
from anabranch.testing.model_surroundings import Surroundings
from anabranch.testing.zookeeper_model.operations import (
    CloseSession,
    OpenSession,
    Operation,
    Refuse,
)

if TYPE_CHECKING:
    from anabranch.testing.zookeeper_model.server import ClientConnection, ModelServer, Pending

_FIRST_SESSION: Final = 1 << 56
_TICKS_MIN: Final = 2
_TICKS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Nature:
    """What one ensemble is like."""

    members: int = 1
    tick_s: float = 2.0
    delay_s: float = 0.0
    """One way between the leader and another server."""
    election_s: float = 0.0
    """How long there is no leader when one is lost."""
    patience_s: float = 10.0
    """How long a server serves on without a word of the leader."""
    rate: float = 1.0
    """How fast the leader's clock runs."""
    lost_answers: float = 0.0
    """Share of writes whose connection ends after they were decided, within the answer."""


class Entry(NamedTuple):
    """One point of history."""

    zxid: int
    session: int
    wall_ms: int
    operation: Operation
    asked: "Pending | ClientConnection | None"
    """Who waits for it."""


@dataclass(slots=True)
class _Session:
    password: bytes
    timeout_s: float
    owner: "ModelServer"
    ends_s: float = 0.0


class Pipe:
    """One direction between a server and the leader: late, in order, or held back."""

    def __init__(self, world: Surroundings, context: contextvars.Context, delay_s: float) -> None:
        self._world = world
        self._context = context
        self._delay_s = delay_s
        self._under_way: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._last_s = 0.0
        self.cut = False

    def send(self, then: Callable[..., object], *arguments: Any) -> None:
        """Call a function at the other end."""
        if not self._delay_s and not self.cut and not self._under_way:
            then(*arguments)
            return
        self._under_way.append((then, arguments))
        if not self.cut:
            self._arm()

    def _arm(self) -> None:
        loop, draw = self._world.loop, self._world.rng.random()
        delay_s = self._delay_s * (0.2 + 3.0 * draw**4)
        self._last_s = max(self._last_s, loop.time() + delay_s)
        loop.call_at(self._last_s, self._arrive, context=self._context)

    def _arrive(self) -> None:
        if self._under_way and not self.cut:
            then, arguments = self._under_way.popleft()
            then(*arguments)

    def mend(self) -> None:
        """Let go of what was held back."""
        self.cut = False
        for _ in range(len(self._under_way)):
            self._arm()


class Quorum:
    """See the module."""

    def __init__(self, world: Surroundings, nature: Nature) -> None:
        self.world = world
        self.nature = nature
        self.log: list[Entry] = []
        self.servers: list[ModelServer] = []
        self.leader: ModelServer | None = None
        self._sessions: dict[int, _Session] = {}
        self._next_session = _FIRST_SESSION
        self._term = 0
        self._count = 0

    # --- who leads ----------------------------------------------------------------------------

    def join(self, server: "ModelServer") -> None:
        """A server is up."""
        self.servers.append(server)
        if self.leader is not None:
            server.inbox.send(server.serve_from, len(self.log))
        elif 2 * len(self.servers) > self.nature.members:
            self._elect_soon()

    def left(self, server: "ModelServer") -> None:
        """A server is gone."""
        if server in self.servers:
            self.servers.remove(server)
            if server is self.leader or 2 * len(self.servers) <= self.nature.members:
                self.lose_leader()

    def lose_leader(self) -> None:
        """What was under way to the leader is lost; nobody serves until there is another."""
        if self.leader is None:
            return
        self.leader = None
        self._term += 1
        for server in self.servers:
            server.inbox.send(server.stop)
        if 2 * len(self.servers) > self.nature.members:
            self._elect_soon()

    def _elect_soon(self) -> None:
        self._term += 1
        if self.nature.election_s:
            delay_s = self.nature.election_s * self.world.rng.uniform(0.5, 1.5)
            self.world.later(delay_s, self._elect, self._term)
        else:
            self._elect(self._term)

    def _elect(self, term: int) -> None:
        if term != self._term:
            return
        self.leader = self.world.rng.choice(self.servers)
        self._count = 0
        for session in self._sessions:
            self._touch(session)
        for server in self.servers:
            server.inbox.send(server.serve_from, len(self.log))

    # --- history ------------------------------------------------------------------------------

    def _decide(self, session: int, operation: Operation, asked: Any) -> None:
        self._count += 1
        zxid = (self._term << 32) + self._count
        self.log.append(Entry(zxid, session, self.world.clock.wall_ms(), operation, asked))
        for server in self.servers:
            server.inbox.send(server.advance, len(self.log))

    def write(
        self, server: "ModelServer", session: int, operation: Operation, asked: "Pending"
    ) -> None:
        """A server hands on what a client wants to be decided."""
        server.outbox.send(self._write, self._term, server, session, operation, asked)

    def _write(
        self,
        term: int,
        server: "ModelServer",
        session: int,
        operation: Operation,
        asked: "Pending",
    ) -> None:
        if term != self._term or self.leader is None:
            return
        if isinstance(operation, CloseSession):
            self._sessions.pop(session, None)
        elif (refusal := self._refusal(server, session)) is not None:
            operation = Refuse(refusal)
        self._decide(session, operation, asked)

    def _refusal(self, server: "ModelServer", session: int) -> int | None:
        known = self._sessions.get(session)
        if known is None:
            self.world.reach("zookeeper: write of a session that has ended")
            return Code.SESSION_EXPIRED
        if known.owner is not server:
            self.world.reach("zookeeper: session moved")
            return Code.SESSION_MOVED
        return None

    def sync(self, server: "ModelServer", asked: "Pending") -> None:
        """A server wants to know all that was decided before."""
        server.outbox.send(self._sync, self._term, server, asked)

    def _sync(self, term: int, server: "ModelServer", asked: "Pending") -> None:
        if term == self._term and self.leader is not None:
            server.inbox.send(server.synced, asked)

    # --- sessions -----------------------------------------------------------------------------

    def open_session(
        self, server: "ModelServer", timeout_ms: int, connection: "ClientConnection"
    ) -> None:
        """Begin a session for a client."""
        server.outbox.send(self._open_session, self._term, server, timeout_ms, connection)

    def _open_session(
        self, term: int, server: "ModelServer", timeout_ms: int, connection: "ClientConnection"
    ) -> None:
        if term != self._term or self.leader is None:
            return
        number = self._next_session
        self._next_session += 1
        password = self.world.rng.randbytes(16)
        self._sessions[number] = _Session(password, timeout_ms / 1000, server)
        self._touch(number)
        self.world.later(timeout_ms / 1000, self._look, number)
        connection.offered = timeout_ms, password
        self._decide(number, OpenSession(timeout_ms), connection)

    def resume_session(
        self,
        server: "ModelServer",
        session: int,
        password: bytes,
        timeout_ms: int,
        connection: "ClientConnection",
    ) -> None:
        """A client comes with a session that it has."""
        arguments = (self._term, server, session, password, timeout_ms, connection)
        server.outbox.send(self._resume_session, *arguments)

    def _resume_session(
        self,
        term: int,
        server: "ModelServer",
        session: int,
        password: bytes,
        timeout_ms: int,
        connection: "ClientConnection",
    ) -> None:
        if term != self._term or self.leader is None:
            return
        known = self._sessions.get(session)
        if known is None or known.password != password:
            server.inbox.send(connection.welcomed, 0, 0, bytes(16))
            return
        known.owner, known.timeout_s = server, timeout_ms / 1000
        self._touch(session)
        server.inbox.send(connection.welcomed, timeout_ms, session, password)

    def granted_ms(self, timeout_ms: int) -> int:
        """The timeout of a session whose client asks for this one."""
        tick_ms = self.nature.tick_s * 1000
        return int(min(max(timeout_ms, _TICKS_MIN * tick_ms), _TICKS_MAX * tick_ms))

    def touch(self, server: "ModelServer", sessions: list[int]) -> None:
        """A server tells of which clients it has heard."""
        for session in sessions:
            server.outbox.send(self._touch, session)

    def _touch(self, session: int) -> None:
        known = self._sessions.get(session)
        if known is not None:
            known.ends_s = self.world.loop.time() + known.timeout_s / self.nature.rate

    def _look(self, session: int) -> None:
        known = self._sessions.get(session)
        if known is None:
            return
        left_s = known.ends_s - self.world.loop.time()
        if left_s <= 0 and self.leader is not None:
            self.world.reach("zookeeper: session expired")
            del self._sessions[session]
            self._decide(session, CloseSession(), None)
        else:
            self.world.later(left_s if left_s > 0 else self.nature.tick_s, self._look, session)
