"""What one lock does next: the table of its states, and the rules that read a lock's node.

Pure: events in, steps out. `locks.py` carries the steps out and brings back what came of them. A
machine is good for one life of one node: what was lost or released never comes back.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from anabranch.metadata.store import (
    Event,
    EventKind,
    Guard,
    Node,
    Revision,
    SessionEvent,
    Stat,
    Version,
)


class LockState(Enum):
    """Where a lock stands."""

    CREATING = "creating"
    LOOKING = "looking"
    REMOVING = "removing"
    """An old node of ours is in the way."""
    HELD = "held"
    RELEASING = "releasing"
    BUSY = "busy"
    RELEASED = "released"
    LOST = "lost"


NEXT: Final[Mapping[LockState, frozenset[LockState]]] = {
    LockState.CREATING: frozenset({LockState.HELD, LockState.LOOKING}),
    LockState.LOOKING: frozenset({LockState.CREATING, LockState.REMOVING, LockState.BUSY}),
    LockState.REMOVING: frozenset({LockState.CREATING, LockState.LOOKING}),
    LockState.HELD: frozenset({LockState.RELEASING, LockState.LOST}),
    LockState.RELEASING: frozenset({LockState.RELEASED}),
    LockState.BUSY: frozenset(),
    LockState.RELEASED: frozenset(),
    LockState.LOST: frozenset(),
}


class Do(Enum):
    """What the shell is to do."""

    CREATE = "create"
    LOOK = "look"
    REMOVE = "remove"


class Step(NamedTuple):
    """One thing to do; `version` is what a removal requires of the node."""

    do: Do
    version: Version | None = None


class Finding(Enum):
    """What a lock's node means to somebody who wants the lock."""

    FREE = "free"
    LEFT_OVER = "left over"
    """Ours, but of an earlier attempt or session: nobody else is hurt if it goes."""
    TAKEN = "taken"


def judge(node: Node | None, value: bytes) -> Finding:
    """Say whether a node stands in the way of the holder that `value` names.

    A node of this very session is never adopted: a removal of it that was given up may still be
    on its way, and would then take away the lock from under its holder.
    """
    if node is None:
        return Finding.FREE
    if node.stat.ephemeral and (node.stat.created_by_self or node.value == value):
        return Finding.LEFT_OVER
    return Finding.TAKEN


class LockMachine:
    """The state of one lock."""

    def __init__(self, path: str, value: bytes) -> None:
        self.path = path
        self.value = value
        self.state = LockState.CREATING
        self.holder = b""
        """Who was found to hold it, when busy."""
        self.lost_because = ""
        self._stat: Stat | None = None
        self._token: Revision | None = None
        self._update: bytes | None = None
        """The value of an update that was not answered yet, or never was."""
        self._heard: Event | None = None
        """The newest deletion or gap that was told of before the lock was held."""

    @property
    def token(self) -> Revision:
        """The number that the store gave to this life of the lock's node."""
        assert self._token is not None, f"{self.path} was never held"
        return self._token

    @property
    def version(self) -> Version:
        """The version of the lock's node as this holder knows it."""
        assert self._stat is not None, f"{self.path} was never held"
        return self._stat.version

    def guard(self) -> Guard:
        """What a write names to count only while the lock's node is there."""
        return Guard(self.path, self.version)

    def _go(self, state: LockState) -> None:
        assert state in NEXT[self.state], f"{self.path}: no way from {self.state} to {state}"
        self.state = state

    # --- taking it ----------------------------------------------------------------------------

    def begin(self) -> Step:
        """Start to take the lock."""
        return Step(Do.CREATE)

    def created(self, stat: Stat) -> Step | None:
        """The node was created; what was told of it may have overtaken the answer."""
        self._go(LockState.HELD)
        # Not its revision: those of two clients of a store with several logs have no order.
        self._stat, self._token = stat, Revision(stat.version.epoch, stat.version.life)
        return None if self._heard is None else self.changed(self._heard)

    def not_created(self) -> Step:
        """There is a node already, or nobody knows whether it was created."""
        self._go(LockState.LOOKING)
        return Step(Do.LOOK)

    def found(self, node: Node | None) -> Step | None:
        """A look while taking the lock showed this."""
        finding = judge(node, self.value)
        if finding is Finding.FREE:
            self._go(LockState.CREATING)
            return Step(Do.CREATE)
        assert node is not None
        if finding is Finding.LEFT_OVER:
            self._go(LockState.REMOVING)
            return Step(Do.REMOVE, node.stat.version)
        self._go(LockState.BUSY)
        self.holder = node.value
        return None

    def removed(self) -> Step:
        """The old node is gone."""
        self._go(LockState.CREATING)
        return Step(Do.CREATE)

    def not_removed(self) -> Step:
        """The old node changed meanwhile, or nobody knows whether it is gone."""
        self._go(LockState.LOOKING)
        return Step(Do.LOOK)

    # --- while it is held -----------------------------------------------------------------------

    def changed(self, event: Event) -> Step | None:
        """The store told of a change of the node, or that it may have missed one."""
        if self.state is not LockState.HELD:
            if event.kind in (EventKind.DELETED, EventKind.GAP):
                self._heard = event
            return None
        assert self._stat is not None
        if event.kind is EventKind.GAP:
            return Step(Do.LOOK)
        if event.revision <= self._stat.revision:
            return None
        if event.kind is EventKind.MODIFIED:
            return Step(Do.LOOK)
        self.lose("its node was deleted")
        return None

    def session_changed(self, event: SessionEvent, *, same_session: bool) -> Step | None:
        """The session went through something; `same_session` is whether it still is the lock's."""
        if self.state is not LockState.HELD:
            return None
        if not same_session or event is SessionEvent.SESSION_LOST:
            self.lose("its session ended")
        elif event is SessionEvent.RECONNECTED:
            return Step(Do.LOOK)
        return None

    def confirmed(self, node: Node | None) -> None:
        """A look at the node while the lock is held showed this."""
        if self.state is not LockState.HELD:
            return
        assert self._stat is not None
        if node is not None and node.stat.version == self._stat.version:
            return
        ours = node is not None and node.stat.created_by_self
        if node is not None and ours and self._update is not None and node.value == self._update:
            self.updated(node.stat)
        elif node is None or node.stat.revision > self._stat.revision:
            self.lose("its node is not there any more" if node is None else "its node was replaced")

    def update(self, value: bytes) -> None:
        """A write of another value begins."""
        assert self.state is LockState.HELD
        self._update = value

    def updated(self, stat: Stat) -> None:
        """The value that was being written is there."""
        if self.state is LockState.HELD and self._update is not None:
            self.value, self._stat, self._update = self._update, stat, None

    def lose(self, because: str) -> None:
        """It is over, and not by our wish."""
        if self.state is LockState.HELD:
            self._go(LockState.LOST)
            self.lost_because = because

    # --- letting it go --------------------------------------------------------------------------

    def release(self) -> Step | None:
        """Give it up; None if there is nothing to give up."""
        if self.state is not LockState.HELD:
            return None
        self._go(LockState.RELEASING)
        return Step(Do.REMOVE, self.version)

    def let_go(self) -> None:
        """The removal was answered, or never will be."""
        self._go(LockState.RELEASED)
