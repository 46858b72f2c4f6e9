"""The contract of a metadata store, and the values that travel through it.

Paths are absolute ("/a/b"), never end in "/", and a node may exist without its parents having been
put explicitly: writing "/a/b" makes "/a" exist with an empty value, as in ZooKeeper. The root "/"
is always there, may be written and never be deleted. Path order compares name by name, so that a
node comes before what is below it and that before the node's next sibling. Versions are opaque
tokens: compare them for equality, hand them back, never count with them.

A session is what an ephemeral node lives by: the store ends it once its client was not heard of for
the session's timeout, and every ephemeral node of it goes in that moment. A store opened inside its
own process has a session that lasts as long as the process does.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from anabranch.errors import AnabranchError


class Version(NamedTuple):
    """An opaque token for one state of one node."""

    epoch: int
    """Which store issued the number."""
    native: int
    """The number the store itself counts with: in ZooKeeper's way where the store can choose."""
    life: int = 0
    """Tells a node from an earlier one at its path, than whose it is larger."""


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


class Stat(NamedTuple):
    """What is known of a node besides its value."""

    path: str
    version: Version
    revision: Revision
    """Of the last write to this node."""
    created_ms: int
    modified_ms: int
    ephemeral: bool = False
    created_by_self: bool = False
    """Whether an ephemeral node belongs to the session of the store handle that returned this."""


class Node(NamedTuple):
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


class Event(NamedTuple):
    """One change, in the order of the store's history."""

    kind: EventKind
    path: str
    revision: Revision


class SessionEvent(Enum):
    """What a client learns of its session."""

    CONNECTION_LOST = "connection lost"
    """Nobody answers; the session may still be alive. Nothing is known, nothing is decided."""
    RECONNECTED = "reconnected"
    """The same session goes on: its ephemeral nodes are still there."""
    SESSION_LOST = "session lost"
    """Assume every ephemeral node gone. Said no later than the store itself ends the session."""
    SESSION_REESTABLISHED = "session reestablished"
    """A new session began; the ephemeral nodes of the old one are gone or will be."""


class Fencing(Enum):
    """How a store keeps out the writes of a participant that was replaced."""

    SERVER = "server"
    """The store itself checks a write's guard, in the same moment as it carries the write out."""
    LEASE = "lease"
    """The store cannot: a write counts only if its writer's lease still ran at the answer."""


class Guard(NamedTuple):
    """A write counts only while this node is in this state: a fencing token for one write."""

    path: str
    version: Version


@dataclass(frozen=True, slots=True)
class IndexKey:
    """A name under which a node can be found besides its path."""

    index: str
    key: str


class Put(NamedTuple):
    """One write of a batch."""

    path: str
    """With `sequential`, the beginning of the path: ten or more digits are added to its name."""
    value: bytes
    expected: Expected = ANY
    ephemeral: bool = False
    """Decided when the node is created: a later put keeps the owner it has, or that it has none."""
    sequential: bool = False
    indexes: tuple[IndexKey, ...] = ()
    """Replace those the node had before."""
    guard: Guard | None = None


class Delete(NamedTuple):
    """One removal of a batch."""

    path: str
    expected: Expected = ANY
    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class AccessRight:
    """What somebody may do with a node, in the words of ZooKeeper."""

    permissions: int
    """Bits: 1 read, 2 write, 4 create, 8 delete, 16 administer."""
    scheme: str
    identity: str


class Record(NamedTuple):
    """A node as `export` gives it and `restore` takes it: all that is kept, nothing implied."""

    path: str
    value: bytes
    native_version: int
    created_ms: int
    modified_ms: int
    next_sequence: int = 0
    """The number the next sequential child gets; larger than any ever issued here."""
    session: int | None = None
    """Of an ephemeral node: whose it is."""
    indexes: tuple[IndexKey, ...] = ()
    access: tuple[AccessRight, ...] = ()
    """Empty if everybody may do everything. Only some stores hold it; the others refuse it."""


Operation = Put | Delete
Outcome = Stat | None | AnabranchError
"""Of one operation in a batch: the stat of a put, None for a delete, or why it was refused."""


class MetadataStore(Protocol):
    """A tree of small values with conditional writes, sessions and watches."""

    @property
    def fencing(self) -> Fencing:
        """How late writes are kept out."""
        ...

    async def get(self, path: str) -> Node | None:
        """Return the node, or None if there is none."""
        ...

    async def put(
        self,
        path: str,
        value: bytes,
        expected: Expected = ANY,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        indexes: tuple[IndexKey, ...] = (),
        guard: Guard | None = None,
    ) -> Stat:
        """Write a value if the node is as expected; the stat names the path that was written.

        Raises:
            BadVersion: for every mismatch, also "exists already" and "is not there".
            Fenced: if the guard's node is not in the guard's state any more.
            SessionExpired: if the write is ephemeral and the session has ended.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
            InputError: if the combination makes no sense, such as a child of an ephemeral node.
        """
        ...

    async def delete(
        self, path: str, expected: Expected = ANY, *, guard: Guard | None = None
    ) -> None:
        """Remove a node.

        Raises:
            NotFound: if there is none.
            BadVersion: if its version is another.
            Fenced: if the guard's node is not in the guard's state any more.
            NotEmpty: if it has children.
            InvalidPath: if it is the root.
            OutcomeUnknown: if the answer was lost; only reading back can tell.
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

    def scan_index(
        self, index: str, first: str = "", last: str | None = None
    ) -> AsyncIterator[Node]:
        """Nodes by a secondary index, ordered by key and then path: first <= key < last."""
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

    def changed_since(self, since: Revision, prefix: str = "/") -> AsyncIterator[Event]:
        """The newest change of each path changed after `since`, then the end: what a copy lacks.

        A GAP comes first, and alone, if that is not known any more.
        """
        ...

    def session_events(self) -> AsyncIterator[SessionEvent]:
        """What happens to this handle's session from the call on; ends when it is closed."""
        ...

    @property
    def session(self) -> int:
        """The number of the present session."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """How long the store keeps a session whose client it does not hear of."""
        ...

    @property
    def session_valid_until(self) -> float:
        """Before this moment of the monotonic clock the session cannot have ended at the store.

        Counted from when the last answered renewal was sent. Infinite for a store in its own
        process.
        """
        ...

    async def sync(self) -> None:
        """Return once reads of this handle show every write that was answered before the call."""
        ...

    def export(
        self, prefix: str = "/", *, access: bool = True, values: bool = True
    ) -> AsyncIterator[Record]:
        """Every node at or below `prefix` as of one moment, parents first, in bounded memory.

        With `access` false, without access rights, which some stores read one by one. With `values`
        false, values and indexes are of no interest, and may be left out.
        """
        ...

    async def record(self, path: str) -> Record | None:
        """One node as `export` gives it, without what is below it; None if there is none."""
        ...

    async def restore(self, records: AsyncIterator[Record]) -> int:
        """Write exported nodes with their native versions, times and sequences; return how many.

        Parents come before children. Ephemeral nodes are left out and not counted: those who own
        them make them anew. The root may be restored as long as nobody has written to it.

        Raises:
            ConflictError: if a node at one of the paths exists already; what came before stays.
        """
        ...

    @property
    def failure(self) -> AnabranchError | None:
        """Why this store will accept no write any more; None while it may."""
        ...

    async def revision(self) -> Revision:
        """The newest point of history this store knows to be committed."""
        ...

    async def moment(self) -> Revision:
        """A point after every write that was answered, which others may have made.

        Two calls give the same one only if nothing at all was written in between, access rights
        included; they may give two although nothing was.
        """
        ...

    async def close(self) -> None:
        """Finish writes in flight, end the session and let go of every resource."""
        ...
