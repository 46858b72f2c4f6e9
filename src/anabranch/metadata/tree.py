"""The state machine behind the memory and the embedded store: commands in, outcomes and events out.

Pure and deterministic: applying the same commands in the same order gives the same tree, versions
and revisions. Every change has a revision of its own, so that a watch can resume after any event.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import BadVersion, InvalidPath, NotEmpty, NotFound
from anabranch.metadata.paths import ROOT, ancestors_of, join, name_of, order_key, parent_of
from anabranch.metadata.sorted_names import SortedNames
from anabranch.metadata.store import (
    Condition,
    Delete,
    Event,
    EventKind,
    Expected,
    Node,
    Operation,
    Outcome,
    Put,
    Revision,
    Stat,
    Version,
)


class Entry(NamedTuple):
    """All that is kept of a node; never changed, only replaced."""

    value: bytes
    native: int
    life: int
    revision_epoch: int
    revision_index: int
    created_ms: int
    modified_ms: int


class Applied(NamedTuple):
    """What a command did."""

    outcomes: list[Outcome]
    events: list[Event]


class Counters(NamedTuple):
    """What a snapshot keeps besides the nodes."""

    revision: Revision
    life: int


_EMPTY_ROOT = Entry(b"", 0, 0, 0, 0, 0, 0)
NOTHING_YET = Counters(Revision(0, 0), 0)


def version_of(entry: Entry) -> Version:
    """The token for this state of a node."""
    return Version(0, entry.native, entry.life)


def stat_of(path: str, entry: Entry) -> Stat:
    """What callers may know of a node."""
    revision = Revision(entry.revision_epoch, entry.revision_index)
    return Stat(path, version_of(entry), revision, entry.created_ms, entry.modified_ms)


def _mismatch(path: str, entry: Entry | None, expected: Expected) -> BadVersion | None:
    if expected is Condition.ANY:
        return None
    if expected is Condition.ABSENT:
        return None if entry is None else BadVersion(path, "the node exists already")
    if entry is None:
        return BadVersion(path, f"expected {expected}, there is no node")
    if version_of(entry) != expected:
        return BadVersion(path, f"expected {expected}, found {version_of(entry)}")
    return None


class Tree:
    """Nodes by path. Checked paths only; operations are refused as values, not raised."""

    def __init__(self, counters: Counters = NOTHING_YET) -> None:
        self._entries: dict[str, Entry] = {ROOT: _EMPTY_ROOT}
        self._children: dict[str, SortedNames] = {}
        self._revision = counters.revision
        self._life = counters.life
        self._view: TreeView | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def revision(self) -> Revision:
        """Of the last change."""
        return self._revision

    @property
    def counters(self) -> Counters:
        """What a later tree must start from to go on where this one is."""
        return Counters(self._revision, self._life)

    def apply(self, operations: Sequence[Operation], *, epoch: int, wall_ms: int) -> Applied:
        """Carry out operations in order; one refused does not stop the others."""
        events: list[Event] = []
        outcomes: list[Outcome] = []
        for operation in operations:
            if isinstance(operation, Put):
                outcomes.append(self._put(operation, epoch, wall_ms, events))
            else:
                outcomes.append(self._delete(operation, epoch, events))
        return Applied(outcomes, events)

    def _put(self, put: Put, epoch: int, wall_ms: int, events: list[Event]) -> Outcome:
        path = put.path
        old = self._entries.get(path)
        if (refusal := _mismatch(path, old, put.expected)) is not None:
            return refusal
        if old is None:
            for ancestor in ancestors_of(path):
                if ancestor not in self._entries:
                    self._create(ancestor, b"", epoch, wall_ms, events)
            return stat_of(path, self._create(path, put.value, epoch, wall_ms, events))
        revision = self._next_revision(epoch)
        new = Entry(
            put.value, old.native + 1, old.life, epoch, revision.index, old.created_ms, wall_ms
        )
        self._keep_for_view(path, old)
        self._entries[path] = new
        events.append(Event(EventKind.MODIFIED, path, revision))
        return stat_of(path, new)

    def _create(
        self, path: str, value: bytes, epoch: int, wall_ms: int, events: list[Event]
    ) -> Entry:
        revision = self._next_revision(epoch)
        self._life += 1
        entry = Entry(value, 0, self._life, epoch, revision.index, wall_ms, wall_ms)
        self._keep_for_view(path, None)
        self._add(path, entry)
        events.append(Event(EventKind.CREATED, path, revision))
        return entry

    def _delete(self, delete: Delete, epoch: int, events: list[Event]) -> Outcome:
        path = delete.path
        if path == ROOT:
            return InvalidPath("the root '/' cannot be deleted")
        old = self._entries.get(path)
        if old is None:
            return NotFound(f"no node at {path}")
        if (refusal := _mismatch(path, old, delete.expected)) is not None:
            return refusal
        if path in self._children:
            return NotEmpty(f"{path} has {len(self._children[path])} children: delete them first")
        revision = self._next_revision(epoch)
        self._keep_for_view(path, old)
        del self._entries[path]
        parent = parent_of(path)
        siblings = self._children[parent]
        siblings.remove(name_of(path))
        if not siblings:
            del self._children[parent]
        events.append(Event(EventKind.DELETED, path, revision))
        return None

    def _next_revision(self, epoch: int) -> Revision:
        assert epoch >= self._revision.epoch, "epochs never go back"
        self._revision = Revision(epoch, self._revision.index + 1)
        return self._revision

    def _add(self, path: str, entry: Entry) -> None:
        self._entries[path] = entry
        parent = parent_of(path)
        siblings = self._children.get(parent)
        if siblings is None:
            siblings = self._children[parent] = SortedNames()
        siblings.add(name_of(path))

    def load(self, path: str, entry: Entry) -> None:
        """Put in a node of a snapshot; parents come before children."""
        if path == ROOT:
            self._entries[ROOT] = entry
        else:
            assert path not in self._entries, f"{path} comes twice"
            assert parent_of(path) in self._entries, f"{path} comes before its parent"
            self._add(path, entry)

    def get(self, path: str) -> Node | None:
        """The node at a path."""
        entry = self._entries.get(path)
        return None if entry is None else Node(entry.value, stat_of(path, entry))

    def exists(self, path: str) -> bool:
        """Whether there is a node at a path."""
        return path in self._entries

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        names = self._children.get(path)
        return [] if names is None else list(names)

    def page(self, prefix: str, after: str | None) -> list[tuple[str, Entry]]:
        """The next nodes at or below `prefix` in path order, bounded in number and bytes.

        `after` is the last path of the page before and need not exist any more. An empty page
        means that there are no more.
        """
        found: list[tuple[str, Entry]] = []
        size_bytes = 0
        for item in self._walk(prefix, after):
            found.append(item)
            size_bytes += len(item[1].value)
            if (
                len(found) >= limits.METADATA_PAGE_NODES_MAX
                or size_bytes >= limits.METADATA_PAGE_BYTES_MAX
            ):
                break
        return found

    def _walk(self, prefix: str, after: str | None) -> Iterator[tuple[str, Entry]]:
        # One iterator per level above the present node: the rest of that level's names.
        levels: list[tuple[str, Iterator[str]]] = []
        if after is None:
            entry = self._entries.get(prefix)
            if entry is None:
                return
            yield prefix, entry
            after = prefix
        elif after != prefix:
            levels.extend(
                (parent_of(path), self._children[parent_of(path)].after(name_of(path)))
                for path in (*ancestors_of(after), after)
                if len(path) > len(prefix) and parent_of(path) in self._children
            )
        if after in self._children:
            levels.append((after, iter(self._children[after])))
        while levels:
            place, names = levels[-1]
            name = next(names, None)
            if name is None:
                levels.pop()
                continue
            path = join(place, name)
            yield path, self._entries[path]
            if path in self._children:
                levels.append((path, iter(self._children[path])))

    def freeze(self) -> "TreeView":
        """A view of the tree as it is now, to be read in pages while the tree goes on changing."""
        assert self._view is None, "one view at a time"
        self._view = TreeView(self, self.counters)
        return self._view

    def release(self, view: "TreeView") -> None:
        """Stop keeping what `view` needs."""
        assert self._view is view
        self._view = None

    def _keep_for_view(self, path: str, entry: Entry | None) -> None:
        if self._view is not None:
            self._view.keep(path, entry)

    def validate(self) -> None:
        """Check what must hold between changes."""
        listed = 0
        for parent, names in self._children.items():
            listed += len(names)
            assert len(names) > 0, f"{parent} has an empty list of children"
            assert list(names) == sorted(set(names)), f"children of {parent} are out of order"
            assert all(join(parent, name) in self._entries for name in names)
        assert listed + 1 == len(self._entries), "every node but the root is some node's child"
        for path, entry in self._entries.items():
            assert entry.revision_index <= self._revision.index, f"{path} is from the future"
            assert entry.life <= self._life, f"{path} is from the future"


class TreeView:
    """The tree at one moment. What changes before the reader came by is kept aside for it."""

    def __init__(self, tree: Tree, counters: Counters) -> None:
        self.counters = counters
        self._tree = tree
        self._after: str | None = None
        self._after_key = ""
        self._ended = False
        self._kept: dict[str, Entry | None] = {}
        self._kept_keys: list[tuple[str, str]] = []

    def keep(self, path: str, entry: Entry | None) -> None:
        """Remember a node as it was; None if there was none. Only the first call counts."""
        key = order_key(path)
        passed = self._ended or (self._after is not None and key <= self._after_key)
        if not passed and path not in self._kept:
            self._kept[path] = entry
            heappush(self._kept_keys, (key, path))

    def next_page(self) -> list[tuple[str, Entry]]:
        """The next nodes in path order, [] at the end."""
        found: list[tuple[str, Entry]] = []
        while not found and not self._ended:
            live = self._tree.page(ROOT, self._after)
            found = [item for item in live if item[0] not in self._kept]
            self._ended = not live
            if live:
                self._after, self._after_key = live[-1][0], order_key(live[-1][0])
            if self._take_kept(found):
                found.sort(key=lambda item: order_key(item[0]))
        return found

    def _take_kept(self, found: list[tuple[str, Entry]]) -> bool:
        taken = False
        while self._kept_keys and (self._ended or self._kept_keys[0][0] <= self._after_key):
            path = heappop(self._kept_keys)[1]
            entry = self._kept.pop(path)
            if entry is not None:
                found.append((path, entry))
                taken = True
        return taken
