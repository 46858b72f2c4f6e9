"""The store that a process is on, and how tokens come and go between its callers and that store.

A token from before a switch is good for as long as nothing has happened to its node since: if the
store that was left shows the node in that very state, unchanged since it was left, and the store in
use shows it unchanged since it was come to, then it is the state that was copied.
"""

from dataclasses import dataclass, field
from typing import Final

from anabranch.errors import AnabranchError, BadVersion, Fenced
from anabranch.metadata.store import (
    Event,
    Expected,
    Guard,
    MetadataStore,
    Node,
    Operation,
    Revision,
    Stat,
    Version,
)
from anabranch.metadata.switchable.own_nodes import Alias, is_news
from anabranch.metadata.switchable.tokens import (
    generation_of,
    marked_revision,
    marked_stat,
    own_revision,
    own_version,
)

_SESSION_SHIFT: Final = 64


@dataclass(slots=True)
class Left:
    """The store that was in use before."""

    store: MetadataStore
    """A handle that stays."""
    generations: frozenset[int]
    at: Revision
    """Its own revision when it was left."""


@dataclass(slots=True)
class Route:
    """A store in use. Pure but for what `own_expected` asks of the stores."""

    name: str
    store: MetadataStore
    generation: int = 0
    generations: frozenset[int] = frozenset({0})
    """All whose tokens are this store's own."""
    came_at: Revision = field(default_factory=lambda: Revision(0, 0))
    """The store's own revision when this process came to it."""
    left: Left | None = None
    aliases: dict[str, Alias] = field(default_factory=dict)
    same_session: tuple[int, int] | None = None
    """A session of this store, and the number under which callers know it from before."""

    @property
    def transparent(self) -> bool:
        """Whether tokens pass as they are."""
        return self.generation == 0 and not self.aliases

    # --- to callers ---------------------------------------------------------------------------

    @property
    def session(self) -> int:
        """The present session's number."""
        number = self.store.session
        if self.same_session is not None and self.same_session[0] == number:
            return self.same_session[1]
        return number + (self.generation << _SESSION_SHIFT)

    def shown_stat(self, stat: Stat) -> Stat:
        """A stat as callers see it."""
        if self.transparent:
            return stat
        alias = self.aliases.get(stat.path)
        if alias is not None and alias.version == stat.version:
            return stat._replace(version=alias.shown.version, revision=alias.shown.revision)
        return marked_stat(stat, self.generation)

    def shown_node(self, node: Node) -> Node:
        """A node as callers see it."""
        return node if self.transparent else node._replace(stat=self.shown_stat(node.stat))

    def shown_event(self, event: Event) -> Event | None:
        """A change as callers see it; None if it is none to them."""
        if self.transparent:
            return event
        if not is_news(event, self.aliases):
            return None
        return event._replace(revision=marked_revision(event.revision, self.generation))

    # --- from callers -------------------------------------------------------------------------

    def own_since(self, since: Revision) -> Revision | None:
        """A point of this store's history; None if it is of another one."""
        return own_revision(since) if generation_of(since) in self.generations else None

    async def own_operation(self, operation: Operation) -> Operation:
        """A write in this store's own tokens.

        Raises:
            BadVersion: if it expects a state that is over.
            Fenced: if its guard names one.
        """
        expected, guard = operation.expected, operation.guard
        if isinstance(expected, Version) and not self._is_own(operation.path, expected):
            expected = await self.own_expected(operation.path, expected)
        if guard is not None and not self._is_own(guard.path, guard.version):
            guard = await self._own_guard(guard)
        if expected is operation.expected and guard is operation.guard:
            return operation
        return operation._replace(expected=expected, guard=guard)

    def _is_own(self, path: str, version: Version) -> bool:
        return self.transparent and generation_of(version) == 0

    async def _own_guard(self, guard: Guard) -> Guard:
        try:
            expected = await self.own_expected(guard.path, guard.version)
        except BadVersion as error:
            raise Fenced(f"the guard {guard.path} is of a state that is over: {error}") from None
        assert isinstance(expected, Version)
        return Guard(guard.path, expected)

    async def own_expected(self, path: str, version: Version) -> Expected:
        """What this store calls a state that callers know by a version.

        Raises:
            BadVersion: if the state is over, or nobody can tell any more.
        """
        alias = self.aliases.get(path)
        if alias is not None and alias.shown.version == version:
            return alias.version
        if generation_of(version) in self.generations:
            return own_version(version)
        left = self.left
        if left is None or generation_of(version) not in left.generations:
            raise BadVersion(path, "the store was replaced more than once since it was read")
        try:
            old = await left.store.get(path)
        except AnabranchError as error:
            raise BadVersion(
                path, f"it was read from the store before this one, which is gone: {error}"
            ) from None
        if old is None or old.stat.version != own_version(version) or old.stat.revision > left.at:
            raise BadVersion(path)
        new = await self.store.get(path)
        if new is None or new.stat.revision > self.came_at:
            raise BadVersion(path)
        return new.stat.version
