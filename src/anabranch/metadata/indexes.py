"""The secondary indexes of a tree: which nodes can be found by which names besides their paths.

Pure. Follows the tree change by change, and can be built anew from its nodes at any time.
"""

from collections.abc import Iterator
from itertools import islice

from anabranch import limits
from anabranch.metadata.paths import order_key, path_of_order_key
from anabranch.metadata.sorted_names import SortedNames
from anabranch.metadata.store import IndexKey

Place = tuple[str, ...]
"""A key and the order key of a path; a key alone stands before all that have it."""


class SecondaryIndexes:
    """For each index, its keys with the paths of their nodes, in order."""

    def __init__(self) -> None:
        self._indexes: dict[str, SortedNames[Place]] = {}

    def replace(self, path: str, old: tuple[IndexKey, ...], new: tuple[IndexKey, ...]) -> None:
        """A node was found under the names `old` and is now under `new`."""
        if old == new:
            return
        tail = order_key(path)
        for entry in old:
            names = self._indexes[entry.index]
            names.remove((entry.key, tail))
            if not names:
                del self._indexes[entry.index]
        for entry in new:
            self._indexes.setdefault(entry.index, SortedNames()).add((entry.key, tail))

    def page(self, index: str, after: Place, last: str | None) -> list[tuple[Place, str]]:
        """The next places behind `after` with their paths, a bounded number; [] at the end."""
        names = self._indexes.get(index)
        if names is None:
            return []
        return [
            (place, path_of_order_key(place[1]))
            for place in islice(names.after(after), limits.METADATA_PAGE_NODES_MAX)
            if last is None or place[0] < last
        ]

    def all(self) -> Iterator[tuple[IndexKey, str]]:
        """Everything, for checks."""
        for index, names in self._indexes.items():
            for key, tail in names:
                yield IndexKey(index, key), path_of_order_key(tail)
