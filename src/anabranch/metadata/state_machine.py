"""The state machine of the memory and the embedded store: a tree, its sessions, their answers.

Pure and deterministic: commands in, in the order of the log; outcomes and events out. That a
session has run out is decided by whoever appends the command that ends it; replaying reads no
clock.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import AnabranchError, OutcomeUnknown, SessionExpired
from anabranch.metadata.commands import Command, EndSessions, OpenSession, Restore, Write
from anabranch.metadata.entries import NOBODY, NOTHING_YET, Counters
from anabranch.metadata.store import Event, Outcome
from anabranch.metadata.tree import Tree


@dataclass(slots=True)
class Session:
    """A client that nodes may belong to."""

    timeout_ms: int
    """0 for one that lives inside the store's own process, and ends with it."""
    secret: bytes = b""
    """Who shows it may go on with the session."""
    answered_below: int = 1
    """Requests with smaller numbers were answered, and the client has read the answers."""
    answers: dict[int, list[Outcome]] = field(default_factory=dict)
    """What the others were answered, for clients that ask again."""

    @property
    def is_local(self) -> bool:
        """Whether it lives inside the store's own process."""
        return self.timeout_ms == 0

    def forget_below(self, request: int) -> None:
        """The client has read the answers to all requests with smaller numbers."""
        if request > self.answered_below:
            self.answered_below = request
            for number in [number for number in self.answers if number < request]:
                del self.answers[number]

    def copy(self) -> "Session":
        """As it is now."""
        return Session(self.timeout_ms, self.secret, self.answered_below, dict(self.answers))


class Effect(NamedTuple):
    """What a command did."""

    outcomes: list[Outcome]
    events: list[Event]
    opened: int = NOBODY
    """The session that began."""
    ended: tuple[int, ...] = ()
    """The sessions that ended."""


class StateMachine:
    """Everything that commands change."""

    def __init__(self, counters: Counters = NOTHING_YET, last_session: int = NOBODY) -> None:
        self.tree = Tree(counters)
        self.sessions: dict[int, Session] = {}
        self.last_session = last_session
        """The newest number a session was given; none is given twice."""

    def apply(self, command: Command, *, epoch: int) -> Effect:
        """Carry out one command."""
        match command:
            case Write():
                return self._write(command, epoch)
            case OpenSession():
                return self._open_session(command, epoch)
            case EndSessions():
                events, ended = self._end_sessions(command.sessions, epoch)
                return Effect([], events, ended=ended)
            case Restore():
                restored = self.tree.restore(command.records, epoch=epoch, wall_ms=command.wall_ms)
                return Effect(restored.outcomes, restored.events)

    def _write(self, command: Write, epoch: int) -> Effect:
        session = self.sessions.get(command.session)
        if session is not None:
            session.forget_below(command.answered_below)
        if command.request:
            if session is None:
                return _refused(command, SessionExpired(f"session {command.session} has ended"))
            if command.request in session.answers:
                return Effect(session.answers[command.request], [])
            if (refusal := _untimely(command.request, session)) is not None:
                return _refused(command, refusal)
        applied = self.tree.apply(
            command.operations,
            epoch=epoch,
            wall_ms=command.wall_ms,
            session=command.session if session is not None else NOBODY,
        )
        if command.request:
            assert session is not None
            session.answers[command.request] = applied.outcomes
        return Effect(applied.outcomes, applied.events)

    def _open_session(self, command: OpenSession, epoch: int) -> Effect:
        events, ended = self._end_sessions(command.ends, epoch)
        self.last_session += 1
        self.sessions[self.last_session] = Session(command.timeout_ms, command.secret)
        return Effect([], events, self.last_session, ended)

    def _end_sessions(
        self, sessions: tuple[int, ...], epoch: int
    ) -> tuple[list[Event], tuple[int, ...]]:
        events: list[Event] = []
        ended = tuple(number for number in sessions if number in self.sessions)
        for number in ended:
            del self.sessions[number]
            events += self.tree.end_session(number, epoch=epoch)
        return events, ended

    def local_sessions(self) -> tuple[int, ...]:
        """The sessions that cannot outlive the store's process."""
        return tuple(number for number, session in self.sessions.items() if session.is_local)

    def validate(self) -> None:
        """Check what must hold between commands."""
        self.tree.validate()
        assert all(NOBODY < number <= self.last_session for number in self.sessions)
        assert self.tree.owners() <= self.sessions.keys(), "a node belongs to a session that ended"
        for session in self.sessions.values():
            assert len(session.answers) <= limits.METADATA_UNREAD_ANSWERS_MAX
            assert all(number >= session.answered_below for number in session.answers)


def _untimely(request: int, session: Session) -> AnabranchError | None:
    if request < session.answered_below:
        return OutcomeUnknown(
            f"request {request} was answered before, and the answer said to have been read"
        )
    if len(session.answers) >= limits.METADATA_UNREAD_ANSWERS_MAX:
        return OutcomeUnknown(
            f"request {request} was not carried out: {len(session.answers)} answers are unread"
        )
    return None


def _refused(command: Write, refusal: AnabranchError) -> Effect:
    return Effect([refusal] * len(command.operations), [])
