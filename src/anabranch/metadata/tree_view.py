"""A tree as it was at one moment, read in pages while the tree goes on changing. Pure."""

from collections.abc import Callable
from heapq import heappop, heappush

from anabranch.metadata.entries import Entry
from anabranch.metadata.paths import is_within, order_key

Page = list[tuple[str, Entry]]


class TreeView:
    """The nodes at or below a path. What changes before the reader came by is kept aside."""

    def __init__(self, prefix: str, live_page: Callable[[str, str | None], Page]) -> None:
        self._prefix = prefix
        self._live_page = live_page
        self._after: str | None = None
        self._after_key = ""
        self._ended = False
        self._kept: dict[str, Entry | None] = {}
        self._kept_keys: list[tuple[str, str]] = []

    def keep(self, path: str, entry: Entry | None) -> None:
        """Remember a node as it was; None if there was none. Only the first call counts."""
        if not is_within(self._prefix, path):
            return
        key = order_key(path)
        passed = self._ended or (self._after is not None and key <= self._after_key)
        if not passed and path not in self._kept:
            self._kept[path] = entry
            heappush(self._kept_keys, (key, path))

    def next_page(self) -> Page:
        """The next nodes in path order, [] at the end."""
        found: Page = []
        while not found and not self._ended:
            live = self._live_page(self._prefix, self._after)
            found = [item for item in live if item[0] not in self._kept]
            self._ended = not live
            if live:
                self._after, self._after_key = live[-1][0], order_key(live[-1][0])
            if self._take_kept(found):
                found.sort(key=lambda item: order_key(item[0]))
        return found

    def _take_kept(self, found: Page) -> bool:
        taken = False
        while self._kept_keys and (self._ended or self._kept_keys[0][0] <= self._after_key):
            path = heappop(self._kept_keys)[1]
            entry = self._kept.pop(path)
            if entry is not None:
                found.append((path, entry))
                taken = True
        return taken
