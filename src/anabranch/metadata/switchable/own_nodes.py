"""The ephemeral nodes of one process: which they are, and how they get to another store.

Only the owner of a node makes it anew: whether a node is this process's is asked of the store at
the time, since to have tried to make one proves nothing. A node that was made anew keeps, for its
owner, the version and revision it had, so that a lock that was held is held.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from anabranch.errors import BadVersion, ConflictError, NotFound, OutcomeUnknown, Unreachable
from anabranch.metadata.paths import join, parent_of
from anabranch.metadata.store import (
    ABSENT,
    Event,
    MetadataStore,
    Node,
    Operation,
    Put,
    Revision,
    Stat,
    Version,
)
from anabranch.metadata.switchable.limits import REJOIN_AT_ONCE_MAX, REJOIN_TRIES_MAX

A = TypeVar("A")
B = TypeVar("B")


class Alias(NamedTuple):
    """A node that was made anew."""

    shown: Stat
    """What its owner knew of it, and goes on knowing."""
    version: Version
    """What the store calls this state of it."""
    revision: Revision


class OwnNodes:
    """What one process made, as far as it knows."""

    def __init__(self) -> None:
        self._paths: dict[str, None] = {}
        self._doubtful_parents: dict[str, None] = {}
        """Below them a node of a name nobody knows may have been made."""

    def made(self, stat: Stat) -> None:
        """A node of this process's session was written."""
        self._paths[stat.path] = None

    def doubted(self, operation: Operation) -> None:
        """Nobody knows whether a node was made."""
        if isinstance(operation, Put) and operation.sequential:
            self._doubtful_parents[parent_of(operation.path)] = None
        else:
            self._paths[operation.path] = None

    def removed(self, path: str) -> None:
        """A node was deleted."""
        self._paths.pop(path, None)

    def lose(self) -> None:
        """The session is over for all that others know."""
        self._paths.clear()
        self._doubtful_parents.clear()

    async def present(self, store: MetadataStore) -> list[Node]:
        """Those that are on a store and belong to this process's session there."""
        candidates = dict(self._paths)
        for parent in self._doubtful_parents:
            for name in await store.children(parent):
                candidates[join(parent, name)] = None
        nodes = await some_at_once(store.get, list(candidates))
        found = [
            node
            for node in nodes
            if node is not None and node.stat.ephemeral and node.stat.created_by_self
        ]
        self._paths = {node.stat.path: None for node in found}
        self._doubtful_parents.clear()
        return found


async def some_at_once(do: Callable[[A], Awaitable[B]], each: Sequence[A]) -> list[B]:
    """Do something with each; writes wait meanwhile, so it is not done one by one."""
    done: list[B] = []
    for start in range(0, len(each), REJOIN_AT_ONCE_MAX):
        done += await asyncio.gather(*map(do, each[start : start + REJOIN_AT_ONCE_MAX]))
    return done


async def make_anew(
    node: Node,
    here: MetadataStore,
    there: MetadataStore,
    is_still_ours: Callable[[str], Awaitable[bool]],
) -> Stat | None:
    """Make an ephemeral node of this process on another store; None if it is not its any more.

    What another session has there is of an attempt that came to nothing, and in the way: a session
    can outlast its process, or the connection by which it was to be ended. It goes, but only if
    `is_still_ours` says after it was found that the node is this process's still, and that nobody
    uses the other store yet.

    Raises:
        Unreachable: if the other store does not answer.
        ConflictError: if a node is there that belongs to no session.
    """
    path = node.stat.path
    record = await here.record(path)
    indexes = () if record is None else record.indexes
    for _ in range(REJOIN_TRIES_MAX):
        found = await there.get(path)
        if found is not None and not found.stat.ephemeral:
            raise ConflictError(f"{path} belongs to a session, but not in the other store")
        try:
            if found is not None and not found.stat.created_by_self:
                if not await is_still_ours(path):
                    return None
                await there.delete(path, found.stat.version)
                found = None
            if found is not None and found.value == node.value:
                return found.stat
            expected = ABSENT if found is None else found.stat.version
            return await there.put(path, node.value, expected, ephemeral=True, indexes=indexes)
        except (BadVersion, NotFound, OutcomeUnknown):
            continue  # only reading back can tell
    raise Unreachable(f"{path} could not be made anew: the other store does not answer clearly")


def is_news(event: Event, aliases: dict[str, Alias]) -> bool:
    """Whether an event tells the owner of a node anything but that it was made anew."""
    alias = aliases.get(event.path)
    return alias is None or event.revision > alias.revision
