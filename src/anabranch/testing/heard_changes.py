"""What one watch told of a store's history, and whether that can be right. Pure.

A gap says that changes may be missing between what was told before it and the gap's revision. All
others must have been told, each once, however often the connection was lost in between.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from anabranch.metadata.store import Event, EventKind, Revision

_BEGINNING: Final = Revision(0, 0)


class HeardChanges:
    """The events of one watch, in the order in which they came."""

    def __init__(self) -> None:
        self.gaps = 0
        self.count = 0
        """Of changes, gaps included."""
        self._last = _BEGINNING
        self._told: dict[str, Counter[Revision]] = {}
        self._perhaps_missed: list[tuple[Revision, Revision]] = []

    def hear(self, event: Event) -> str | None:
        """Take the next event; returns what is wrong with its place."""
        before, self._last = self._last, max(self._last, event.revision)
        self.count += 1
        if event.kind is EventKind.GAP:
            self.gaps += 1
            self._perhaps_missed.append((before, event.revision))
        else:
            self._told.setdefault(event.path, Counter())[event.revision] += 1
        return f"{event} came after {before}" if event.revision < before else None

    def times_told(self, path: str) -> int:
        """How often something was told of a path."""
        return self._told.get(path, Counter()).total()

    def wrong_with(self, path: str, made: Collection[Revision], changes: int) -> Iterator[str]:
        """What cannot be right about a path.

        Args:
            path: that was watched from before its first change.
            made: revisions of changes that are known to have been made, as this client sees them.
            changes: of the path in all, others may be among them that nobody knows the revision of.
        """
        told = self._told.get(path, Counter())
        lost = [
            revision for revision in made if revision not in told and not self._excused(revision)
        ]
        if lost:
            yield f"was not told of {len(lost)} changes of {path} outside gaps, such as {min(lost)}"
        if twice := [revision for revision, times in told.items() if times > 1]:
            yield f"was told {len(twice)} changes of {path} more than once, such as {min(twice)}"
        if (strange := len(told.keys() - set(made))) > changes - len(set(made)):
            yield f"was told {strange} changes of {path} that nobody made"

    def _excused(self, revision: Revision) -> bool:
        return any(first <= revision <= last for first, last in self._perhaps_missed)
