"""The nodes of the memory and the embedded store: operations in, outcomes and events out.

Pure and deterministic: applying the same operations in the same order gives the same tree, versions
and revisions. Every change has a revision of its own, so that a watch can resume after any event.
Which sessions are alive is not known here: see `state_machine`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    ConflictError,
    Fenced,
    InputError,
    InvalidPath,
    NotEmpty,
    NotFound,
    SessionExpired,
)
from anabranch.metadata.entries import (
    EMPTY_ROOT,
    NOBODY,
    NOTHING_YET,
    Counters,
    Entry,
    mismatch,
    stat_of,
    version_of,
)
from anabranch.metadata.indexes import SecondaryIndexes
from anabranch.metadata.paths import ROOT, ancestors_of, join, name_of, order_key, parent_of
from anabranch.metadata.sorted_names import SortedNames
from anabranch.metadata.store import (
    Delete,
    Event,
    EventKind,
    Guard,
    Operation,
    Outcome,
    Put,
    Record,
    Revision,
)
from anabranch.metadata.tree_view import TreeView


class Applied(NamedTuple):
    """What operations did."""

    outcomes: list[Outcome]
    events: list[Event]


class _Moment(NamedTuple):
    """The circumstances under which operations are carried out."""

    epoch: int
    wall_ms: int
    session: int
    events: list[Event]


class Tree:
    """Nodes by path. Checked paths only; operations are refused as values, not raised."""

    def __init__(self, counters: Counters = NOTHING_YET) -> None:
        self.indexes = SecondaryIndexes()
        self._entries: dict[str, Entry] = {ROOT: EMPTY_ROOT}
        self._children: dict[str, SortedNames[str]] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._revision = counters.revision
        self._life = counters.life
        self._views: list[TreeView] = []

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

    # --- changing -----------------------------------------------------------------------------

    def apply(
        self, operations: Sequence[Operation], *, epoch: int, wall_ms: int, session: int = NOBODY
    ) -> Applied:
        """Carry out operations in order; one refused does not stop the others."""
        moment = _Moment(epoch, wall_ms, session, [])
        outcomes: list[Outcome] = []
        for operation in operations:
            refusal = self._fenced(operation.guard)
            if refusal is not None:
                outcomes.append(refusal)
            elif isinstance(operation, Put):
                outcomes.append(self._put(operation, moment))
            else:
                outcomes.append(self._delete(operation, moment))
        return Applied(outcomes, moment.events)

    def _fenced(self, guard: Guard | None) -> Fenced | None:
        if guard is None:
            return None
        entry = self._entries.get(guard.path)
        if entry is None:
            return Fenced(f"the guard {guard.path} is gone: this writer was replaced")
        if version_of(entry) != guard.version:
            return Fenced(
                f"the guard {guard.path} is at {version_of(entry)}, this writer knows "
                f"{guard.version}: it was replaced"
            )
        return None

    def _put(self, put: Put, moment: _Moment) -> Outcome:
        if put.ephemeral and moment.session == NOBODY:
            return SessionExpired(f"{put.path}: the session that should own this node has ended")
        if put.sequential:
            return self._put_next(put, moment)
        path = put.path
        old = self._entries.get(path)
        if (refusal := mismatch(path, old, put.expected)) is not None:
            return refusal
        if old is None:
            if (below := self._make_ancestors(path, moment)) is not None:
                return below
            return stat_of(path, self._create(path, put, moment), moment.session)
        revision = self._next_revision(moment.epoch)
        new = old._replace(
            value=put.value,
            native=old.native + 1,
            revision_epoch=revision.epoch,
            revision_index=revision.index,
            modified_ms=moment.wall_ms,
            indexes=put.indexes,
        )
        self._set(path, old, new)
        moment.events.append(Event(EventKind.MODIFIED, path, revision))
        return stat_of(path, new, moment.session)

    def _put_next(self, put: Put, moment: _Moment) -> Outcome:
        parent = parent_of(f"{put.path}0")  # of "/" too, below which a name may be all digits
        if (below := self._make_ancestors(put.path, moment)) is not None:
            return below
        number = self._next_number(put)
        entry = self._entries[parent]
        self._set(parent, entry, entry._replace(next_sequence=number + 1))
        path = f"{put.path}{number:010}"
        return stat_of(path, self._create(path, put, moment), moment.session)

    def _next_number(self, put: Put) -> int:
        number = self._entries[parent_of(f"{put.path}0")].next_sequence
        # Somebody may have put a node of that very name; a number is never issued twice.
        while f"{put.path}{number:010}" in self._entries:
            number += 1
        return number

    def _make_ancestors(self, path: str, moment: _Moment) -> InputError | None:
        missing = []
        for ancestor in ancestors_of(path):
            entry = self._entries.get(ancestor)
            if entry is None:
                missing.append(ancestor)
            elif entry.owner != NOBODY:
                return InputError(f"{path}: {ancestor} is ephemeral and can have no children")
        for ancestor in missing:
            self._create(ancestor, _IMPLIED, moment)
        return None

    def _create(self, path: str, put: Put, moment: _Moment) -> Entry:
        revision = self._next_revision(moment.epoch)
        self._life += 1
        entry = Entry(
            put.value,
            0,
            self._life,
            revision.epoch,
            revision.index,
            moment.wall_ms,
            moment.wall_ms,
            0,
            moment.session if put.ephemeral else NOBODY,
            put.indexes,
        )
        self._set(path, None, entry)
        moment.events.append(Event(EventKind.CREATED, path, revision))
        return entry

    def _delete(self, delete: Delete, moment: _Moment) -> Outcome:
        path = delete.path
        if path == ROOT:
            return InvalidPath("the root '/' cannot be deleted")
        old = self._entries.get(path)
        if old is None:
            return NotFound(f"no node at {path}")
        if (refusal := mismatch(path, old, delete.expected)) is not None:
            return refusal
        if path in self._children:
            return NotEmpty(f"{path} has {len(self._children[path])} children: delete them first")
        self._remove(path, moment.epoch, moment.events)
        return None

    def end_session(self, session: int, *, epoch: int) -> list[Event]:
        """Remove every node that belongs to a session, in path order."""
        events: list[Event] = []
        for path in sorted(self._ephemerals.get(session, ()), key=order_key):
            self._remove(path, epoch, events)
        return events

    def restore(self, records: Sequence[Record], *, epoch: int, wall_ms: int) -> Applied:
        """Put in exported nodes as they were; stops at the first that cannot be."""
        moment = _Moment(epoch, wall_ms, NOBODY, [])
        outcomes: list[Outcome] = []
        for record in records:
            outcomes.append(self._restore(record, moment))
            if isinstance(outcomes[-1], AnabranchError):
                break
        return Applied(outcomes, moment.events)

    def _restore(self, record: Record, moment: _Moment) -> Outcome:
        old = self._entries.get(record.path)
        if old is not None and not (record.path == ROOT and old.native == 0 and not old.value):
            return ConflictError(f"{record.path} exists already: restore into an empty place")
        if old is None and (below := self._make_ancestors(record.path, moment)) is not None:
            return below
        revision = self._next_revision(moment.epoch)
        self._life += 1
        entry = Entry(
            record.value,
            record.native_version,
            old.life if old is not None else self._life,
            revision.epoch,
            revision.index,
            record.created_ms,
            record.modified_ms,
            max(record.next_sequence, old.next_sequence if old is not None else 0),
            NOBODY,
            record.indexes,
        )
        self._set(record.path, old, entry)
        kind = EventKind.CREATED if old is None else EventKind.MODIFIED
        moment.events.append(Event(kind, record.path, revision))
        return stat_of(record.path, entry, NOBODY)

    def _next_revision(self, epoch: int) -> Revision:
        assert epoch >= self._revision.epoch, "epochs never go back"
        self._revision = Revision(epoch, self._revision.index + 1)
        return self._revision

    def _set(self, path: str, old: Entry | None, new: Entry) -> None:
        for view in self._views:
            view.keep(path, old)
        self._entries[path] = new
        if old is None:
            self._add(path, new)
        else:
            self.indexes.replace(path, old.indexes, new.indexes)

    def _add(self, path: str, entry: Entry) -> None:
        parent = parent_of(path)
        siblings = self._children.get(parent)
        if siblings is None:
            siblings = self._children[parent] = SortedNames()
        siblings.add(name_of(path))
        if entry.owner != NOBODY:
            self._ephemerals.setdefault(entry.owner, {})[path] = None
        if entry.indexes:
            self.indexes.replace(path, (), entry.indexes)

    def _remove(self, path: str, epoch: int, events: list[Event]) -> None:
        revision = self._next_revision(epoch)
        old = self._entries.pop(path)
        for view in self._views:
            view.keep(path, old)
        parent = parent_of(path)
        siblings = self._children[parent]
        siblings.remove(name_of(path))
        if not siblings:
            del self._children[parent]
        if old.owner != NOBODY:
            del self._ephemerals[old.owner][path]
            if not self._ephemerals[old.owner]:
                del self._ephemerals[old.owner]
        self.indexes.replace(path, old.indexes, ())
        events.append(Event(EventKind.DELETED, path, revision))

    def load(self, path: str, entry: Entry) -> None:
        """Put in a node of a snapshot; parents come before children."""
        if path != ROOT:
            assert path not in self._entries, f"{path} comes twice"
            assert parent_of(path) in self._entries, f"{path} comes before its parent"
            self._add(path, entry)
        elif entry.indexes:
            self.indexes.replace(path, (), entry.indexes)
        self._entries[path] = entry

    # --- looking ------------------------------------------------------------------------------

    def entry(self, path: str) -> Entry | None:
        """What is kept at a path."""
        return self._entries.get(path)

    def exists(self, path: str) -> bool:
        """Whether there is a node at a path."""
        return path in self._entries

    def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        names = self._children.get(path)
        return [] if names is None else list(names)

    def owners(self) -> set[int]:
        """The sessions that nodes belong to."""
        return set(self._ephemerals)

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

    def freeze(self, prefix: str = ROOT) -> TreeView:
        """A view of the nodes at or below a path as they are now; `release` it after use."""
        view = TreeView(prefix, self.page)
        self._views.append(view)
        return view

    def release(self, view: TreeView) -> None:
        """Stop keeping what `view` needs."""
        self._views.remove(view)

    def validate(self) -> None:
        """Check what must hold between changes."""
        listed = 0
        for parent, names in self._children.items():
            listed += len(names)
            assert len(names) > 0, f"{parent} has an empty list of children"
            assert list(names) == sorted(set(names)), f"children of {parent} are out of order"
            assert all(join(parent, name) in self._entries for name in names)
            assert self._entries[parent].owner == NOBODY, f"{parent} is ephemeral, with children"
        assert listed + 1 == len(self._entries), "every node but the root is some node's child"
        owned: dict[int, dict[str, None]] = {}
        for path, entry in self._entries.items():
            assert entry.revision_index <= self._revision.index, f"{path} is from the future"
            assert entry.life <= self._life, f"{path} is from the future"
            if entry.owner != NOBODY:
                owned.setdefault(entry.owner, {})[path] = None
        assert owned == self._ephemerals, "the lists of ephemeral nodes are wrong"
        indexed = {(key, path) for path, entry in self._entries.items() for key in entry.indexes}
        assert indexed == set(self.indexes.all()), "the secondary indexes are wrong"


_IMPLIED = Put(ROOT, b"")
