"""What a tree keeps of one node, and what callers may know of it. Pure."""

from typing import NamedTuple

from anabranch.errors import BadVersion
from anabranch.metadata.store import (
    Condition,
    Expected,
    IndexKey,
    Node,
    Record,
    Revision,
    Stat,
    Version,
)

NOBODY = 0
"""In the place of a session's number: no session."""


class Entry(NamedTuple):
    """All that is kept of a node; never changed, only replaced."""

    value: bytes
    native: int
    life: int
    revision_epoch: int
    revision_index: int
    created_ms: int
    modified_ms: int
    next_sequence: int = 0
    owner: int = NOBODY
    indexes: tuple[IndexKey, ...] = ()


class Counters(NamedTuple):
    """What a snapshot keeps of a tree besides the nodes."""

    revision: Revision
    life: int


NOTHING_YET = Counters(Revision(0, 0), 0)
EMPTY_ROOT = Entry(b"", 0, 0, 0, 0, 0, 0)


def version_of(entry: Entry) -> Version:
    """The token for this state of a node."""
    return Version(0, entry.native, entry.life)


def owned_by(entry: Entry, session: int) -> bool:
    """Whether a node lives only as long as this session."""
    return entry.owner == session != NOBODY


def stat_of(path: str, entry: Entry, session: int) -> Stat:
    """What a caller with this session may know of a node."""
    return Stat(
        path,
        version_of(entry),
        Revision(entry.revision_epoch, entry.revision_index),
        entry.created_ms,
        entry.modified_ms,
        entry.owner != NOBODY,
        owned_by(entry, session),
    )


def node_of(path: str, entry: Entry, session: int) -> Node:
    """A node as a caller with this session sees it."""
    return Node(entry.value, stat_of(path, entry, session))


def record_of(path: str, entry: Entry) -> Record:
    """A node as `export` gives it."""
    return Record(
        path,
        entry.value,
        entry.native,
        entry.created_ms,
        entry.modified_ms,
        entry.next_sequence,
        entry.owner if entry.owner != NOBODY else None,
        entry.indexes,
    )


def mismatch(path: str, entry: Entry | None, expected: Expected) -> BadVersion | None:
    """The refusal of a write that expected a node to be otherwise; None if it is as expected."""
    if expected is Condition.ANY:
        return None
    if expected is Condition.ABSENT:
        return None if entry is None else BadVersion(path, "the node exists already")
    if entry is None:
        return BadVersion(path, f"expected {expected}, there is no node")
    if version_of(entry) != expected:
        return BadVersion(path, f"expected {expected}, found {version_of(entry)}")
    return None
