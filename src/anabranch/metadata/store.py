"""The contract of a metadata store, and the values that travel through it.

Paths are absolute ("/a/b"), never end in "/", and a node may exist without its parents having been
put explicitly: writing "/a/b" makes "/a" exist with an empty value, as in ZooKeeper. The root "/"
is always there, may be written and never be deleted. Path order compares name by name, so that a
node comes before what is below it and that before the node's next sibling. Versions are opaque
tokens: compare them for equality, hand them back, never count with them.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from anabranch.errors import AnabranchError


@dataclass(frozen=True, slots=True)
class Version:
    """An opaque token for one state of one node."""

    epoch: int
    """Which store issued the number."""
    native: int
    """The number the store itself counts with: in ZooKeeper's way where the store can choose."""
    life: int = 0
    """Tells a node from an earlier one at its path, where the native number alone does not."""


class Condition(Enum):
    """What a write may require of a node other than an exact version."""

    ANY = "any"
    ABSENT = "absent"


ANY: Final = Condition.ANY
ABSENT: Final = Condition.ABSENT
Expected = Condition | Version


@dataclass(frozen=True, slots=True, order=True)
class Revision:
    """A point in the store's history: later changes have larger ones, no two have the same."""

    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a node besides its value."""

    path: str
    version: Version
    revision: Revision
    """Of the last write to this node."""
    created_ms: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its stat."""

    value: bytes
    stat: Stat


class EventKind(Enum):
    """What happened to a path."""

    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    GAP = "gap"
    """Events up to this revision may be missing: drop every cache. The path is "/"."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change, in the order of the store's history."""

    kind: EventKind
    path: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class Put:
    """One write of a batch."""

    path: str
    value: bytes
    expected: Expected = ANY


@dataclass(frozen=True, slots=True)
class Delete:
    """One removal of a batch."""

    path: str
    expected: Expected = ANY


Operation = Put | Delete
Outcome = Stat | None | AnabranchError
"""Of one operation in a batch: the stat of a put, None for a delete, or why it was refused."""


class MetadataStore(Protocol):
    """A tree of small values with conditional writes and watches."""

    async def get(self, path: str) -> Node | None:
        """Return the node, or None if there is none."""
        ...

    async def put(self, path: str, value: bytes, expected: Expected = ANY) -> Stat:
        """Write a value if the node is as expected.

        Raises:
            BadVersion: for every mismatch, also "exists already" and "is not there".
        """
        ...

    async def delete(self, path: str, expected: Expected = ANY) -> None:
        """Remove a node.

        Raises:
            NotFound: if there is none.
            BadVersion: if its version is another.
            NotEmpty: if it has children.
            InvalidPath: if it is the root.
        """
        ...

    async def exists(self, path: str) -> bool:
        """Whether there is a node, put or implied."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the direct children, sorted; [] if there is no such node."""
        ...

    def scan(self, prefix: str) -> AsyncIterator[Node]:
        """Every node at or below `prefix`, parents first, in path order, in bounded memory."""
        ...

    async def batch(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out operations in order with one request; one refused does not stop the others.

        Not a transaction: after a crash a first part of the operations may be there.
        """
        ...

    def watch(self, prefix: str = "/", since: Revision | None = None) -> AsyncIterator[Event]:
        """Changes at or below `prefix`, own writes included, after `since` or from the call on.

        A gap (`since` is too old or of another history, or the reader is too slow) is signalled as
        an event of kind GAP; changes after its revision follow. The iterator ends when the store is
        closed.
        """
        ...

    @property
    def failure(self) -> AnabranchError | None:
        """Why this store will accept no write any more; None while it may."""
        ...

    async def revision(self) -> Revision:
        """The newest point of history this store knows to be committed."""
        ...

    async def close(self) -> None:
        """Finish writes in flight and let go of every resource."""
        ...
